"""Chooses the tests of a changed tree that its change can reach: by what earlier runs noted, and by machine code.

A run in which all tests of a cell run notes which functions each of them enters (harness.record.executed_blocks). The
cache keeps that with the code of the server, if the cell was judged and had nothing new. In a later run, a test is left
out if it ended then as expected and entered no function whose code is another now. It would do the same again. A test
that failed of what is known did so as expected, unless chance was in it or an audit followed.

Everything that is not known runs: a cell of which nothing is kept, a build whose data or link differ, a suite whose
servers are not all of its own target, another seed, another list of known findings, another file of Plumbline. Of
several such runs the newest of the same checkout counts: another checkout's code may differ by more.

What a server does by its clock counts for the test that runs then, and may be missing when fewer tests run. Therefore
the chosen tests are noted as well. Where they do not enter what they entered before, their cell runs again as a whole.

What the tests enter also says what of a change nothing has tested. There the code is compared with the base's.
"""

from __future__ import annotations

import gzip
import threading
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.code.code_map import CodeChange, differences
from harness.build import toolchain
from harness.build.executed_blocks import code_of, compile_blocks
from harness.build.sources import tree_files
from harness.build.workshop import build_code
from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.finding import Verdict
from harness.core.strict_toml import OWN_FOLDERS
from harness.core.target_model import ORACLE
from harness.record.executed_blocks import cell_reach
from harness.record.run_folder import Unentered
from harness.run.cell_spec import ExecutionSpec
from harness.workflows.preparation.base_code import functions_of_files
from harness.workflows.preparation.reached_tests import (
    EVERY_TEST,
    CellSelection,
    KeptReach,
    added,
    entered,
    not_entered,
    select,
    settled,
    with_native,
)
from harness.workflows.target_setup import oracle_setup

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.analysis.code.code_map import CodeMap
    from harness.analysis.code.line_code import LineCode
    from harness.core.finding import Finding
    from harness.core.model import Cell, Suite
    from harness.judge.conclusion import KnownLists
    from harness.judge.findings import Judgement
    from harness.judge.known_findings import KnownFinding
    from harness.plan.request import Request
    from harness.record.executed_blocks.block_map import ProgramCode
    from harness.record.run_folder import RunRecord
    from harness.workflows.preparation.base_code import BaseCode
    from harness.workflows.preparation.edited_lines import EditedLines
    from harness.workflows.preparation.run_setup import PreparedRun, PreparedTarget
    from harness.workflows.workbench import Workbench

KIND = "reach"
"""Of entries of the cache: one for each cell of a run in which all of its tests ran."""
NAME = "cell.json.gz"
BASE = "BASE"
"""Stands for the base of the change where others are named by the run that kept them."""


