"""Runs of failed tests on the native build that several cells share: it does not depend on the target.

Most tests that fail on several targets fail there in the same way. On six targets each would be asked six times.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.record.run_record import HostRun
    from harness.run.cell_spec import CellSpec


class _HostAnswers(msgspec.Struct, frozen=True):
    spec: CellSpec
    """What ran, without its tests and its folders."""
    tests: frozenset[str]
    folders: list[Path]
    runs: list[HostRun]


class SharedHostRuns:
    """What the cells of a run have asked the native build."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._asked: list[_HostAnswers] = []

    @contextlib.contextmanager
    def of_suite(self, suite: str) -> Iterator[None]:
        """Let one cell of a suite ask at a time: the next may need no runs of its own."""
        with self._locks[suite]:
            yield

    def copied(self, spec: CellSpec, folder_of: Callable[[int], Path]) -> list[HostRun]:
        """The runs of another cell that has asked for all of a specification's tests, with a copy of their evidence;
        nothing if there is none.
        """
        bare = _bare(spec)
        for answers in self._asked:
            if answers.spec == bare and answers.tests.issuperset(spec.exactly or ()):
                for number, folder in enumerate(answers.folders, 1):
                    shutil.copytree(folder, folder_of(number), symlinks=True)
                return answers.runs
        return []

    def keep(self, spec: CellSpec, folder_of: Callable[[int], Path], runs: Sequence[HostRun]) -> None:
        """Keep a cell's runs for other cells, if each has a result."""
        if runs and not any(one.problem for one in runs):
            folders = [folder_of(number) for number in range(1, len(runs) + 1)]
            tests = frozenset(spec.exactly or ())
            self._asked.append(_HostAnswers(spec=_bare(spec), tests=tests, folders=folders, runs=list(runs)))


def _bare(spec: CellSpec) -> CellSpec:
    nowhere = Path()
    return msgspec.structs.replace(spec, exactly=None, without=[], folder=nowhere, shared=nowhere)
