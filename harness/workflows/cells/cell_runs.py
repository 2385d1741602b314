"""Runs the cells of a prepared run, each in its own process.

An audit follows a cell that an access has killed. The failed tests of a cell run again on the native build, several
times: what the host does as well is no fault of the target. harness.judge.opinions compares the results. In a run with
`--memory-order weak` they also run again on the target (harness.workflows.trials.order_trials).
"""

from __future__ import annotations

import functools
import math
import time
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.build.emulators.runner import Runner, with_alignment
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.model import CANARY_SUITE
from harness.isa import rules
from harness.judge.opinions.second_opinion import has_time_limit
from harness.judge.sightings.overtakes import frames_of
from harness.record import event_log, evidence_seal, run_folder
from harness.record.run_record import CellRecord, DelayedRun, HostRun, ProblemKind
from harness.run.scheduler import CellCount, side_by_side
from harness.run.selftests import why_none
from harness.workflows.cell_process import OUT_OF_TIME, TESTS_FAILED, run_cell
from harness.workflows.cells.cell_results import (
    died_misaligned,
    failed_tests,
    none_started,
    preceded_tests,
    tests_in,
    unlike_host,
)
from harness.workflows.cells.standing_cells import representatives, stand_ins
from harness.workflows.trials.order_trials import OrderTrials
from harness.workflows.trials.shared_host_runs import SharedHostRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from harness.build.unit_drivers import Units
    from harness.core.finding import Finding, Frame
    from harness.core.model import Cell
    from harness.core.processes.fork_server import ForkServer
    from harness.judge.conclusion import EndedCell
    from harness.plan.request import Request
    from harness.record.fault_log import Overtake
    from harness.run.cell_spec import CellSpec
    from harness.workflows.preparation.cell_specs import CellSpecs
    from harness.workflows.preparation.prepared_run import PreparedRun
    from harness.workflows.trials.order_trials import DelayedLoad
    from harness.workflows.workbench import Workbench

HOST_RUNS, LISTED_HOST_RUNS = 3, 2
"""How often a failed test runs on the native build, and how often if a known list says of a release what such tests
show. Each run starts its servers anew, so each has other hash seeds.
"""
FEW_FAILURES = 20
"""Of more failed tests of a cell, some are new: each known one has a reason."""
EARLIER_CLIENTS = 5
"""How many more clients the servers of each such run have had than those of the run before."""


def jobs_of(bench: Workbench, request: Request) -> int:
    """How many cells run at a time."""
    # A board's kernel counts the misaligned accesses of every program there, and has one mode for all.
    return 1 if bench.board is not None else request.jobs


