"""Runs upstream's tests for one cell: on this machine first, then on the target, and leaves the evidence.

How a file runs on this machine is kept in the cache, because it says which tests there are and which of them pass here.
A file runs on the target when the first of its tests is asked for. If a test fails that passes here, the file runs up
to three times: a test must fail twice.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import key_of, sha256_of
from harness.core.model import Record
from harness.record import run_folder
from harness.run.upstream import results
from harness.run.upstream.evidence import UpstreamEvidence
from harness.run.upstream.file_run import FileRun, Pace, run_file
from harness.run.upstream.journal import FAILED, UpstreamTest
from harness.run.upstream.launches import read_launches
from harness.run.upstream.results import NativeRun
from harness.run.upstream.stage import OVERLAY, Stage, variant
from harness.run.upstream.test_files import SEPARATOR, external_files, line_of, selected, upstream_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.record.event_log import EventLog
    from harness.run.cell_spec import CellSpec, UpstreamSpec
    from harness.run.server_process import Guest
    from harness.run.upstream.results import Item, UpstreamVerdict
    from harness.run.upstream.test_files import UpstreamFile

RECIPE = "2"
STALL_SECONDS = 60.0
SLOWEST_TIMES = 3
"""A file may stand still this many times longer than its slowest test takes here, times the target's slowdown."""
MOST_PATIENCE = 10.0
MIXED_FOLDERS = ("cluster/", "sentinel/", "integration/replication", "integration/psync2", "integration/failover")
"""Files whose servers talk to each other."""


class UpstreamFailedError(AssertionError):
    """A test of upstream's failed, or left no result; the message says it all."""


