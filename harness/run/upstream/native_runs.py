"""How each file of upstream's tests runs on this machine: the reference, which the cache keeps.

It tells which tests a file has, and which of them pass here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import key_of, sha256_of
from harness.run.upstream import results
from harness.run.upstream.file_run import FileRunSettings, Pace, run_file
from harness.run.upstream.journal import FAILED
from harness.run.upstream.launches import read_launches
from harness.run.upstream.results import NativeRun
from harness.run.upstream.stage import OVERLAY, variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.run.cell_spec import CellSpec, UpstreamSpec
    from harness.run.server_process import Guest
    from harness.run.upstream.journal import UpstreamTest
    from harness.run.upstream.stage import Stages
    from harness.run.upstream.test_files import UpstreamFile

RECIPE = "4"
"""Part of every record's identity: raise it when this module, or what it calls, changes what a record says."""
STALL_SECONDS = 600.0
FILES_PER_PROCESSOR = 2
"""How many files run at a time: most of them wait for servers most of the time."""


class NativeRuns:
    """The runs on this machine that a cell refers to."""

    def __init__(
        self,
        cell: CellSpec,
        stages: Stages,
        *,
        oracle: Callable[[], Guest] | None,
        private: bool,
        say: Callable[[str], None],
    ) -> None:
        """`oracle`: gives the server that the tests use, where they start none of their own."""
        assert cell.upstream is not None
        self._cell = cell
        self._spec: UpstreamSpec = cell.upstream
        self._stages = stages
        self._oracle = oracle
        self._private = private
        self._say = say
        self._cache = Cache(self._spec.cache)
        self._known: dict[str, NativeRun] = {}
        self.cancelled = threading.Event()

    def of(self, files: Iterable[UpstreamFile]) -> list[NativeRun]:
        """The records of files; those that the cache lacks are made, several at a time."""
        workers = 1 if self._oracle is not None else FILES_PER_PROCESSOR * (os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(self.of_file, files))

    def of_file(self, file: UpstreamFile) -> NativeRun:
        """The record of one file."""
        if file.name not in self._known:
            parts = [RECIPE, self._spec.native_key, sha256_of(OVERLAY), sha256_of(self._spec.launcher), file.name]
            parts += ["external"] if self._oracle is not None else []
            folder = self._cache.folder("upstream-native", key_of(parts), lambda into: self._run(file, into))
            self._known[file.name] = json_codec.decode((folder / "run.json").read_bytes(), NativeRun)
        return self._known[file.name]

    def _run(self, file: UpstreamFile, into: Path) -> None:
        """Run a file, again while a test fails; a test that passed once passes."""
        self._say(f"{file.name} on this machine")
        runner = self._cell.peers["native"].runner
        home = Path(tempfile.mkdtemp(dir=self._cell.sockets))
        stage = self._stages.new(self._spec.native)
        merged: dict[str, UpstreamTest] = {}
        seconds, done, started = 0.0, False, 0
        try:
            here = variant(runner, self._spec.native, home)
            stage.prepare([here], here)
            for _ in range(results.TRIES):
                settings = FileRunSettings(
                    target=runner.target,
                    pace=Pace(patience=1.0, stall_seconds=STALL_SECONDS),
                    homes=[],
                    server=self._oracle().endpoint if self._oracle is not None else None,
                    private=self._private,
                )
                run = run_file(stage, file, settings, log=into / "log", cancelled=self.cancelled)
                seconds, done = seconds or run.seconds, done or run.journal.done
                started = len(read_launches(home))
                for item in results.items_of(run.journal.tests):
                    kept = merged.get(item.label)
                    if item.native is not None and (kept is None or kept.reported != "ok"):
                        merged[item.label] = item.native
                if done and not any(test.reported in {*FAILED, ""} for test in merged.values()):
                    break
        finally:
            stage.remove()
            shutil.rmtree(home, ignore_errors=True)
        record = NativeRun(
            tests=[_plain(test) for test in merged.values()], seconds=seconds, done=done, started=started
        )
        (into / "run.json").write_bytes(json_codec.pretty(record))


def _plain(test: UpstreamTest) -> UpstreamTest:
    """A test without what concerns only the processes of that run."""
    return msgspec.structs.replace(test, servers=(), announced=(), logs_before={}, logs_after={}, trace="")