class CellRuns:
    """The cells of one prepared run."""

    def __init__(
        self,
        bench: Workbench,
        request: Request,
        prepared: PreparedRun,
        specs: CellSpecs,
        *,
        server: ForkServer,
        one_failure: bool,
        until: float,
        store: Callable[[CellRecord], None],
        judged: Callable[[CellRecord], EndedCell],
        sampled: Collection[str],
        inherited: Callable[[Mapping[Cell, Sequence[Finding]]], Collection[Cell]] = lambda _: (),
    ) -> None:
        """`server` becomes the cells' processes. `one_failure`: after a cell in which a test failed no other starts,
        and those that run are ended. `until`: no cell but canaries starts later, and those that run are ended
        (time.monotonic). `store` takes the record of each cell as it ends, in several threads. `judged`: what a cell
        that has ended shows. `sampled`: suites that run on a few targets, and on others if those show anything.
        `inherited`: of cells with findings that are not known, those for whose findings the change is not to blame.
        """
        self._bench = bench
        self._request = request
        self._prepared = prepared
        self._specs = specs
        self._server = server
        self._one_failure = one_failure
        self._until = until
        self._store = store
        self._judged = judged
        self._sampled = sampled
        self._inherited = inherited
        self._failed_cell = ""
        self._shared = SharedHostRuns()
        self._silent: set[Cell] = set()
        """The cells that showed nothing new."""
        self._undecided: dict[Cell, Sequence[Finding]] = {}
        """The findings of cells that are not known, and without which the cells would be silent."""
        self._startless: set[str] = set()
        """The targets on which the servers of a suite die while they start."""
        self._seconds: dict[str, float] = {}
        """Suite -> how long its last cell took."""

    def run(self, cells: Sequence[Cell], count: CellCount) -> list[CellRecord]:
        """Run cells, several at a time. Raises InfrastructureError if what they run was damaged meanwhile."""
        targets = {name: one.target for name, one in self._prepared.targets.items()}
        first = representatives(cells, targets)
        sampled = [cell for cell in cells if cell.suite in self._sampled]
        standing = {cell: [first[cell]] for cell in sampled if first[cell] != cell} | stand_ins(
            [cell for cell in sampled if self._bench.catalog.suites[cell.suite].costly], targets
        )
        # What fails on a machine fails as a rule on all of its kind.
        ordered = sorted(cells, key=lambda cell: first[cell] != cell)
        by_cell = self._run_part([cell for cell in ordered if cell not in standing], standing, count)
        asked = {one: self._undecided[one] for one in {*chain(*standing.values())} & self._undecided.keys()}
        if asked:
            began = time.monotonic()
            self._silent.update(self._inherited(asked))
            # Of the limit, only what the cells themselves take counts.
            self._until += time.monotonic() - began
        by_cell |= self._run_part([cell for cell in ordered if cell in standing], standing, count)
        return [by_cell[cell] for cell in cells]

    def _run_part(
        self, part: Sequence[Cell], standing: Mapping[Cell, Sequence[Cell]], count: CellCount
    ) -> dict[Cell, CellRecord]:
        """Run some of the cells. `standing`: cells -> those that stand for them, which have ended."""

        def run(cell: Cell) -> CellRecord:
            began = time.monotonic()
            why = self._needless(cell, standing.get(cell, ()))
            if why or began > self._until_for(cell):
                kind: ProblemKind = "absent" if why else ""
                return CellRecord(
                    target=cell.target, suite=cell.suite, seconds=0, problem=why or OUT_OF_TIME, problem_kind=kind
                )
            with count.running(cell):
                record = self._run_cell(cell)
            self._seconds[cell.suite] = time.monotonic() - began
            self._bench.refuse_damage()
            self._note(cell, record, count)
            self._store(record)
            return record

        def io_bound(cell: Cell) -> bool:
            # A machine of the kernel tier takes memory and processor time even while its programs wait.
            is_elsewhere = self._prepared.targets[cell.target].target.emulator.is_elsewhere
            return self._bench.catalog.suites[cell.suite].io_bound and not is_elsewhere

        def alone(cell: Cell) -> bool:
            return self._bench.catalog.suites[cell.suite].spins

        def seconds(cell: Cell) -> float:
            return self._seconds.get(cell.suite, 0.0)

        jobs = jobs_of(self._bench, self._request)
        records = side_by_side(part, run, io_bound=io_bound, jobs=jobs, seconds=seconds, alone=alone)
        return dict(zip(part, records, strict=True))

    def _note(self, cell: Cell, record: CellRecord, count: CellCount) -> None:
        """Note what a cell that has ended shows, in place of what an earlier run of it has shown."""
        self._silent.discard(cell)
        self._undecided.pop(cell, None)
        if record.status == TESTS_FAILED:
            self._note_failure(cell)
        shown = self._shown(record)
        if shown == []:
            self._silent.add(cell)
            return
        if shown is not None:
            self._undecided[cell] = shown
        if record.status == TESTS_FAILED:
            count.add_failed()

    def _note_failure(self, cell: Cell) -> None:
        if none_started(self._request.run / cell.target / cell.suite):
            self._startless.add(cell.target)

    def _needless(self, cell: Cell, standing: Sequence[Cell]) -> str:
        """Why a cell need not run; empty if it must. `standing`: the cells that stand for it, and have ended."""
        others = " and ".join(one.target for one in standing)
        if standing and self._silent.issuperset(standing):
            return f"{others} stand for its width, byte order and time_t, and showed nothing new in it"
        if standing and cell.target in self._startless:
            return f"no server starts on {cell.target}, as other suites show, and {others} stand for its audit"
        return self._after_failure(cell)

    def _after_failure(self, cell: Cell) -> str:
        """Why a cell is of no use after the failure of another; empty if it is. No result counts without canaries."""
        needless = self._failed_cell and cell.suite != CANARY_SUITE
        return f"a test of {self._failed_cell} failed before" if needless else ""

    def _shown(self, record: CellRecord) -> Sequence[Finding] | None:
        """The findings of a cell that ran which are not known; None if more may be wrong with it than these tell."""
        if record.problem or record.status not in {0, TESTS_FAILED}:
            return None
        folder = self._request.run / record.target / record.suite
        failed = failed_tests(folder) if record.status else []
        if not failed:
            return []
        if none_started(folder):
            if record.audit != "done":
                return None
            # The findings about the start explain them all. Its audit had servers.
            failed = failed_tests(folder / run_folder.AUDIT)
        judged = self._judged(record) if len(failed) <= FEW_FAILURES else None
        return judged.new if judged is not None and judged.seen >= {*failed} else None

    def _until_for(self, cell: Cell) -> float:
        """When a cell is ended in any case. No result counts without the canaries."""
        return math.inf if cell.suite == CANARY_SUITE else self._until

    def _run_cell(self, cell: Cell) -> CellRecord:
        specs = self._specs
        if (missing := specs.missing(cell)) is not None:
            return missing
        spec = specs.of(cell)
        if spec.units is not None and (why := why_none(spec.units)):
            return CellRecord(target=cell.target, suite=cell.suite, seconds=0, problem=why, problem_kind="absent")
        record = self._run_sealed(spec, self._until_for(cell), functools.partial(self._after_failure, cell))
        record = msgspec.structs.replace(record, left_out=specs.left_out(cell))
        if record.status == TESTS_FAILED and self._one_failure:
            self._failed_cell = f"{cell.target}/{cell.suite}"
        if record.problem_kind == "absent":
            return record
        if spec.units is not None and spec.units.broken and not record.problem:
            record = msgspec.structs.replace(record, problem=_broken(spec.units), problem_kind="units")
        if died_misaligned(spec.folder) and self._is_audited(cell, spec.folder):
            audit = self._run_sealed(_audit_of(spec))
            record = msgspec.structs.replace(record, audit=audit.problem or "done", audit_seal=audit.seal)
        record = msgspec.structs.replace(record, host=self._host_runs(cell, spec, record))
        return self._with_order_trials(cell, spec, record)

    def _host_runs(self, cell: Cell, spec: CellSpec, record: CellRecord) -> list[HostRun]:
        """Run a cell's failed tests on the native build; nothing if none failed, or if the build cannot run them."""
        if record.status != TESTS_FAILED or not self._specs.has_host_runs(cell):
            return []
        # A misaligned access that kills each server as it starts is not the host's. The tests ran in the audit alone.
        is_startless = record.audit == "done" and none_started(spec.folder)
        failed = failed_tests(spec.folder / run_folder.AUDIT if is_startless else spec.folder)
        if not failed:
            return []
        try:
            native = self._specs.on_host(cell, failed)
        except BuildFailedError as error:
            return [HostRun(problem=f"{error.what}: {error.because}", seal="")]
        folder_of = functools.partial(run_folder.host_folder, spec.folder)
        times = LISTED_HOST_RUNS if self._request.server in self._bench.catalog.servers else HOST_RUNS
        alone = self._shared.runs(native, folder_of, lambda: self._repeated(native, folder_of, times))
        if any(one.problem for one in alone) or died_misaligned(spec.folder):
            return alone
        logs = [folder_of(number) / event_log.NAME for number in range(1, len(alone) + 1)]
        others = unlike_host(spec.folder, cell.target, logs)
        if others:
            # Behind their predecessors they take as long as the cell, and what is known needs no excuse.
            others -= self._judged(msgspec.structs.replace(record, host=alone)).known
        return [*alone, *self._preceded_runs(native, spec.folder, others, len(alone))]

    def _preceded_runs(self, native: CellSpec, cell: Path, others: Collection[str], before: int) -> list[HostRun]:
        """Run some of a cell's failed tests on the native build, behind the tests that precede them; a second time if
        one of them fails so. Nothing without a result of each run, or if they had their servers alone. `before`: how
        many runs the host has made of the cell.
        """
        native = msgspec.structs.replace(native, exactly=preceded_tests(cell, others))
        if not native.exactly:
            return []

        def folder_of(number: int) -> Path:
            return run_folder.host_folder(cell, before + number)

        def ask() -> list[HostRun]:
            first, second = folder_of(1), folder_of(2)
            ended = [self._again(native, first)]
            if any(event.name in others and event.outcome == "failed" for event in tests_in(first / event_log.NAME)):
                ended.append(self._again(native, second))
            return ended

        ended = self._shared.preceded_runs(native, others, folder_of, ask)
        return (
            [] if any(one.problem for one in ended) else [msgspec.structs.replace(one, preceded=True) for one in ended]
        )

    def _with_order_trials(self, cell: Cell, spec: CellSpec, record: CellRecord) -> CellRecord:
        """The record with the runs that show whether memory order made tests fail; the same if that was the host's."""
        failed = failed_tests(spec.folder) if record.status == TESTS_FAILED and spec.runner.memory_order else []
        if not failed:
            return record
        late = [one.name for one in tests_in(spec.folder / event_log.NAME) if has_time_limit(one.message)]
        trials = OrderTrials(spec.folder, _CellAgain(self, cell, spec))
        trials.run(failed, late)
        return msgspec.structs.replace(record, ordered=trials.ordered, delayed=trials.delayed)

    def run_in_order(self, cell: Cell, tests: Sequence[str], folder: Path) -> HostRun:
        """One more run of some of a cell's tests, in the host's memory order."""
        return self._again(self._specs.in_order(cell, tests), folder)

    def run_delayed(self, cell: Cell, tests: Sequence[str], folder: Path, how: DelayedLoad) -> DelayedRun:
        """One more run of them while stores wait."""
        spec = self._specs.delayed(cell, tests, seed=how.seed, pair=how.pair)
        if how.limit_seconds is not None:
            spec = msgspec.structs.replace(spec, limit_seconds=how.limit_seconds)
        one = self._again(spec, folder)
        return DelayedRun(problem=one.problem, seal=one.seal, seed=how.seed, pair=how.pair)

    def _repeated(self, spec: CellSpec, folder_of: Callable[[int], Path], times: int) -> list[HostRun]:
        """The runs of some tests, up to the first without a result.

        A message may contain the number of a client, or another count that depends on what a server has done before. On
        the target that were other tests, so here it is something else in each run.
        """
        ended: list[HostRun] = []
        while len(ended) < times and not any(one.problem for one in ended):
            earlier = msgspec.structs.replace(spec, earlier_clients=EARLIER_CLIENTS * len(ended))
            ended.append(self._again(earlier, folder_of(len(ended) + 1)))
        return ended

    def _again(self, spec: CellSpec, folder: Path) -> HostRun:
        """One run of some tests."""
        # Files of its own: what each run writes anew differs by chance, as by the seed of the server's hash tables.
        one = self._run_sealed(msgspec.structs.replace(spec, folder=folder, shared=folder / run_folder.SHARED))
        return HostRun(problem=one.problem, seal=one.seal)

    def _is_audited(self, cell: Cell, folder: Path) -> bool:
        """Whether an audit follows a cell in which a misaligned access killed a server."""
        suite, target = self._bench.catalog.suites[cell.suite], self._prepared.targets[cell.target]
        can_audit = target.target.emulator.can_audit and not rules.is_audit(self._request.policy)
        if not (suite.needs_server and can_audit) or self._request.fail_fast:
            return False
        # An audit would repeat hours of the release's own tests, only to show what the audits of other suites also
        # show. If no server started, it repeats nothing.
        return not suite.upstream or not any(event.outcome == "passed" for event in tests_in(folder / event_log.NAME))

    def _run_sealed(
        self, spec: CellSpec, until: float = math.inf, needless: Callable[[], str] = lambda: ""
    ) -> CellRecord:
        """Run a cell and seal its evidence, so that a later change of it is noticed."""
        record = run_cell(
            spec,
            self._bench.progress,
            fail_fast=self._request.fail_fast,
            server=self._server,
            until=until,
            needless=needless,
        )
        return msgspec.structs.replace(record, seal=evidence_seal.seal(spec.folder))


