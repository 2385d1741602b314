"""Searches for the functions behind a wrong result, and stores their ranking in the run folder.

The finding's suite runs once more on a target that shows it. Its servers run under the emulator's plugin that records
executed blocks. Its tests are the first runs that are compared. Tests judge by the oracle or by their own model, so the
search also works for bugs that the native build has. If the finding's commands alone show it, their neighbours provide
more runs.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import suspects
from harness.analysis.c_source.machine_dependence import dependent_lines
from harness.analysis.executed_code import code_lines
from harness.analysis.suspects import Spectrum, SuspectList
from harness.build.executed_blocks import code_of
from harness.core.errors import InconclusiveError, UsageError
from harness.isa import rules
from harness.judge.known import known_list
from harness.judge.provenance import open_reproducer
from harness.judge.reproducer import stored_at
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.protocol.resp import Client
from harness.record import event_log, program_launch, stored_run
from harness.record.cell_events import TestEvent
from harness.record.executed_blocks.executed_tests import read_executed
from harness.record.executed_blocks.process_blocks import ProcessBlocks
from harness.run.server_process import Guest, StartError
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.check import Check
from harness.workflows.replay.covered_streams import covered_streams
from harness.workflows.replay.recurrence import WRONG_RESULT
from harness.workflows.replay.transcript_commands import with_commands_of_test
from harness.workflows.replay.value_search import first_difference
from harness.workflows.target_setup import blocks_plugin, emulated_target, set_up_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.analysis.c_source.machine_dependence import DependentLine
    from harness.core.finding import Finding, Witness
    from harness.core.model import Build, SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.record.run_record import RunRecord
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench


def find_suspects(bench: Workbench, folder: Path, finding: Finding, *, trust: bool = False) -> SuspectList:
    """Rank the suspects of a finding of a run. The ranking is also stored in the run's folder.

    `trust`: replay a reproducer that no check on this host made. Raises UsageError for a finding that cannot be ranked,
    and InconclusiveError if the runs gave no ranking.
    """
    run = stored_run.read(folder).record
    _refuse(finding, run)
    path = stored_at(folder, finding.replay)
    reproducer = (
        open_reproducer(bench.cache, bench.catalog.servers, str(path), server="", trust=trust)
        if path is not None
        else None
    )
    search = _Search(bench, folder, run, finding, _target(bench, run, finding, reproducer))
    ranking = search.ranking(reproducer)
    suspects.store(folder, finding.id, ranking)
    return ranking


def explain(bench: Workbench, folder: Path, finding: Finding, *, trust: bool = False) -> SuspectList:
    """Rank the suspects of a finding, and compare their values.

    The result is also stored in the run's folder. `trust`: as for `find_suspects`. Raises UsageError for a finding that
    `find_suspects` refuses or that has no commands, and InconclusiveError if all values are equal.
    """
    _refuse(finding, stored_run.read(folder).record)
    path = stored_at(folder, finding.replay)
    if path is None:
        raise UsageError(
            "no values to compare",
            where=finding.id,
            because="the finding has no commands",
            remedy=f"plumb show {shlex.quote(str(folder))} {finding.id}",
        )
    reproducer = open_reproducer(bench.cache, bench.catalog.servers, str(path), server="", trust=trust)
    target = reproducer.target if reproducer.target in finding.targets else finding.targets[0]
    witness = next(one for one in finding.witnesses if one.target == target)
    ranking = suspects.stored(folder, finding.id) or SuspectList(suspects=[], failing=0, passing=0)
    found = first_difference(
        bench,
        with_commands_of_test(folder, witness, reproducer),
        ranking.suspects,
        right=targets_that_pass(folder, finding, witness),
    )
    if found is None:
        raise InconclusiveError(
            "no value differs",
            where=finding.id,
            because="the arguments and results of all functions are equal on both machines, or cannot be compared: the "
            "bug may be in both, and then only the test knows what is right",
        )
    ranking = ranking.compared(found)
    suspects.store(folder, finding.id, ranking)
    return ranking


def targets_that_pass(folder: Path, finding: Finding, witness: Witness) -> list[str]:
    """The target of the user tier on which the finding's test passed in this run, with the other byte order; empty
    without one. Its values are right if a bug depends on the byte order, even if the native build has the bug.

    Of several targets it is the one whose width is nearest.
    """
    run = stored_run.read(folder).record
    machine = run.machines[witness.target]
    others = [
        other
        for name, other in run.machines.items()
        if name not in finding.targets and other.emulator.is_qemu_user and other.endianness != machine.endianness
        if _passed(folder / name / witness.suite, witness.test)
    ]
    return [each.name for each in sorted(others, key=lambda one: abs(one.width_bits - machine.width_bits))[:1]]


def _passed(cell: Path, test: str) -> bool:
    """Whether a test of a cell passed, in all its parametrised cases."""
    events = [
        event
        for event in event_log.read_events(cell / event_log.NAME)
        if isinstance(event, TestEvent) and _is_named(test, {event.name})
    ]
    return bool(events) and all(event.outcome == "passed" for event in events)


def _refuse(finding: Finding, run: RunRecord) -> None:
    """Raise UsageError for a finding that has a place, and for one whose tests start no server of the run."""
    why = ""
    if finding.kind != WRONG_RESULT and program_launch.SUITE not in run.suites:
        why = "it is not a wrong result: its evidence names the function"
    elif finding.unit:
        why = f"the function is known: the test calls {finding.unit} alone"
    elif any(witness.test.startswith("upstream/") for witness in finding.witnesses):
        why = "the release's own tests start their own servers"
    elif not run.server:
        why = "the run has no server"
    elif program_launch.SUITE in run.suites:
        why = "it is a program's, and only functions of servers are ranked: plumb show and plumb replay take it"
    if why:
        raise UsageError("no ranking of functions", where=finding.id, because=why)


def _target(bench: Workbench, run: RunRecord, finding: Finding, reproducer: Reproducer | None) -> str:
    """A target that shows the finding and whose emulator can record blocks. Raises UsageError if there is none."""
    shown = [*([reproducer.target] if reproducer else []), *finding.targets]
    able = [name for name in shown if name in finding.targets and _notes(bench, name)]
    if not able:
        raise UsageError(
            "no ranking of functions",
            where=finding.id,
            because=(
                f"executed blocks are not recorded on {', '.join(finding.targets)}, where a kernel or a "
                "detector runs the server"
            ),
            remedy=f"plumb check --server {shlex.quote(run.server)} on targets of the user tier",
        )
    return able[0]


def _notes(bench: Workbench, name: str) -> bool:
    target = bench.catalog.targets.get(name)
    return target is not None and target.emulator.is_qemu_user


OPEN_ENDED_SECONDS = 30.0
"""How long an open-ended suite runs."""
IDLE_SECONDS = 6.0
"""How long an idle server is recorded: some of its tasks run only every five seconds."""
OTHERS, OTHERS_SECONDS = 40, 15.0
"""How many tests of other files run at most with either outcome, failed and passed; and how long each of these groups
may have taken in the run, without the plugin.
"""


def _first(tests: Sequence[TestEvent], outcome: str) -> list[str]:
    """The first tests with this outcome, within OTHERS and OTHERS_SECONDS."""
    such = [test for test in tests if test.outcome == outcome]
    spent = itertools.accumulate(test.seconds for test in such)
    return [test.name for test, until in zip(such, spent, strict=True) if until < OTHERS_SECONDS][:OTHERS]


def _is_named(test: str, names: Iterable[str]) -> bool:
    """Whether the names contain a test, or one of its parametrised cases."""
    return any(name == test or name.startswith(f"{test}[") for name in names)


class _Search:
    """The search for one finding, on one target."""

    def __init__(self, bench: Workbench, folder: Path, run: RunRecord, finding: Finding, target: str) -> None:
        self.folder = folder
        self.bench = bench.with_timeouts(run.timeout_multiplier).with_toolchain(run.toolchain)
        self.run = run
        self.finding = finding
        self.target = target
        self.tree: SourceTree = self.bench.open_server(run.server, run.settings, packages=True)

    def ranking(self, reproducer: Reproducer | None) -> SuspectList:
        """The ranking, from the suite's tests and, if there is a reproducer, from its commands."""
        runs, why = self._tests()
        if reproducer is not None and reproducer.target == self.target:
            streams, why_none = covered_streams(self.bench, reproducer)
            runs.failing += streams.failing
            runs.passing += streams.passing
            why = "; ".join(filter(None, [why, why_none]))
        for some, which in ((runs.failing, "that shows it"), (runs.passing, "that does not show it")):
            if not some:
                raise InconclusiveError(
                    "no ranking", where=self.finding.id, because=f"no run {which} ran to its end; {why}".rstrip("; ")
                )
        setup = set_up_target(self.bench, emulated_target(self.bench.catalog, self.target))
        build = setup.build(self.tree, self.run.optimisation, self.run.allocator)
        binary = build.server_binary
        runs.add(self._idle(setup, build), fails=False)
        scores = suspects.scores(runs)
        lines = code_lines(setup.toolchain.prefix, binary, sorted(scores))
        implicated = self.finding.implicated
        return SuspectList(
            suspects=suspects.ranked(
                scores,
                lines,
                runs,
                dependent=self._dependent({place.file for places in lines.values() for place in places}),
                implicated=implicated.function if implicated else "",
            ),
            failing=len(runs.failing),
            passing=len(runs.passing),
        )

    def _dependent(self, files: Iterable[str]) -> dict[str, dict[int, DependentLine]]:
        """File of the tree -> its lines that depend on the machine."""
        paths = {file: self.tree.content / file for file in files}
        return {file: dependent_lines(path.read_bytes()) for file, path in paths.items() if path.is_file()}

    def _idle(self, setup: TargetSetup, build: Build) -> frozenset[int]:
        """The blocks that a server executes without any client. They lower the rank of code that merely runs
        periodically.
        """
        program = build.server_binary
        code = code_of(program, setup.target.emulator.qemu)
        with tempfile.TemporaryDirectory(prefix="plumbline-idle-") as name:
            folder = Path(name)
            spec = ServerSpec(build=build, version=self.tree.version)
            guest = Guest(spec, setup.runner("signal"), folder / "guest", sockets=folder)
            blocks = ProcessBlocks(blocks_plugin(self.bench), program, folder / "blocks", code, counts_start=True)
            guest.execution = blocks
            with (
                contextlib.suppress(StartError),
                guest,
                Client.at_socket(guest.upstream, deadline_seconds=guest.deadline_seconds),
            ):
                # Its timers depend on the clock.
                time.sleep(IDLE_SECONDS)
            executed = blocks.served_addresses()
            blocks.close()
        return executed

    def _tests(self) -> tuple[Spectrum, str]:
        """The suite's tests as runs, and why none of them shows the finding."""
        witness = self._witness()
        folder = self.bench.cache.private("suspects")
        try:
            judgement, _ = Check(self.bench, self._request(witness, folder)).run()
            executed = read_executed(folder / self.target / witness.suite)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        shown = witness.tests
        alike = suspects.alike(witness, judgement.findings)
        runs, again = Spectrum(), False
        for test in executed:
            is_named = _is_named(test.test, shown)
            again |= is_named and test.failed
            # Another test that fails with other words may do so for the same reason, or for another one.
            if is_named == test.failed or (test.failed and _is_named(test.test, alike)):
                runs.add(test.addresses, fails=test.failed)
        if runs.failing:
            return runs, ""
        unknown = "failed again, but its servers ended before the blocks could be read"
        return runs, f"{', '.join(sorted(shown))} {unknown if again else 'did not fail again'}"

    def _chosen(self, witness: Witness) -> list[str]:
        """The tests to run: those of the finding's file, and some others of the suite. Of these, the ones that also
        failed may show the finding, and some that passed show which code many tests execute.
        """
        file = f"{witness.test.partition('::')[0]}::"
        events = event_log.read_events(self.folder / self.target / witness.suite / event_log.NAME)
        others = [event for event in events if isinstance(event, TestEvent) and not event.name.startswith(file)]
        random.Random(self.run.seed).shuffle(others)
        return [file, *_first(others, "failed"), *_first(others, "passed")]

    def _witness(self) -> Witness:
        return next(one for one in self.finding.witnesses if one.target == self.target)

    def _request(self, witness: Witness, folder: Path) -> Request:
        run = self.run
        tier = run.tier or "quick"
        return Request(
            plan=make_plan(
                self.bench.catalog, targets=[self.target], server=run.server, suites=[witness.suite], tier=tier
            ),
            server=run.server,
            tier=tier,
            policy="signal" if rules.is_audit(run.policy) else run.policy,
            optimisation=run.optimisation,
            emulator="pinned",
            jobs=1,
            seed=run.seed,
            install=False,
            known=known_list.DEFAULT,
            run=folder,
            allocator=run.allocator,
            environment=run.environment,
            memory_order=run.memory_order,
            io=run.io,
            tests=self._chosen(witness),
            limit_seconds=OPEN_ENDED_SECONDS,
            warnings="off",
            settings=run.settings,
            covered=True,
        )
