"""Runs upstream's tests for one cell, and leaves the evidence.

Files run on the target from the first test that is asked for, several at a time, in their order: most of them wait for
servers most of the time. If a test fails otherwise than natively, its file runs up to three times, until the test has
failed twice.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core.model import Record
from harness.core.wanted_tests import SEPARATOR
from harness.record import cell_events, run_folder
from harness.run.upstream import results
from harness.run.upstream.continuation import run_to_end
from harness.run.upstream.evidence import UpstreamEvidence
from harness.run.upstream.file_run import MOST_PATIENCE, FileRun, FileRunSettings, Pace
from harness.run.upstream.machine_conditions import condition_on_machine
from harness.run.upstream.native_runs import NativeRuns
from harness.run.upstream.stage import Stages
from harness.run.upstream.test_files import external_files, line_of, upstream_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from harness.record.event_log import EventLog
    from harness.run.cell_spec import CellSpec, UpstreamSpec
    from harness.run.server_process import Guest
    from harness.run.upstream.results import Item, NativeRun
    from harness.run.upstream.test_files import UpstreamFile

STALL_SECONDS, SILENT_SECONDS = 60.0, 10.0
SLOWEST_TIMES = 3
"""A file may make no progress for this many times as long as its slowest test takes natively, times the target's
slowdown.
"""
LONG_SECONDS = 15.0
"""A file that takes longer natively runs in the tier `thorough`, or when it is named."""
MIXED_FOLDERS = ("cluster/", "sentinel/", "integration/replication", "integration/psync2", "integration/failover")
"""Files whose servers talk to each other."""


class UpstreamFailedError(AssertionError):
    """One of upstream's tests failed, or left no result. The message is complete."""


