"""The code of the programs of a run of a changed tree, each read once: its location, and its differences."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from harness.analysis.code.code_map import CodeChange, differences
from harness.build.executed_blocks import code_of
from harness.build.workshop import build_code
from harness.core import json_codec
from harness.core.target_model import ORACLE
from harness.workflows.preparation.reach.reached_tests import hosts_of, with_native

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from harness.analysis.code.code_map import CodeMap
    from harness.analysis.code.line_code import LineCode
    from harness.record.executed_blocks.block_map import ProgramCode
    from harness.workflows.preparation.reach.base_code import TreeCode
    from harness.workflows.preparation.reach.changed_run import ChangedRun


class ProgramCodes:
    """The code of a run's programs."""

    def __init__(self, run: ChangedRun, folder: Path) -> None:
        """`folder` exists as long as the cells run, and contains the files that they share."""
        self._run = run
        self._folder = folder
        self._guard = threading.Lock()
        self._code_files: dict[Path, Path] = {}
        """Program -> the file with the addresses of its code."""
        self._programs: dict[Path, ProgramCode] = {}
        self._lines: dict[Path, list[LineCode]] = {}
        self._maps: dict[Path, CodeMap | None] = {}
        self._native_changes: dict[str, CodeChange] = {}
        """Kept run, or base_change.BASE -> the differences of its native build from this one's."""
        self._take_unmoved(run.base.unmoved(run.prepared.tree))
        oracle = run.prepared.peers[ORACLE].build if run.prepared.has_oracle else None
        self.native = self.map_in(oracle.folder) if oracle is not None else None
        """The code of the native build; None if it cannot be read."""

    def _take_unmoved(self, code: TreeCode | None) -> None:
        """Compare this code of the servers in place of their own."""
        if code is None:
            return
        found = {built.build.folder: code.targets.get(name) for name, built in self._run.prepared.built.items()}
        if self._run.prepared.has_oracle:
            found[self._run.prepared.peers[ORACLE].build.folder] = code.native
        self._maps |= {folder: one for folder, one in found.items() if one is not None}

    def file_of(self, program: Path, target: str) -> Path:
        """The file with the addresses of a program's code."""
        with self._guard:
            if program not in self._code_files:
                file = self._folder / f"code-{len(self._code_files)}"
                file.write_bytes(json_codec.encode(self.of(program, target)))
                self._code_files[program] = file
            return self._code_files[program]

    def of(self, program: Path, target: str) -> ProgramCode:
        """The code of a target's program, in which edited lines are also functions."""
        if program not in self._programs:
            code = code_of(program, self._run.prepared.targets[target].target.emulator.qemu)
            self._programs[program] = self._run.edited.noted_in(code, self.lines_in(program))
        return self._programs[program]

    def lines_in(self, program: Path) -> list[LineCode]:
        """The code that a program has of the edited lines. Reading debug information takes half a second."""
        if program not in self._lines:
            self._lines[program] = self._run.edited.code_in(program)
        return self._lines[program]

    def map_in(self, folder: Path) -> CodeMap | None:
        """The code of a build's objects, read once: it takes megabytes, and many cells share a build."""
        if folder not in self._maps:
            self._maps[folder] = build_code.read(folder)
        return self._maps[folder]

    def with_native_change(
        self, own: CodeChange, since: str, native: CodeMap | None, functions: Collection[str], code: CodeMap
    ) -> CodeChange:
        """A target's change together with the native build's, if both runs have one. `since`: the name of the earlier
        run, or BASE. `native`: the code of its native build. `code`: that of the target's, now.
        """
        if native is None or self.native is None:
            return own
        if since not in self._native_changes:
            self._native_changes[since] = differences(native, self.native)
        change = self._native_changes[since]
        lacking = change.functions - set(functions)
        inlined = {one: set(hosts_of(one, self.native, code)) & set(functions) for one in lacking}
        return with_native(own, change, functions, inlined)
