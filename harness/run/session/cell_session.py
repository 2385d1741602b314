"""The state of one cell while its tests run: its guest and oracle, and the evidence so far.

It writes evidence and judges nothing. harness.run.pytest_plugin reports when tests begin and end.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest

from harness.core.errors import ExitCode, InfrastructureError
from harness.record import cell_events, event_log, run_folder
from harness.record.event_log import EventLog
from harness.record.executed_blocks.recorder import ExecutionRecorder
from harness.run import unit_runner
from harness.run.canary import emulated, on_machine
from harness.run.machines import canary_place
from harness.run.session.cell_cost import CellCost
from harness.run.session.cell_servers import CellServers
from harness.run.session.clock_watch import ClockWatch
from harness.run.session.current_test import CurrentTest
from harness.run.session.stranger_watch import StrangerWatch
from harness.run.upstream.session import UpstreamSession
from harness.run.vm.guest import VirtualMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.canary import CanaryRunner
    from harness.run.cell_spec import CellSpec
    from harness.run.unit_runner import UnitRun
    from harness.run.upstream.session import UpstreamResult


class CellSession:
    """The state of one cell: its servers, the test that runs now, and the evidence so far."""

    def __init__(self, cell: CellSpec, *, private_network: bool = False) -> None:
        self.cell = cell
        self.log = EventLog(cell.folder / event_log.NAME)
        self._cost = CellCost(profiled=cell.profiled)
        self._finished = self._failed = 0
        self.current = CurrentTest()
        self._clock = ClockWatch()
        self.strangers = None if private_network else StrangerWatch()
        """Looks for other users' connections; None where nobody else can connect."""
        self.recorder = _execution_recorder(cell)
        """Records what the tests execute; None if that is not requested."""
        self.servers = CellServers(cell, self.log, self.current, recorder=self.recorder)
        self.upstream: UpstreamSession | None = None
        """Runs the release's own tests; None where the suite has its own."""
        if cell.upstream is not None:
            servers = self.servers
            self.upstream = UpstreamSession(
                cell, self.log, guest=servers.guest, oracle=servers.oracle, private_network=private_network
            )

    def perform(self) -> CanaryRunner:
        """The way to run the canary program: on the cell's machine, or under its emulator."""
        assert self.cell.canary is not None
        if self.servers.host is None:
            # Canaries must use the emulator in the same way as the target's other cells.
            plugin_for = self.recorder.plugin_for if self.recorder is not None else None
            return emulated(self.cell.canary, self.cell.runner, plugin_for=plugin_for)
        return on_machine(canary_place(self.servers.host), self.servers.host.machine(), self.cell.runner.target)

    def plugin_for(self, program: Path) -> str:
        """The plugin that the emulator loads for a program beside the server; empty if its execution is not
        recorded.
        """
        return self.recorder.plugin_for(program) if self.recorder is not None and self.recorder.knows(program) else ""

    def run_unit(self, name: str) -> UnitRun:
        """Run a unit of the server on the cell's machine or under its emulator; its log and faults are evidence.

        Raises EndedByAnotherError if another process ended it.
        """
        assert self.cell.units is not None
        self.current.unit = name
        folder = unit_runner.folder_of(self.cell.folder, name)
        runner = self.cell.runner
        host = self.servers.host
        if host is None:
            program = self.cell.units.program
            plugin = self.recorder.plugin_for(program) if self.recorder is not None and program is not None else ""
            ran = unit_runner.run_emulated(self.cell.units, runner, name, folder, plugin=plugin)
        else:
            # On a board, these suites are skipped.
            assert isinstance(host, VirtualMachine)
            ran = unit_runner.run_on_machine(self.cell.units, host.machine(), runner.target, name, folder)
        unit_runner.refuse_end_from_outside(ran, runner, name, folder)
        return ran

    def run_unit_natively(self, name: str) -> UnitRun:
        """Run a unit natively for comparison: its result is not evidence against the target."""
        native = self.cell.peers["native"]
        assert native.selftests is not None
        return unit_runner.run_emulated(native.selftests, native.runner, name, self.cell.folder / f"native-unit-{name}")

    def run_upstream(self, item: str, *, may_fail: Callable[[str], bool]) -> UpstreamResult:
        """The result of one of the release's own tests, which is the current test's evidence."""
        assert self.upstream is not None
        self.current.upstream_result = self.upstream.result(item, may_fail)
        return self.current.upstream_result

    def collected(self, tests: int) -> None:
        """Record the number of tests to run. Their processor time counts from here on."""
        self._cost.begin_tests()
        if self.strangers is not None:
            self.strangers.start()
        self.log.append(cell_events.CollectedEvent(tests=tests))

    def begin(self, name: str) -> None:
        """Record that a test starts."""
        self.current.begin(name)
        if self.recorder is not None:
            self.recorder.begin_test()
        self.begin_example()

    def begin_example(self) -> None:
        """Record that an example of the present test starts: its evidence is separate from the other examples'."""
        self.current.begin_example()
        if self.recorder is not None:
            self.recorder.begin_example()
        self.servers.begin_example()

    def end_example(
        self, label: str, message: str, seconds: float, *, wrong_command: str = "", fails_natively: bool = False
    ) -> None:
        """Record that an example has ended; it failed if there is a message. Failures and reports leave evidence.

        `wrong_command`: the command with the wrong reply. `fails_natively`: whether the native build does the same.
        """
        if message or self.servers.reports_trouble() or self.servers.start_guest.any():
            self.current.label(label)
            outcome: cell_events.Outcome = "failed" if message else "passed"
            self.finish(outcome, message, seconds, wrong_command=wrong_command, fails_natively=fails_natively)
            self.current.examples_failed |= bool(message)
            self.current.name = self.current.whole_name

    def end(self, outcome: cell_events.Outcome, message: str, seconds: float) -> None:
        """Record that the present test has ended. Failed examples are recorded already, other failures are not."""
        current = self.current
        if current.cut_short:
            # A known finding would otherwise excuse what did not run.
            record = cell_events.TestEvent(
                name=current.name, outcome=outcome, seconds=round(seconds, 3), message=message, doubt=current.cut_short
            )
            self.log.append(record)
        elif not (current.examples_failed and current.examples_tell):
            self.finish(outcome, message, seconds)
        self._finished += 1
        self._failed += outcome == "failed"
        if self.recorder is not None:
            self.recorder.end_test(self.current.whole_name, outcome if not self.current.examples_failed else "failed")

    def finish(
        self,
        outcome: cell_events.Outcome,
        message: str,
        seconds: float,
        *,
        wrong_command: str = "",
        fails_natively: bool = False,
    ) -> None:
        """Record that a test has ended, with its evidence and the state of the guest."""
        if self.recorder is not None:
            # Explaining a failure sends more requests to the server.
            self.recorder.end_commands()
        self.servers.start_guest.finish(self.current.name, outcome, message)
        if self.current.unit:
            event = self._unit_event(outcome, message, seconds)
        elif self.current.upstream_result is not None:
            event = self.current.upstream_result.event_with(outcome, message)
        else:
            event = self._test_event(
                outcome, message, seconds, wrong_command=wrong_command, fails_natively=fails_natively
            )
        self._clock.look()
        clock = self._clock.doubt if event.outcome == "failed" else ""
        # A stranger can make a test pass, too.
        strangers = self.strangers.doubt if self.strangers is not None else ""
        event = msgspec.structs.replace(event, doubt=event.doubt or strangers or clock)
        self.log.append(event)

    def _unit_event(self, outcome: cell_events.Outcome, message: str, seconds: float) -> cell_events.TestEvent:
        """The record of a test that ran a unit."""
        current = self.current
        record = unit_runner.event_of(
            self.cell.folder,
            current.unit,
            program=self.cell.units.kind if self.cell.units else "units",
            test=current.name,
            outcome=outcome,
            message=message,
            seconds=seconds,
            wrong_line=current.wrong_line,
        )
        counters = {"counters_before": current.counters_before, "counters_after": self.servers.counters()}
        return msgspec.structs.replace(
            record,
            doubt=current.doubt if outcome == "failed" else "",
            asserted=current.asserted,
            **counters,
        )

    def _test_event(
        self, outcome: cell_events.Outcome, message: str, seconds: float, *, wrong_command: str, fails_natively: bool
    ) -> cell_events.TestEvent:
        """The record of a test that used a server. The evidence of the next one begins where its own ends."""
        current = self.current
        # Decide this before anything is sent to the guest: a silent oracle is not the guest's fault.
        doubt = self.servers.doubt() if outcome == "failed" else ""
        if outcome == "failed":
            # Its end belongs to this test, and explains the failure. The next test would record it as its own.
            self.servers.retire_dead_oracle()
        guest, faults, log_bytes = self.servers.present, 0, 0
        requests: list[str] = []
        transcript = ""
        if guest is not None:
            evidence = guest.evidence
            faults, log_bytes = evidence.faults(), evidence.log_bytes()
            if outcome == "failed" or self.servers.reports_trouble():
                requests, transcript = self.servers.explain(guest, "" if doubt else message)
                faults, log_bytes = evidence.faults(), evidence.log_bytes()
        event = cell_events.TestEvent(
            name=current.name,
            outcome=outcome,
            seconds=round(seconds, 3),
            message=message,
            blocked=current.blocked,
            guest=guest.name if guest else "",
            fault_from=current.faults_before,
            fault_to=faults,
            log_from=current.log_before,
            log_to=log_bytes,
            unanswered=tuple(requests),
            transcript=transcript,
            counters_before=current.counters_before,
            counters_after=self.servers.counters(),
            asked=wrong_command,
            fails_natively=fails_natively,
            asserted=current.asserted,
            options=tuple(self.cell.options) if guest else (),
            difference=current.difference.difference if current.difference else None,
            again=current.difference.again if current.difference else None,
            doubt=doubt or current.doubt,
            blockers=current.blockers if outcome == "failed" else (),
        )
        if guest is not None:
            current.faults_before, current.log_before = faults, log_bytes
        return event

    def give_up(self, error: InfrastructureError) -> NoReturn:
        """End the cell, and record why the results say nothing about the server."""
        # On a full disk the exit status must suffice.
        with contextlib.suppress(OSError):
            (self.cell.folder / run_folder.PROBLEM).write_text(f"{error}\n", "utf-8")
        pytest.exit(str(error), returncode=ExitCode.INFRASTRUCTURE)

    def close(self) -> None:
        """End both servers."""
        self.current.name = ""
        if self.strangers is not None:
            self.strangers.close()
        try:
            # The judge notices evidence that could not be written: without its last line the log counts for nothing.
            with contextlib.suppress(InfrastructureError):
                self.servers.retire()
                self.servers.retire_oracle()
                blocks = self.servers.block_addresses()
                if self.recorder is not None:
                    self.recorder.finish()
                used = self._cost.tests_seconds()
                self._cost.write_profile(self.cell.folder)
                self.log.close(
                    tests=self._finished,
                    failed=self._failed,
                    processor_seconds=used,
                    processor=self._cost.processor(),
                    blocks=blocks,
                )
        finally:
            self.servers.kill()
            if self.upstream is not None:
                self.upstream.close()
            self.servers.switch_off()


def _execution_recorder(cell: CellSpec) -> ExecutionRecorder | None:
    """The recorder of what a cell's tests execute; None if that is not requested, or if the run that requested it is
    over.
    """
    spec = cell.execution
    if spec is None or not all(code.is_file() for code in spec.programs.values()):
        return None
    return ExecutionRecorder(spec.plugin, spec.programs, cell.folder, Path(tempfile.mkdtemp()), kept=spec.kept)