class _CellAgain:
    """Runs tests of a cell again."""

    def __init__(self, runs: CellRuns, cell: Cell, spec: CellSpec) -> None:
        self._runs = runs
        self._cell = cell
        server = str(spec.build.server_binary) if spec.build is not None else ""
        self._symbols = symbols.Symbols(spec.triple, server)

    def frames(self, one: Overtake) -> tuple[Frame, Frame, Frame]:
        return frames_of(one, self._symbols)

    def in_order(self, tests: Sequence[str], folder: Path) -> HostRun:
        return self._runs.run_in_order(self._cell, tests, folder)

    def delayed(self, tests: Sequence[str], folder: Path, how: DelayedLoad) -> DelayedRun:
        return self._runs.run_delayed(self._cell, tests, folder, how)


def _audit_of(spec: CellSpec) -> CellSpec:
    """The same cell as an audit: every forbidden access succeeds, which reveals sites that the first crash hides."""
    peers = {name: msgspec.structs.replace(peer, runner=_audited(peer.runner)) for name, peer in spec.peers.items()}
    return msgspec.structs.replace(
        spec,
        runner=_audited(spec.runner),
        peers=peers,
        folder=spec.folder / run_folder.AUDIT,
        # It learns nothing: under an audit, a stream that kills a server looks like any other.
        corpus=None,
    )


def _audited(runner: Runner) -> Runner:
    policy = rules.audited(runner.policy)
    return msgspec.structs.replace(runner, policy=policy, options=with_alignment(runner.options, policy))


def _broken(units: Units) -> str:
    """Which units were not called because the project's drivers for them do not compile."""
    by_error: dict[str, list[str]] = {}
    for name, error in units.broken.items():
        by_error.setdefault(error, []).append(name)
    reasons = "; ".join(f"{', '.join(names)}: {error}" for error, names in by_error.items())
    return f"{len(units.broken)} units do not compile and were not run: {reasons}"