class UpstreamResult(Record, frozen=True):
    """The result of one of upstream's tests."""

    file: str
    """Its path in the tree."""
    label: str
    line: int
    """Its line there; 0 for a test whose name is put together at run time, and for the file itself."""
    verdict: results.UpstreamVerdict
    event: cell_events.TestEvent
    """The evidence, without outcome and message."""
    log: str
    """The end of the log of a failed test's server."""

    @property
    def place(self) -> str:
        """The test's file and, if known, its line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def event_with(self, outcome: cell_events.Outcome, message: str) -> cell_events.TestEvent:
        """The event of the test as the suite judged it.

        A test without a result says nothing about the server, and nor does one that fails in one run alone, or that
        has no result natively. What fails natively in the same words is on every machine.
        """
        native = outcome == "failed" and self.verdict.fails_natively
        unanswered = self.verdict.outcome in {"missing", "undecided", "unsteady"} and not native
        lost = outcome == "failed" and unanswered and not self.event.blocked_by
        doubt = message if lost else ""
        return msgspec.structs.replace(self.event, outcome=outcome, message=message, doubt=doubt, fails_natively=native)


class _FileResults(Record, frozen=True):
    """The results of a file, and the ends of its servers."""

    by_label: dict[str, UpstreamResult]
    ended: list[cell_events.GuestEvent]


class _FileTests(NamedTuple):
    """The tests of a file that run, according to its native run."""

    file: UpstreamFile
    native: NativeRun
    items: list[Item]
    running: list[Item]
    """The items without excluded tests."""
    left_out: tuple[str, ...]
    """Globs of the names of tests that do not run."""


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
        """`guest` and `oracle` return the cell's own servers, which tests on another machine share."""
        assert cell.upstream is not None
        self._cell = cell
        self._spec: UpstreamSpec = cell.upstream
        self._log = log
        self._guest = guest
        self._private = private_network
        self._external = cell.runner.target.emulator.is_elsewhere
        """Whether tests run against a server that Plumbline starts: the programs of another machine are not processes
        of the host.
        """
        self._stages = Stages(cell)
        self._cancelled = threading.Event()
        self._natives = NativeRuns(
            cell,
            self._stages,
            oracle=oracle if self._external else None,
            private=private_network,
            say=self._progress,
            cancelled=self._cancelled,
        )
        self._pool = ThreadPoolExecutor(1 if self._external else os.cpu_count() or 1)
        self._futures: dict[str, Future[_FileResults]] = {}
        self._results: dict[str, dict[str, UpstreamResult]] = {}
        self.names: dict[str, str] = {}
        """Item -> the name of its test in the events, of every test that will run, in order."""

    @functools.cached_property
    def files(self) -> dict[str, UpstreamFile]:
        """Every test file of the release. Raises UsageError for a tree without tests, and for an old Tcl."""
        listed = external_files if self._external else upstream_files
        return {file.name: file for file in listed(self._spec.source)}

    def items(self, wanted: Sequence[str]) -> list[str]:
        """`FILE::TEST` for every test of the cell's files.

        Without a selection, the tiers below `thorough` leave out long files: only the item of the file itself remains.
        """
        files = [self.files[name] for name in self._spec.files if name in self.files]
        found = []
        for file, native in zip(files, self._natives.of(files), strict=True):
            items = results.items_of(native.tests, native.failures)
            if not wanted and self._cell.tier != "thorough" and native.seconds > LONG_SECONDS:
                self._results[file.name] = {results.WHOLE: self._left_out(file, native)}
                items = [item for item in items if item.native is None]
            found += [f"{file.name}{SEPARATOR}{item.label}" for item in items]
        return found

    def _left_out(self, file: UpstreamFile, native: NativeRun) -> UpstreamResult:
        why = f"its {len(native.tests)} tests take {native.seconds:.0f} s natively: --tier thorough"
        name = f"{file.name}{SEPARATOR}{results.WHOLE}"
        event = cell_events.TestEvent(name=name, outcome="skipped", seconds=0.0, upstream=name)
        verdict = results.UpstreamVerdict(outcome="skipped", message=why)
        return UpstreamResult(file=file.path, label=results.WHOLE, line=0, verdict=verdict, event=event, log="")

    def result(self, name: str, may_fail: Callable[[str], bool]) -> UpstreamResult:
        """The result of a test. The first call starts the runs of every file. A file does not run again for tests that
        may fail.
        """
        file, _, label = name.partition(SEPARATOR)
        if file not in self._results:
            done = self._run(self.files[file], may_fail) if self._external else self._future(file, may_fail).result()
            for event in done.ended:
                self._log.append(event)
            self._results[file] = done.by_label
        return self._results[file][label]

    def _future(self, file: str, may_fail: Callable[[str], bool]) -> Future[_FileResults]:
        if not self._futures:
            wanted = dict.fromkeys([*(item.partition(SEPARATOR)[0] for item in self.names), file])
            for name in (each for each in wanted if each not in self._results):
                self._futures[name] = self._pool.submit(self._run, self.files[name], may_fail)
        return self._futures[file]

    def close(self) -> None:
        """End what runs, and remove the copies of the tree."""
        self._cancelled.set()
        self._pool.shutdown(cancel_futures=True)
        self._stages.close()

    def _run(self, file: UpstreamFile, may_fail: Callable[[str], bool]) -> _FileResults:
        """Run a file on the target, and turn what happened into evidence."""
        tests = self._tests_of(file)
        number = len(tests.native.tests)
        mixed = bool(self._spec.mixed) and file.name.startswith(MIXED_FOLDERS)
        shared = self._guest() if self._external else None
        runs: list[FileRun] = []
        failures: Counter[str] = Counter()
        with self._stages.of_target(mixed=mixed) as stage:
            evidence = UpstreamEvidence(self._cell, homes=self._stages.homes, names=self.names, started_in=stage.folder)
            while len(runs) < results.TRIES and not self._cancelled.is_set():
                self._progress(f"{file.name}, {number} tests" + (f", run {len(runs) + 1}" if runs else ""))
                log = self._cell.folder / "files" / f"{file.name.replace('/', '-')}.log"

                def keep(part: FileRun, number: int = len(runs)) -> None:
                    evidence.collect(part, _labels(file, tests.running, part), number=number)

                settings = self._settings(tests)
                run = run_to_end(stage, file, settings, log=log, cancelled=self._cancelled, each=keep)
                runs.append(run)
                failures.update(results.failing(tests.running, run, code_here=tests.native.code))
                once = (label for label, number in failures.items() if number < results.NEEDED)
                died = evidence.died or (shared is not None and not shared.alive())
                # A server that died explains why the tests after it failed, so no second run is needed.
                if died or all(may_fail(f"{file.name}{SEPARATOR}{label}") for label in once):
                    break
        return _FileResults(by_label=self._judged(tests, runs, evidence, shared) if runs else {}, ended=evidence.ended)

    def _judged(
        self, tests: _FileTests, runs: list[FileRun], evidence: UpstreamEvidence, shared: Guest | None
    ) -> dict[str, UpstreamResult]:
        file = tests.file
        pairs = [results.matched(tests.running, run.journal.tests) for run in runs]
        text = (self._spec.source / file.path).read_text("utf-8", "replace")
        started = evidence.started + self._external
        found = {}
        for item in tests.items:
            if item not in tests.running:
                verdict = results.LEFT_OUT
            elif item.native is None:
                verdict = results.verdict_of_file(tests.native, runs, [others for _, others in pairs], started=started)
            else:
                why_left_out = functools.partial(self._why_left_out, tests, item, text)
                verdict = results.verdict_of(item, runs, [each for each, _ in pairs], why_left_out)
            found[item.label] = UpstreamResult(
                file=file.path,
                label=item.label,
                line=line_of(text, item.native.name) if item.native is not None else 0,
                verdict=verdict,
                event=evidence.event_of(f"{file.name}{SEPARATOR}{item.label}", verdict, shared),
                log=evidence.log_excerpt(verdict),
            )
        return found

    def _why_left_out(self, tests: _FileTests, item: Item, text: str, began: bool) -> str:
        """Why the target may leave out a test that runs natively; empty if nothing explains that.

        `text`: the test's file. `began`: whether the test began there.
        """
        assert item.native is not None
        native = self._cell.peers["native"].runner.target
        condition = condition_on_machine(text, item.native.name, self._cell.runner.target, native, began=began)
        if condition:
            return f"its file makes that depend on the machine: if {{{condition}}}"
        again = self._natives.of_file(tests.file, again_with=self._seed)
        by_chance = results.begins_by_chance(item, tests.native, again)
        return "natively it does not begin in every run either" if by_chance else ""

    @property
    def _seed(self) -> int:
        return self._cell.seed % (1 << 30)

    def _tests_of(self, file: UpstreamFile) -> _FileTests:
        native = self._natives.of_file(file)
        items = results.items_of(native.tests, native.failures)
        named = (each.partition(SEPARATOR) for each in self._spec.left_out)
        left_out = tuple(test for name, _, test in named if name == file.name)
        return _FileTests(file, native, items, [item for item in items if not item.is_among(left_out)], left_out)

    def _settings(self, tests: _FileTests) -> FileRunSettings:
        guest = self._guest() if self._external else None
        return FileRunSettings(
            target=self._cell.runner.target,
            pace=self._pace(tests.native),
            homes=self._stages.homes,
            seed=self._seed,
            server=guest.access.endpoint if guest is not None else None,
            guest=guest.name if guest is not None else "",
            left_out=tests.left_out,
            private=self._private,
        )

    def _pace(self, native: NativeRun) -> Pace:
        target = self._cell.runner.target
        slowest = max((test.seconds for test in native.tests), default=0.0)
        # The slowest test was measured on this host.
        longest = SLOWEST_TIMES * target.slowdown * slowest
        return Pace(
            patience=min(target.deadline_seconds(1.0), target.host_deadline_seconds(MOST_PATIENCE)),
            stall_seconds=target.deadline_seconds(STALL_SECONDS) + longest,
            silent_seconds=target.deadline_seconds(SILENT_SECONDS) + longest,
        )

    def _progress(self, text: str) -> None:
        (self._cell.folder / run_folder.PROGRESS).write_text(f"{text}\n", "utf-8")


def _labels(file: UpstreamFile, items: list[Item], run: FileRun) -> dict[int, str]:
    """Place of a test in a run's journal -> its item; for a test that the native run did not have: the file's."""
    found, _ = results.matched(items, run.journal.tests)
    labels = {id(test): label for label, test in found.items()}
    return {
        place: f"{file.name}{SEPARATOR}{labels.get(id(test), results.WHOLE)}"
        for place, test in enumerate(run.journal.tests)
    }
