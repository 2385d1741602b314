"""Runs of failed tests on the native build that several cells share: it does not depend on the target.

Most tests that fail on several targets fail there in the same way. On six targets each would be asked six times.
"""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harness.record.run_record import HostRun
    from harness.run.cell_spec import CellSpec


class _HostAnswers(msgspec.Struct, frozen=True):
    spec: CellSpec
    """What ran, without its folders; without its tests, too, if their order does not matter."""
    tests: frozenset[str]
    folders: list[Path]
    runs: list[HostRun]


class SharedHostRuns:
    """What the cells of a run have asked the native build."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._asked: list[_HostAnswers] = []

    def runs(self, spec: CellSpec, folder_of: Callable[[int], Path], ask: Callable[[], list[HostRun]]) -> list[HostRun]:
        """The runs of another cell that has asked for all of a specification's tests, with a copy of their evidence;
        otherwise what `ask` runs. One cell of a suite asks at a time: the next may need no runs of its own.
        """
        bare = _bare(msgspec.structs.replace(spec, exactly=None))
        return self._answered(bare, frozenset(spec.exactly or ()), folder_of, ask)

    def preceded_runs(
        self,
        spec: CellSpec,
        failed: Collection[str],
        folder_of: Callable[[int], Path],
        ask: Callable[[], list[HostRun]],
    ) -> list[HostRun]:
        """The same for failed tests behind those that precede them, which are part of what was asked."""
        return self._answered(_bare(spec), frozenset(failed), folder_of, ask)

    def _answered(
        self,
        bare: CellSpec,
        tests: frozenset[str],
        folder_of: Callable[[int], Path],
        ask: Callable[[], list[HostRun]],
    ) -> list[HostRun]:
        with self._locks[bare.suite]:
            for answers in self._asked:
                if answers.spec == bare and answers.tests >= tests:
                    for number, folder in enumerate(answers.folders, 1):
                        shutil.copytree(folder, folder_of(number), symlinks=True)
                    return answers.runs
            runs = ask()
            if runs and not any(one.problem for one in runs):
                folders = [folder_of(number) for number in range(1, len(runs) + 1)]
                self._asked.append(_HostAnswers(spec=bare, tests=tests, folders=folders, runs=runs))
            return runs


def _bare(spec: CellSpec) -> CellSpec:
    nowhere = Path()
    return msgspec.structs.replace(spec, without=[], folder=nowhere, shared=nowhere)
