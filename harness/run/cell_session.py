"""The state of one cell while its tests run: its guest and oracle, and the evidence so far.

It writes evidence and judges nothing. harness.run.pytest_plugin reports when tests begin and end.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest

from harness.core.errors import ExitCode, InfrastructureError
from harness.core.processes import processor_time
from harness.core.processes.profiler import Profiler
from harness.record import event_log, run_cost, run_folder
from harness.record.event_log import EventLog
from harness.record.executed_blocks.recorder import ExecutionRecorder
from harness.record.recording_proxy import PURPOSE
from harness.run import unit_runner
from harness.run.canary import emulated, on_machine
from harness.run.extra_servers import StartGuest, ended, keep_transcript, new_guest
from harness.run.server_process import WAITED, StartError
from harness.run.servers.probes import answers_ping, processed_commands
from harness.run.upstream.session import UpstreamSession
from harness.run.vm.guest import CANARY, VirtualMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.core.byte_diff import DifferenceError
    from harness.core.sockets import Address
    from harness.run.canary import CanaryRunner
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from harness.run.unit_runner import UnitRun
    from harness.run.upstream.session import UpstreamResult


def hangs(message: str, server: Address) -> bool:
    """Whether a failed test's words say that a server which lives does not answer.

    A state that did not come about in time says nothing of that: such a server hangs if it does not answer PING.
    """
    if WAITED in message:
        return not answers_ping(server)
    return "TimeoutError" in message or "timed out" in message


FULL_REPORTS = 25
"""Deaths of a cell with a report of their own, whatever they died of. A crash handler has bugs, too, and some show only
for some requests: in `bitops` of redis-3.2.6 on ARMv5 one shows in the 22nd report."""


class CellSession:
    """The state of one cell: its guest, its oracle, and the evidence so far."""

    def __init__(self, cell: CellSpec, *, private_network: bool = False) -> None:
        self.cell = cell
        self.log = EventLog(cell.folder / event_log.NAME)
        self._profiler: Profiler | None = None
        if cell.profiled:
            self._profiler = Profiler(run_folder.BEFORE_TESTS)
            self._profiler.start()
        self._finished = self._failed = 0
        self._used_before = self._start_seconds = 0.0
        self._guest: Guest | None = None
        self._oracle: Guest | None = None
        self._host = VirtualMachine(cell.machine, cell.folder, sockets=cell.sockets) if cell.machine else None
        self._numbers = count(1)
        self.recorder = _execution_recorder(cell)
        """Notes what the tests execute; None where nobody wants to know."""
        self.start_guest = StartGuest(cell, self.log, self._host, self._numbers, recorder=self.recorder)
        """Starts servers for the present test alone."""
        self._upstream_result: UpstreamResult | None = None
        self._scratched = 0
        self._failure: StartError | None = None
        self.test = ""
        self.blocked = False
        self.faults_before = 0
        self.log_before = 0
        self.unit = ""
        self.wrong_line = ""
        self.difference: DifferenceError | None = None
        """The bytes that differ, as the present test or example reported them."""
        self.counters_before: run_folder.Counters | None = None
        self._deaths = 0
        """Guests that have died. After the first, they do not test the machine's memory when they crash."""
        self._whole_test = ""
        self._oracle_silent = ""
        """Why the native build did not start at the last attempt; empty if it started."""
        self.examples_failed = False
        self.note = ""
        """The remark of a test that passes: how many examples it ran."""
        self.upstream: UpstreamSession | None = None
        """Runs the release's own tests; None where the suite has its own."""
        if cell.upstream is not None:
            self.upstream = UpstreamSession(
                cell, self.log, guest=self.guest, oracle=self.oracle, private_network=private_network
            )

    def guest(self) -> Guest:
        """A live guest: the present one, or a fresh one.

        Raises StartError, immediately if an earlier guest could not start.
        """
        if self._guest is not None and self._guest.alive():
            return self._guest
        self.blocked = self._failure is not None
        if self._failure is not None:
            raise self._failure
        self.retire()
        folder = self.cell.folder / f"guest-{next(self._numbers)}"
        if self._host is not None and self.counters_before is None:
            self._host.machine()
            self.counters_before = self._host.counters()
        guest = new_guest(self.cell, self._host, folder, recorder=self.recorder, shared=True)
        guest.tests_memory = not self._deaths
        guest.fatal_faults = self._fatal_faults if self._deaths >= FULL_REPORTS else None
        self._guest, self.faults_before, self.log_before = guest, 0, 0
        try:
            guest.__enter__()
        except StartError as error:
            guest.failed_to_start(error)
            self._failure, self.blocked = error, True
            raise
        # Reports from the server's start do not belong to a test.
        self.log_before = guest.evidence.log_bytes()
        if self.recorder is not None:
            self.recorder.ready()
        return guest

    def oracle(self) -> Guest:
        """The native build of the same source, started on first use and again after it died."""
        if self._oracle is not None and self._oracle.alive():
            return self._oracle
        self._retire_oracle()
        folder = self.cell.folder / run_folder.PEERS / "native" / f"guest-{next(self._numbers)}"
        self._oracle = new_guest(self.cell, self._host, folder, target="native")
        self._oracle_silent = ""
        try:
            self._oracle.__enter__()
        except StartError as error:
            self._oracle_silent = error.detail
            raise
        return self._oracle

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Guest]:
        """A guest outside the evidence: it repeats requests that have failed before, and its end is not recorded."""
        self._scratched += 1
        # A crash report takes a second under emulation, and is not read here.
        quick = ["--crash-log-enabled", "no"] if "crash-log-enabled" in self.cell.abilities.options else []
        folder = self.cell.folder / f"scratch-{self._scratched}"
        try:
            with new_guest(self.cell, self._host, folder, options=quick) as guest:
                yield guest
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def perform(self) -> CanaryRunner:
        """The way to run the canary program: on the cell's machine, or under its emulator."""
        assert self.cell.canary is not None
        if self._host is None:
            # Canaries speak for the emulator as the target's other cells use it.
            plugin_for = self.recorder.plugin_for if self.recorder is not None else None
            return emulated(self.cell.canary, self.cell.runner, plugin_for=plugin_for)
        return on_machine(Path(CANARY), self._host.machine(), self.cell.runner.target.slowdown)

    def plugin_for(self, program: Path) -> str:
        """What the emulator loads for a program beside the server; empty where nobody notes what that executes."""
        return self.recorder.plugin_for(program) if self.recorder is not None and self.recorder.knows(program) else ""

    def run_unit(self, name: str) -> UnitRun:
        """Run a unit of the server on the cell's machine or under its emulator; its log and faults are evidence."""
        assert self.cell.units is not None
        self.unit = name
        folder = unit_runner.folder_of(self.cell.folder, name)
        runner = self.cell.runner
        if self._host is None:
            program = self.cell.units.program
            plugin = self.recorder.plugin_for(program) if self.recorder is not None and program is not None else ""
            return unit_runner.run_emulated(self.cell.units, runner, name, folder, plugin=plugin)
        return unit_runner.run_on_machine(self.cell.units, self._host.machine(), runner.target.slowdown, name, folder)

    def run_unit_natively(self, name: str) -> UnitRun:
        """Run a unit natively for comparison: its result is not evidence against the target."""
        native = self.cell.peers["native"]
        assert native.selftests is not None
        return unit_runner.run_emulated(native.selftests, native.runner, name, self.cell.folder / f"native-unit-{name}")

    def run_upstream(self, item: str, *, may_fail: Callable[[str], bool]) -> UpstreamResult:
        """What became of a test of the release's own, which is the present test's evidence."""
        assert self.upstream is not None
        self._upstream_result = self.upstream.result(item, may_fail)
        return self._upstream_result

    def collected(self, tests: int) -> None:
        """Record the number of tests to run. Their processor time counts from here on."""
        self._used_before, self._start_seconds = processor_time.seconds(), processor_time.own_seconds()
        if self._profiler is not None:
            self._profiler.phase = run_folder.IN_TESTS
        self.log.append(run_folder.CollectedEvent(tests=tests))

    def begin(self, name: str) -> None:
        """Record that a test starts."""
        self.test = self._whole_test = name
        self.examples_failed = False
        self.note = ""
        if self.recorder is not None:
            self.recorder.begin_test()
        self.begin_example()

    def begin_example(self) -> None:
        """Record that an example of the present test starts: its evidence is separate from the other examples'."""
        self.test = self._whole_test
        self.blocked = False
        self.unit = self.wrong_line = ""
        self._upstream_result = None
        self.difference = None
        if self.recorder is not None:
            self.recorder.begin_example()
        self.counters_before = self._counters()
        if self._guest is not None:
            self.faults_before, self.log_before = self._guest.evidence.faults(), self._guest.evidence.log_bytes()
            if self._guest.access.recorder is not None:
                self._guest.access.recorder.begin()

    def end_example(self, label: str, message: str, seconds: float, *, wrong_command: str = "") -> None:
        """Record that an example has ended; it failed if there is a message. Failures and reports leave evidence.

        `wrong_command`: the command with the wrong reply.
        """
        guest = self._guest
        reported = guest is not None and (
            guest.evidence.faults() > self.faults_before or guest.evidence.reports(self.log_before)
        )
        if message or reported or self.start_guest.any():
            self.test = f"{self._whole_test}[{label}]"
            self.finish("failed" if message else "passed", message, seconds, wrong_command=wrong_command)
            self.examples_failed |= bool(message)
            self.test = self._whole_test

    def end(self, outcome: run_folder.Outcome, message: str, seconds: float) -> None:
        """Record that the present test has ended. A test whose examples failed is recorded by these."""
        if not self.examples_failed:
            self.finish(outcome, message, seconds)
        self._finished += 1
        self._failed += outcome == "failed"
        if self.recorder is not None:
            self.recorder.end_test(self._whole_test, outcome if not self.examples_failed else "failed")

    def finish(self, outcome: run_folder.Outcome, message: str, seconds: float, *, wrong_command: str = "") -> None:
        """Record that a test has ended, with its evidence and the state of the guest."""
        if self.recorder is not None:
            # What explains a failure asks the server more.
            self.recorder.end_commands()
        self.start_guest.finish(self.test, outcome)
        if self.unit:
            record = unit_runner.event_of(
                self.cell.folder,
                self.unit,
                program=self.cell.units.kind if self.cell.units else "units",
                test=self.test,
                outcome=outcome,
                message=message,
                seconds=seconds,
                wrong_line=self.wrong_line,
            )
            counters = {"counters_before": self.counters_before, "counters_after": self._counters()}
            self.log.append(msgspec.structs.replace(record, **counters))
            return
        if self._upstream_result is not None:
            self.log.append(self._upstream_result.event_with(outcome, message))
            return
        # Decide this before sending the guest anything: a silent oracle is not the guest's fault.
        doubt = self._doubt() if outcome == "failed" else ""
        if outcome == "failed" and self._oracle is not None and not self._oracle.alive():
            # Its end belongs to this test, and explains the failure. The next test would record it as its own.
            self._retire_oracle()
        guest, faults, log_bytes = self._guest, 0, 0
        requests: list[str] = []
        transcript = ""
        if guest is not None:
            faults, log_bytes = guest.evidence.faults(), guest.evidence.log_bytes()
            if outcome == "failed" or faults > self.faults_before or guest.evidence.reports(self.log_before):
                requests, transcript = self._explain(guest, "" if doubt else message)
                faults, log_bytes = guest.evidence.faults(), guest.evidence.log_bytes()
        self.log.append(
            run_folder.TestEvent(
                name=self.test,
                outcome=outcome,
                seconds=round(seconds, 3),
                message=message,
                blocked=self.blocked,
                guest=guest.name if guest else "",
                fault_from=self.faults_before,
                fault_to=faults,
                log_from=self.log_before,
                log_to=log_bytes,
                unanswered=tuple(requests),
                transcript=transcript,
                counters_before=self.counters_before,
                counters_after=self._counters(),
                asked=wrong_command,
                options=tuple(self.cell.options) if guest else (),
                difference=self.difference.difference if self.difference else None,
                again=self.difference.again if self.difference else None,
                doubt=doubt,
            )
        )
        if guest is not None:
            self.faults_before, self.log_before = faults, log_bytes

    def _counters(self) -> run_folder.Counters | None:
        return self._host.counters() if self._host is not None else None

    def _explain(self, guest: Guest, message: str) -> tuple[list[str], str]:
        """Let a crash finish, end a hang, and keep the transcript."""
        fatal = guest.evidence.has_fault_of(guest.pid, self.faults_before)
        if fatal or "closed by" in message or "reset by" in message:
            guest.settle()
        if guest.alive() and (fatal or hangs(message, guest.upstream)):
            guest.hung()
        kept = keep_transcript(guest)
        if not guest.alive():
            self.retire()
        return kept

    @functools.cached_property
    def _fatal_faults(self) -> Path:
        """Where the emulator notes what servers of the cell died of. Few cells have so many deaths."""
        return Path(tempfile.mkdtemp()) / "faults"

    def retire(self) -> None:
        """Stop the present guest, and record how it ended."""
        guest, self._guest = self._guest, None
        if guest is None:
            return
        commands = processed_commands(guest.upstream) if guest.alive() else 0
        self._deaths += not guest.alive()
        guest.__exit__()
        if self.recorder is not None:
            self.recorder.retire()
        # A failed start does not belong to a test.
        test = self.test if self._failure is None else ""
        self.log.append(msgspec.structs.replace(ended(guest, test), commands=commands))

    def give_up(self, error: InfrastructureError) -> NoReturn:
        """End the cell, and record why the results say nothing about the server."""
        # On a full disk the exit status must suffice.
        with contextlib.suppress(OSError):
            (self.cell.folder / run_folder.PROBLEM).write_text(f"{error}\n", "utf-8")
        pytest.exit(str(error), returncode=ExitCode.INFRASTRUCTURE)

    def close(self) -> None:
        """End both servers."""
        self.test = ""
        try:
            # The judge notices evidence that could not be written: without its last line the log counts for nothing.
            with contextlib.suppress(InfrastructureError):
                self.retire()
                self._retire_oracle()
                if self.recorder is not None:
                    self.recorder.finish()
                used = processor_time.seconds() - self._used_before
                if self._profiler is not None:
                    run_cost.write_profile(self.cell.folder, self._profiler.stop())
                self.log.close(
                    tests=self._finished, failed=self._failed, processor_seconds=used, processor=self._processor()
                )
        finally:
            for guest in (self._guest, self._oracle):
                if guest is not None:
                    guest.__exit__()
            if self.upstream is not None:
                self.upstream.close()
            if self._host is not None:
                self._host.close()

    def _processor(self) -> run_folder.ProcessorTime:
        programs = processor_time.by_program()
        proxy = processor_time.by_thread().get(PURPOSE, 0.0)
        own = processor_time.own_seconds()
        others = processor_time.seconds() - own - sum(programs.values())
        return run_folder.ProcessorTime(
            start=round(self._start_seconds, 2),
            tests=round(own - self._start_seconds - proxy, 2),
            proxy=round(proxy, 2),
            programs={name: round(used, 2) for name, used in sorted(programs.items())},
            others=max(0.0, round(others, 2)),
        )

    def _retire_oracle(self) -> None:
        """Stop the native build. Its end is recorded if it ended by itself, because it is a server too."""
        oracle, self._oracle = self._oracle, None
        if oracle is None:
            return
        oracle.__exit__()
        event = msgspec.structs.replace(ended(oracle, self.test), target="native", oracle=True)
        if event.end != "stopped":
            self.log.append(event)

    def _doubt(self) -> str:
        """Why a failed test says nothing about the server; empty if it does.

        Either another process ended or stopped the oracle, or this machine could not pass on the requests.
        """
        for server in (self._guest, self._oracle):
            if server is not None and server.access.recorder is not None and server.access.recorder.trouble:
                return f"its requests could not be passed on: {server.access.recorder.trouble}"
        oracle = self._oracle
        if self._oracle_silent:
            return f"the native build, which gives the expected replies, did not start: {self._oracle_silent}"
        if oracle is None or (oracle.alive() and answers_ping(oracle.upstream)):
            return ""
        # A crash that it still reports is no silence.
        if oracle.settle():
            oracle.hung()
            return f"the native build, which gives the expected replies, did not answer: {oracle.detail}"
        killed = "SIGKILL" in oracle.detail
        return f"the native build, which gives the expected replies, was {oracle.detail}" if killed else ""


def _execution_recorder(cell: CellSpec) -> ExecutionRecorder | None:
    """What notes what a cell's tests execute; None if nobody wants to know, or the run that did is over."""
    spec = cell.execution
    if spec is None or not all(code.is_file() for code in spec.programs.values()):
        return None
    return ExecutionRecorder(spec.plugin, spec.programs, cell.folder, Path(tempfile.mkdtemp()), kept=spec.kept)
