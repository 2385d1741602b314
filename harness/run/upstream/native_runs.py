"""How each file of upstream's tests runs natively: the reference, which the cache keeps.

It shows which tests a file has, and which of them pass natively.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import key_of, sha256_of
from harness.run.upstream import results
from harness.run.upstream.continuation import run_to_end
from harness.run.upstream.file_run import MOST_PATIENCE, FileRunSettings, Pace
from harness.run.upstream.journal import FAILED
from harness.run.upstream.launches import read_launches
from harness.run.upstream.results import NativeRun
from harness.run.upstream.stage import NATIVE_HOME, OVERLAY

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from harness.run.cell_spec import CellSpec, UpstreamSpec
    from harness.run.server_process import Guest
    from harness.run.upstream.journal import UpstreamTest
    from harness.run.upstream.stage import Stages
    from harness.run.upstream.test_files import UpstreamFile

RECIPE = "7"
"""Part of every record's identity: raise it when this module, or what it calls, changes what a record says."""
STALL_SECONDS = 600.0
FILES_PER_PROCESSOR = 2
"""How many files run at a time: most of them wait for servers most of the time."""


class NativeRuns:
    """The native runs that a cell refers to."""

    def __init__(
        self,
        cell: CellSpec,
        stages: Stages,
        *,
        oracle: Callable[[], Guest] | None,
        private: bool,
        say: Callable[[str], None],
        cancelled: threading.Event,
    ) -> None:
        """`oracle` returns the server that the tests use if they do not start their own."""
        assert cell.upstream is not None
        self._cell = cell
        self._spec: UpstreamSpec = cell.upstream
        self._stages = stages
        self._oracle = oracle
        self._private = private
        self._say = say
        self._cache = Cache(self._spec.cache)
        self._known: dict[str, NativeRun] = {}
        self._cancelled = cancelled

    def of(self, files: Iterable[UpstreamFile]) -> list[NativeRun]:
        """The records of files; those that the cache lacks are made, several at a time."""
        workers = 1 if self._oracle is not None else FILES_PER_PROCESSOR * (os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(self.of_file, files))

    def of_file(self, file: UpstreamFile, *, again_with: int | None = None) -> NativeRun:
        """The record of one file. `again_with`: that of a further run, with this seed for its random numbers."""
        name = file.name if again_with is None else f"{file.name}, again"
        if name not in self._known:
            parts = [RECIPE, self._spec.native_key, sha256_of(OVERLAY), sha256_of(self._spec.launcher), file.name]
            parts += ["external"] if self._oracle is not None else []
            # A test that failed for lack of time may pass with more patience.
            multiplier = self._cell.runner.target.timeout_multiplier
            parts += [f"timeouts times {multiplier:g}"] if multiplier != 1 else []
            parts += [f"again with {again_with}"] if again_with is not None else []
            key = key_of(parts)
            try:
                folder = self._cache.folder(
                    "upstream-native", key, lambda into: self._keep(file, into, seed=again_with or 0)
                )
                record = json_codec.decode((folder / "run.json").read_bytes(), NativeRun)
            except _NotKeptError as error:
                record = error.record
            self._known[name] = record
        return self._known[name]

    def _keep(self, file: UpstreamFile, into: Path, *, seed: int) -> None:
        """Run a file for the cache, which keeps only the record of a file that ran to its end without a failure.

        On a busy host, tests fail for lack of time, with messages that cannot be recognised. If such a record were
        kept, the target would be excused from these tests permanently.
        """
        record = self._run(file, into / "log", first_seed=seed)
        if not record.done or record.outside or results.has_failures(record.tests):
            raise _NotKeptError(record)
        (into / "run.json").write_bytes(json_codec.pretty(record))

    def _run(self, file: UpstreamFile, log: Path, *, first_seed: int) -> NativeRun:
        """Run a file, again and with more patience while anything fails; a test that passed once passes."""
        self._say(f"{file.name} natively")
        merged: dict[str, UpstreamTest] = {}
        failures: dict[str, list[str]] = {}
        outside: list[str] = []
        seconds, done, clean, started, code = 0.0, False, False, 0, 0
        target = self._cell.peers["native"].runner.target
        stall_seconds = target.host_deadline_seconds(STALL_SECONDS)
        pace = Pace(
            patience=target.host_deadline_seconds(1.0), stall_seconds=stall_seconds, silent_seconds=stall_seconds
        )
        settings = FileRunSettings(
            target=target,
            pace=pace,
            homes=[],
            server=self._oracle().access.endpoint if self._oracle is not None else None,
            private=self._private,
        )
        with self._stages.native() as stage:
            for number in range(results.TRIES):
                # What differs from run to run shows what a test's words owe to chance.
                settings = msgspec.structs.replace(settings, seed=first_seed + number)
                run = run_to_end(stage, file, settings, log=log, cancelled=self._cancelled)
                seconds, done, code = seconds or run.seconds, done or run.journal.done, run.code or 0
                clean = clean or (run.journal.done and not run.journal.outside)
                outside += run.journal.outside
                started = max(started, len(read_launches(stage.folder / NATIVE_HOME)))
                for item in results.items_of(run.journal.tests):
                    kept = merged.get(item.label)
                    if item.native is not None and (kept is None or kept.reported != "ok"):
                        merged[item.label] = item.native
                    if item.native is not None and item.native.reported in FAILED:
                        failures.setdefault(item.label, []).append(item.native.message)
                if clean and not results.has_failures(merged.values()):
                    break
                # On a busy machine, a state may be reached later than upstream's own loops wait for it.
                patient = msgspec.structs.replace(pace, patience=target.host_deadline_seconds(MOST_PATIENCE))
                settings = msgspec.structs.replace(settings, pace=patient)
        tests = [_plain(test) for test in merged.values()]
        return NativeRun(
            tests=tests,
            seconds=seconds,
            done=done,
            started=started,
            failures=failures,
            outside=[] if clean else outside,
            code=code,
        )


class _NotKeptError(Exception):
    """A file did not run to its end natively, or something failed in or outside of its tests."""

    def __init__(self, record: NativeRun) -> None:
        super().__init__()
        self.record = record


def _plain(test: UpstreamTest) -> UpstreamTest:
    """A test without the data that are specific to the processes of its run."""
    plain = msgspec.structs.replace(test, servers=(), announced=(), logs_before={}, logs_after={}, trace="")
    return msgspec.structs.replace(plain, began_ms=0, ended_ms=0)