class UpstreamResult(Record, frozen=True):
    """What became of one of upstream's tests."""

    file: str
    """Its path in the tree."""
    label: str
    line: int
    """Its line there; 0 for a test whose name is put together at run time, and for the file itself."""
    native: UpstreamTest | None
    verdict: results.UpstreamVerdict
    event: run_folder.TestEvent
    """The evidence, without outcome and message."""
    log: str
    """The end of what the server of a failed test logged."""

    @property
    def place(self) -> str:
        """The test's file and, if known, its line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def event_with(self, outcome: run_folder.Outcome, message: str) -> run_folder.TestEvent:
        """The event of the test as the suite judged it. A test without a result says nothing about the server."""
        lost = outcome == "failed" and self.verdict.outcome == "missing" and not self.event.blocked_by
        doubt = message if lost else ""
        return msgspec.structs.replace(self.event, outcome=outcome, message=message, doubt=doubt)


class UpstreamSession:
    """The runs of upstream's tests in one cell."""

    def __init__(
        self,
        cell: CellSpec,
        log: EventLog,
        *,
        guest: Callable[[], Guest],
        oracle: Callable[[], Guest],
        private_network: bool,
    ) -> None:
        """`guest` and `oracle` give the cell's own servers, which tests on a real kernel share."""
        self._private = private_network
        assert cell.upstream is not None
        self._guest = guest
        self._oracle = oracle
        self._external = cell.machine is not None
        """Whether tests run against a server of ours: a real kernel's programs are no processes of this machine."""
        self._cell = cell
        self._spec: UpstreamSpec = cell.upstream
        self._log = log
        self._cache = Cache(self._spec.cache)
        self._natives: dict[str, NativeRun] = {}
        self._results: dict[str, dict[str, UpstreamResult]] = {}
        self._stages: dict[bool, Stage] = {}
        self._home = Path(tempfile.mkdtemp(prefix="u-", dir=cell.sockets))
        self.names: dict[str, str] = {}
        """Item -> the name of its test in the events."""

    @cached_property
    def files(self) -> dict[str, UpstreamFile]:
        """Every test file of the release. Raises UsageError for a tree without tests, and for an old Tcl."""
        listed = external_files if self._external else upstream_files
        return {file.name: file for file in listed(self._spec.source)}

    def items(self, wanted: Sequence[str]) -> list[str]:
        """`FILE::TEST` for every test of the files that a selection may mean; all files if it names none."""
        return [
            f"{file.name}{SEPARATOR}{item.label}"
            for file in selected(self.files.values(), wanted)
            for item in results.items_of(self._native(file.name).tests)
        ]

    def result(self, name: str, may_fail: Callable[[str], bool]) -> UpstreamResult:
        """What became of a test. Runs its whole file if that has not run yet, and not again for tests that may fail."""
        file, _, label = name.partition(SEPARATOR)
        if file not in self._results:
            self._results[file] = self._run(self.files[file], may_fail)
        return self._results[file][label]

    def close(self) -> None:
        """Remove the copies of the tree."""
        for stage in self._stages.values():
            stage.remove()
        shutil.rmtree(self._home, ignore_errors=True)

    def _native(self, name: str) -> NativeRun:
        """How a file runs on this machine."""
        if name not in self._natives:
            parts = [RECIPE, self._spec.native_key, sha256_of(OVERLAY), sha256_of(self._spec.launcher), name]
            parts += ["external"] * self._external
            folder = self._cache.folder(
                "upstream-native", key_of(parts), lambda into: self._run_natively(self.files[name], into)
            )
            self._natives[name] = json_codec.decode((folder / "run.json").read_bytes(), NativeRun)
        return self._natives[name]

    def _run_natively(self, file: UpstreamFile, into: Path) -> None:
        """Run a file on this machine, again while a test fails; a test that passed once passes."""
        self._progress(f"{file.name} on this machine")
        native = self._cell.peers["native"]
        homes = Path(tempfile.mkdtemp(dir=self._cell.sockets))
        stage = self._new_stage(self._spec.native)
        merged: dict[str, UpstreamTest] = {}
        seconds, done, started = 0.0, False, 0
        try:
            here = variant(native.runner, self._spec.native, homes)
            stage.prepare([here], here)
            for _ in range(results.TRIES):
                run = run_file(
                    stage,
                    file,
                    log=into / "log",
                    homes=[],
                    target=native.runner.target,
                    seed=0,
                    pace=Pace(patience=1.0, stall_seconds=10 * STALL_SECONDS),
                    server=self._oracle().endpoint if self._external else None,
                    private=self._private,
                )
                seconds, done = seconds or run.seconds, run.journal.done
                started = len(read_launches(homes))
                for item in results.items_of(run.journal.tests):
                    kept = merged.get(item.label)
                    if item.native is not None and (kept is None or kept.reported != "ok"):
                        merged[item.label] = item.native
                if not any(test.reported in {*FAILED, ""} for test in merged.values()) and merged:
                    break
        finally:
            stage.remove()
            shutil.rmtree(homes, ignore_errors=True)
        record = NativeRun(
            tests=[_plain(test) for test in merged.values()], seconds=seconds, done=done, started=started
        )
        (into / "run.json").write_bytes(json_codec.pretty(record))

    def _run(self, file: UpstreamFile, may_fail: Callable[[str], bool]) -> dict[str, UpstreamResult]:
        """Run a file on the target, and turn what happened into evidence."""
        native = self._native(file.name)
        items = results.items_of(native.tests)
        mixed = bool(self._spec.mixed) and file.name.startswith(MIXED_FOLDERS)
        evidence = UpstreamEvidence(self._cell, self._log, homes=self._homes(), names=self.names)
        shared = self._guest() if self._external else None
        runs: list[FileRun] = []
        while len(runs) < results.TRIES:
            self._progress(f"{file.name}, {len(native.tests)} tests" + (f", run {len(runs) + 1}" if runs else ""))
            run = run_file(
                self._stage(mixed=mixed),
                file,
                log=self._cell.folder / "files" / f"{file.name.replace('/', '-')}.log",
                homes=self._homes(),
                target=self._cell.runner.target,
                seed=self._cell.seed % (1 << 30),
                pace=self._pace(native),
                server=self._guest().endpoint if self._external else None,
                private=self._private,
            )
            runs.append(run)
            evidence.collect(run, self._labels(file, items, run))
            failing = (f"{file.name}{SEPARATOR}{label}" for label in results.failing(items, run))
            # A server that died says why the tests after it failed: no second run is needed for that.
            if evidence.died or (shared is not None and not shared.alive()) or all(may_fail(test) for test in failing):
                break
        pairs = [results.matched(items, run.journal.tests) for run in runs]
        text = (self._spec.source / file.path).read_text("utf-8", "replace")
        found = {}
        for item in items:
            verdict = self._verdict(native, item, runs, pairs, started=evidence.started + self._external)
            found[item.label] = UpstreamResult(
                file=file.path,
                label=item.label,
                line=line_of(text, item.native.name) if item.native is not None else 0,
                native=item.native,
                verdict=verdict,
                event=evidence.event_of(f"{file.name}{SEPARATOR}{item.label}", verdict, shared),
                log=evidence.log_excerpt(verdict),
            )
        return found

    def _labels(self, file: UpstreamFile, items: list[Item], run: FileRun) -> dict[int, str]:
        """Place of a test in a run's journal -> its item; a test that this machine's run did not have: the file's."""
        found, _ = results.matched(items, run.journal.tests)
        labels = {id(test): label for label, test in found.items()}
        return {
            place: f"{file.name}{SEPARATOR}{labels.get(id(test), results.WHOLE)}"
            for place, test in enumerate(run.journal.tests)
        }

    def _verdict(
        self,
        native: NativeRun,
        item: Item,
        runs: list[FileRun],
        pairs: list[tuple[dict[str, UpstreamTest], list[UpstreamTest]]],
        *,
        started: int,
    ) -> UpstreamVerdict:
        if item.native is None:
            return results.verdict_of_file(native, runs, [others for _, others in pairs], started=started)
        return results.verdict_of(item, runs, [found for found, _ in pairs])

    def _homes(self) -> list[Path]:
        peers = [self._cell.folder / run_folder.PEERS / name for name in self._spec.mixed]
        return [self._cell.folder, *peers]

    def _stage(self, *, mixed: bool) -> Stage:
        """The copy of the tree for files whose servers are all of the cell's target, or of several by turns."""
        if mixed not in self._stages:
            own = variant(self._cell.runner, self._spec.programs, self._cell.folder)
            native = variant(self._cell.peers["native"].runner, self._spec.native, self._cell.folder)
            servers = [own]
            for name, programs in self._spec.mixed.items() if mixed else ():
                home = self._cell.folder / run_folder.PEERS / name
                home.mkdir(parents=True, exist_ok=True)
                servers.append(variant(self._cell.peers[name].runner, programs, home))
            stage = self._new_stage(self._spec.programs)
            clients = own if self._spec.target_clients else msgspec.structs.replace(native, home=self._cell.folder)
            stage.prepare(servers, clients)
            self._stages[mixed] = stage
        return self._stages[mixed]

    def _new_stage(self, programs: Path) -> Stage:
        folder = Path(tempfile.mkdtemp(prefix="u-", dir=self._cell.sockets)) / "t"
        counter = self._home / "number"
        return Stage(folder, self._spec.source, self._spec.launcher, programs, counter=counter)

    def _pace(self, native: NativeRun) -> Pace:
        slowdown = self._cell.runner.target.slowdown
        slowest = max((test.seconds for test in native.tests), default=0.0)
        return Pace(
            patience=min(max(slowdown / 3, 1.0), MOST_PATIENCE),
            stall_seconds=max(STALL_SECONDS * slowdown / 3, STALL_SECONDS) + SLOWEST_TIMES * slowdown * slowest,
        )

    def _progress(self, text: str) -> None:
        (self._cell.folder / run_folder.PROGRESS).write_text(f"{text}\n", "utf-8")


def _plain(test: UpstreamTest) -> UpstreamTest:
    """A test without what concerns only the processes of that run."""
    return msgspec.structs.replace(test, servers=(), announced=(), logs_before={}, logs_after={}, trace="")