class ReachSelection:
    """The tests of one run of a changed tree."""

    def __init__(
        self,
        bench: Workbench,
        request: Request,
        prepared: PreparedRun,
        base: BaseCode,
        edited: EditedLines,
        known: KnownLists,
        *,
        every_test: bool,
        folder: Path,
    ) -> None:
        """`folder` lasts as long as the cells run, and is for what they share. `every_test`: none is left out."""
        self._bench = bench
        self._request = request
        self._prepared = prepared
        self._base = base
        self._edited = edited
        self._known = known
        self._folder = folder
        self._guard = threading.Lock()
        self._code_files: dict[Path, Path] = {}
        """Program -> the file that tells where its code lies."""
        self._programs: dict[Path, ProgramCode] = {}
        self._lines: dict[Path, list[LineCode]] = {}
        oracle = prepared.peers[ORACLE].build if prepared.has_oracle else None
        self._maps: dict[Path, CodeMap | None] = {}
        self._native = self._map_in(oracle.folder) if oracle is not None else None
        self._noted = [cell for cell in request.plan.cells if self._is_noted(cell)]
        """The cells that note what their target's servers enter."""
        self._beside = [cell for cell in request.plan.cells if self._programs_beside(cell)]
        """The cells that note which edited lines the client and the benchmark execute."""
        cells = [cell for cell in self._noted if self._is_alone(cell)]
        self._codes = {cell: code for cell in cells if (code := self._map_in(self._program(cell).parent))}
        """The cells whose tests may be left out -> their programs' code."""
        self._keys = {cell: self._key(cell) for cell in self._codes}
        self._kept = {cell: one for cell in self._codes if (one := self._newest(cell)) is not None}
        self._native_changes: dict[str, CodeChange] = {}
        """Run of something kept, or BASE -> in what its native build differs from this one's."""
        self._changes = {cell: self._change(cell, one) for cell, one in self._kept.items()}
        # Without the plugin nobody would know whether the tests do what they did.
        able = not every_test and bool(self._kept) and self._plugin is not None
        self._selections = select(self._kept, self._changes) if able else {}

    def of(self, cell: Cell) -> CellSelection:
        """The tests of a cell."""
        return self._selections.get(cell, EVERY_TEST)

    @property
    def left_out(self) -> int:
        """How many tests do not run."""
        return sum(len(one.without) for one in self._selections.values())

    def execution(self, cell: Cell) -> ExecutionSpec | None:
        """What a cell needs to note what its tests execute; None where that cannot be noted.

        The target's canaries run as its other cells do.
        """
        if cell in self._beside:
            programs = dict.fromkeys(self._programs_beside(cell), cell.target)
            programs[self._server(cell.target)] = cell.target
        elif self._suite(cell).needs_server:
            if cell not in self._noted:
                return None
            programs = {self._program(cell): cell.target}
            if not self._is_alone(cell):
                # Its tests start servers of the run's other targets, too.
                others = [one for one in self._noted if one.suite == cell.suite]
                programs |= {self._program(one): one.target for one in others}
        elif any(one.target == cell.target for one in self._noted):
            programs = {self._prepared.targets[cell.target].setup.canary(): cell.target}
        else:
            return None
        if self._plugin is None:
            return None
        files = {str(program): self._code_file(program, target) for program, target in programs.items()}
        return ExecutionSpec(plugin=self._plugin, programs=files, kept="functions")

    def _code_file(self, program: Path, target: str) -> Path:
        """The file that tells where a program's code lies."""
        with self._guard:
            if program not in self._code_files:
                file = self._folder / f"code-{len(self._code_files)}"
                file.write_bytes(json_codec.encode(self._code_of(program, target)))
                self._code_files[program] = file
            return self._code_files[program]

    def unproven(self) -> list[Cell]:
        """The cells whose chosen tests passed again, but did not enter all that differs and that they had entered."""
        found = []
        for cell, one in self._selections.items():
            noted = cell_reach.read(self._folder_of(cell))
            if not one.without or noted is None:
                continue
            kept = self._kept[cell]
            # What fails now would be lost if the cell ran again, and is no PASS anyway.
            passed_again = noted.tests.keys() >= kept.reach.tests.keys() - set(one.without)
            if passed_again and not_entered(kept, self._changes[cell], self._functions_of(cell), noted):
                found.append(cell)
        return found

    def run_whole(self, cells: Iterable[Cell]) -> None:
        """Choose all tests of these cells."""
        self._selections |= dict.fromkeys(cells, EVERY_TEST)

    def unentered(self) -> dict[str, Unentered]:
        """`RunRecord.unentered`, after all cells have run. Builds the base, unless that is in the cache."""
        found = {}
        for target in self._request.plan.targets:
            change = self._of_base(target)
            if change is None:
                return {}
            own = self._lines_in(self._server(target))
            lines, whole = self._edited.with_code(own)
            there, unnoted = self._entered(target, change.functions)
            beside, executed = self._lines_beside(target)
            with_beside, whole_beside = self._edited.with_code([*own, *beside])
            with_beside -= lines
            found[target] = Unentered(
                functions=sorted(change.functions - there),
                of=len(change.functions),
                data_differ=bool(change.elsewhere),
                unnoted=unnoted,
                lines=[f"{file}:{line}" for file, line in self._edited.not_executed(lines, there)],
                of_lines=len(lines),
                whole=whole,
                beside=[f"{file}:{line}" for file, line in self._edited.not_executed(with_beside, executed)],
                of_beside=len(with_beside),
                whole_beside=whole_beside,
            )
        return found

    def _lines_beside(self, target: str) -> tuple[list[LineCode], set[str]]:
        """The edited lines' code in the programs beside the server, and the names of what those have executed. Nothing
        where their tests did not run, or were not noted.
        """
        for cell in (cell for cell in self._beside if cell.target == target and self._has_run(cell)):
            noted = cell_reach.read(self._folder_of(cell))
            if noted is not None and not noted.problem:
                programs = self._programs_beside(cell)
                return [line for program in programs for line in self._lines_in(program)], entered(noted)
        return [], set()

    def _of_base(self, target: str) -> CodeChange | None:
        """In what a target's server differs from the base's: functions that it has, and that the base lacks or has
        otherwise. None where nobody knows.
        """
        build, old = self._prepared.targets[target].build, self._base.code.targets.get(target)
        new = self._map_in(build.folder) if build is not None else None
        if build is None or old is None or new is None or old.recipe != new.recipe:
            return None
        functions = self._code_of(build.server_binary, target).function_names
        change = self._with_native(differences(old, new), BASE, self._base.code.native, functions)
        here = (change.functions | added(old, new)).intersection(functions)
        elsewhere = change.elsewhere or (["functions that are gone"] if change.functions and not here else [])
        return CodeChange(functions=here, elsewhere=elsewhere)

    def _entered(self, target: str, differing: frozenset[str]) -> tuple[set[str], list[str]]:
        """All functions of a target's servers that its tests have entered, now or when they ran before and were left
        out; and the suites that have run and of which that is not known. `differing`: what matters of it.
        """
        cells = [cell for cell in self._noted if cell.target == target and self._has_run(cell)]
        found: set[str] = set()
        unnoted = []
        for cell in cells:
            noted = cell_reach.read(self._folder_of(cell))
            if noted is None or noted.problem:
                unnoted.append(cell.suite)
                continue
            found |= entered(noted)
            if without := self.of(cell).without:
                before = self._kept[cell].as_expected
                found.update(*(before[name] for name in without))
        rest = [cell for cell in self._request.plan.cells if cell.target == target and cell not in self._noted]
        others = [cell.suite for cell in rest if self._has_run(cell)]
        return found, [*unnoted, *(name for name in others if not cells or self._covers(name, target, differing))]

    def _covers(self, suite: str, target: str, functions: frozenset[str]) -> bool:
        """Whether a suite tests files that have one of these functions. The release's own tests cover nothing that
        others do not.
        """
        build, about = self._prepared.targets[target].build, self._bench.catalog.suites[suite]
        code = self._map_in(build.folder) if build is not None else None
        globs = [*about.source_globs, *about.partial_globs]
        return not functions_of_files(code, self._prepared.tree.content, globs).isdisjoint(functions)

    def _code_of(self, program: Path, target: str) -> ProgramCode:
        if program not in self._programs:
            code = code_of(program, self._prepared.targets[target].target.emulator.qemu)
            self._programs[program] = self._edited.noted_in(code, self._lines_in(program))
        return self._programs[program]

    def _lines_in(self, program: Path) -> list[LineCode]:
        """The code that a program has of the edited lines. Reading debug information takes half a second."""
        if program not in self._lines:
            self._lines[program] = self._edited.code_in(program)
        return self._lines[program]

    def _functions_of(self, cell: Cell) -> list[str]:
        """All functions of the program that a cell's tests execute."""
        return self._code_of(self._program(cell), cell.target).function_names

    def _suite(self, cell: Cell) -> Suite:
        return self._bench.catalog.suites[cell.suite]

    def _has_run(self, cell: Cell) -> bool:
        """Whether servers of a cell may have entered something."""
        return self._suite(cell).needs_server and self._folder_of(cell).is_dir()

    def _folder_of(self, cell: Cell) -> Path:
        return self._request.run / cell.target / cell.suite

    def keep(self, judgement: Judgement, run: RunRecord) -> None:
        """Keep what the cells noted that were judged and have nothing new. Of tests with a finding, those are among it
        that failed of what is known.
        """
        judged = {(one.target, one.suite) for one in judgement.cells if one.verdict in {Verdict.PASS, Verdict.XFAIL}}
        audited = {(one.target, one.suite) for one in run.cells if one.audit}
        chance = [one for one in judgement.findings if not self._known.lasting(one)]
        for cell, code in self._codes.items():
            noted = cell_reach.read(self._folder_of(cell))
            if noted is None or noted.problem or not noted.tests or self.of(cell).without:
                continue
            if (cell.target, cell.suite) not in judged:
                continue
            reach, excused = settled(
                noted,
                _tests_of(judgement.findings, cell),
                _tests_of(chance, cell),
                audited=(cell.target, cell.suite) in audited,
            )
            kept = KeptReach(
                code=code,
                native=self._native if self._compares(cell) else None,
                reach=reach,
                functions=self._functions_of(cell),
                run=str(self._request.run),
                excused=excused,
            )
            content = gzip.compress(json_codec.encode(kept), 6, mtime=0)
            key = f"{self._keys[cell]}-{self._checkout}-{self._prepared.tree.digest[:16]}"
            self._bench.cache.folder(KIND, key, partial(_write, content))

    def _programs_beside(self, cell: Cell) -> list[Path]:
        """The client and the benchmark, where a cell's tests run them and can be noted. All others are the server by
        another name.
        """
        suite, target = self._suite(cell), self._prepared.targets[cell.target]
        if not suite.programs or suite.tls or target.programs is None or not self._can_note(target):
            return []
        family = self._prepared.tree.family
        found = [target.programs / f"{family}-{name}" for name in ("cli", "benchmark")]
        return [program for program in found if self._lines_in(program)]

    def _is_noted(self, cell: Cell) -> bool:
        """Whether the servers of a cell's target can be noted: they run under the project's emulator, and its tests
        start them.
        """
        suite, target = self._suite(cell), self._prepared.targets[cell.target]
        return (
            suite.needs_server
            and not (suite.upstream or suite.programs)
            and suite.program != "selftests"
            and self._can_note(target)
            and self._program_of(cell) is not None
        )

    def _can_note(self, target: PreparedTarget) -> bool:
        """Whether a target's programs run under the project's emulator, with nothing in the plugin's way."""
        return (
            target.machine is None
            and target.runner.reports_edges
            and not target.target.emulator.detector
            # What surrounds programs elsewhere, such as a filter of system calls, may be in its way.
            and self._request.environment == "usual"
        )

    def _is_alone(self, cell: Cell) -> bool:
        """Whether the servers of a cell's tests are all of its own target and program, and compared with known ones."""
        suite = self._suite(cell)
        alone = not (suite.tls or suite.tests_of or suite.multi_target_tier)
        return alone and (self._native is not None or not self._compares(cell))

    def _compares(self, cell: Cell) -> bool:
        """Whether a cell's tests compare servers with the native build. Its units are compared with models."""
        return not self._suite(cell).program

    def _change(self, cell: Cell, kept: KeptReach) -> CodeChange:
        """What differs from then in what a cell's tests depend on."""
        return self._with_native(differences(kept.code, self._codes[cell]), kept.run, kept.native, kept.functions)

    def _with_native(self, own: CodeChange, since: str, native: CodeMap | None, functions: Iterable[str]) -> CodeChange:
        """A target's change with that of the native build, if both times have one. `since`: a key of
        `_native_changes`, whose native build had the code `native`.
        """
        if native is None or self._native is None:
            return own
        if since not in self._native_changes:
            self._native_changes[since] = differences(native, self._native)
        return with_native(own, self._native_changes[since], functions)

    def _map_in(self, folder: Path) -> CodeMap | None:
        """The code of a build's objects, read once: it has megabytes, and many cells share a build."""
        if folder not in self._maps:
            self._maps[folder] = build_code.read(folder)
        return self._maps[folder]

    def _program_of(self, cell: Cell) -> Path | None:
        target = self._prepared.targets[cell.target]
        if target.build is None:
            return None
        suite = self._suite(cell)
        if suite.program:
            return target.units["units"].program
        if suite.tls:
            return target.with_tls.server_binary if target.with_tls is not None else None
        return target.build.server_binary

    def _server(self, target: str) -> Path:
        build = self._prepared.targets[target].build
        assert build is not None
        return build.server_binary

    def _program(self, cell: Cell) -> Path:
        program = self._program_of(cell)
        assert program is not None
        return program

    @cached_property
    def _plugin(self) -> Path | None:
        return compile_blocks(self._bench.cache, oracle_setup(self._bench).toolchain)

    def _newest(self, cell: Cell) -> KeptReach | None:
        """What the newest run kept of such a cell; one of the same checkout, if there is any."""
        folder, key = self._bench.cache.path(KIND, ""), self._keys[cell]
        own = [path for path in folder.glob(f"{key}-{self._checkout}-*") if path.is_dir()]
        found = own or [path for path in folder.glob(f"{key}-*") if path.is_dir()]
        for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[:1]:
            entry = self._bench.cache.entry(KIND, path.name)
            if entry is not None:
                return json_codec.decode(gzip.decompress((entry / NAME).read_bytes()), KeptReach)
        return None

    def _key(self, cell: Cell) -> str:
        return f"{cell.target}-{cell.suite}-{key_of(self._identity(cell))}"

    def _identity(self, cell: Cell) -> list[str]:
        """Everything that a test's outcome depends on, beside the server's code."""
        request, target, tree = self._request, self._prepared.targets[cell.target], self._prepared.tree
        units = target.units.get("units") if self._suite(cell).program else None
        return [
            *self._own_code,
            tree.family,
            repr((tree.version, tree.abilities, tree.development)),
            # Emulator, policy, environment, and what the catalog says of the target.
            json_codec.encode(target.runner).decode(),
            target.runner.emulator_digest,
            *(toolchain.identity(tools) for tools in (target.setup.toolchain, oracle_setup(self._bench).toolchain)),
            *map(str, (request.optimisation, request.allocator, request.io, request.seed, request.tier)),
            *request.settings.words,
            # What lines a test executes was noted of those alone that differ from the base.
            self._base.content,
            # What failed then and was known has to be known still.
            *(repr(_at(entry, cell.target)) for entry in self._known.in_force),
            *([repr((units.absent, units.broken))] if units is not None else []),
        ]

    @cached_property
    def _checkout(self) -> str:
        """The place of the tree, as a part of names of kept cells."""
        return key_of([self._request.server])[:8]

    @cached_property
    def _own_code(self) -> list[str]:
        return [tree_files.digest_of(folder) for folder in OWN_FOLDERS]


def _at(entry: KnownFinding, target: str) -> KnownFinding:
    """What a known list's entry says of a target's cells, whatever other targets a run has."""
    return msgspec.structs.replace(entry, targets=[name for name in entry.targets if name in {target, ORACLE}])


def _tests_of(findings: Iterable[Finding], cell: Cell) -> set[str]:
    """The tests of a cell that findings were seen in."""
    name = f"{cell.target}/{cell.suite}"
    witnesses = [each for one in findings for each in one.witnesses if name in each.cells]
    return {each.test for each in witnesses} | {occasion.test for each in witnesses for occasion in each.occasions}


def _write(content: bytes, into: Path) -> None:
    (into / NAME).write_bytes(content)
