"""Turns one cell's evidence into its sightings and its outcome: test counts and reasons for incomplete evidence.

harness.judge.causality decides which sightings are consequences of others.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core.model import CANARY_SUITE
from harness.isa import rules
from harness.judge import misaligned_blocks
from harness.judge.causality import Evidence
from harness.judge.opinions.in_order import InOrder
from harness.judge.opinions.second_opinion import SecondOpinion, with_ends_beside
from harness.judge.program_runs import program_ends, program_evidence
from harness.judge.sightings.failures import from_counters, from_failed_build
from harness.judge.sightings.sighting import name_of
from harness.judge.verdict import CellOutcome
from harness.record import (
    cell_events,
    event_log,
    evidence_seal,
    fault_log,
    kernel_faults,
    run_folder,
    run_record,
    stored_run,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import TestEvent
    from harness.record.run_record import CellRecord, RunRecord


def cell_evidence(folder: Path, run: RunRecord, record: CellRecord) -> tuple[list[Sighting], CellOutcome]:
    """The sightings and the outcome of a cell, including those of the audit that followed the cell, if any."""
    cell = folder / record.target / record.suite
    if record.problem_kind in {"build", "absent"} or not record.seal:
        sightings = [from_failed_build(record, folder / "run.json")] if record.problem_kind == "build" else []
        return _of_cell(sightings, folder, record), _unrun(record)
    recorded = event_log.read(cell / event_log.NAME)
    tests = [event for event in recorded.events if isinstance(event, cell_events.TestEvent)]
    damage = evidence_seal.damage(cell, record.seal)
    counts = program_evidence.counts(cell, recorded.events)
    outcome = CellOutcome(
        target=record.target,
        suite=record.suite,
        seconds=record.seconds,
        passed=counts.passed if counts else sum(test.outcome == "passed" for test in tests),
        failed=counts.failed if counts else sum(test.outcome == "failed" for test in tests),
        skipped=counts.skipped if counts else sum(test.outcome == "skipped" for test in tests),
        doubts=[*_doubts_of(record, recorded), *damage.doubts],
        altered=damage.invents,
        unexplained=[],
        silence=_silence(tests) if counts is None or not counts.ran else "",
        hindered=sum(test.outcome == "failed" and (test.blocked or bool(test.blocked_by)) for test in tests),
    )
    if record.suite == CANARY_SUITE:
        # A failed canary is not a finding: it means that the run could not find anything.
        wrong = [test.message for test in tests if test.outcome == "failed"]
        told = next((test.message for test in tests if test.outcome == "passed" and test.message), "")
        return [], msgspec.structs.replace(outcome, unexplained=wrong, told=told)
    evidence = Evidence(cell, run, record, recorded.events)
    opinion = SecondOpinion(cell, run, record)
    repaired = from_counters(run, record, cell, tests)
    classed = _classed(with_ends_beside(cell, run, evidence.sightings()), tests, opinion)
    unsteady_in_audit: list[str] = []
    passed_in_audit = 0
    sightings, late = _in_order(classed.sightings, tests, InOrder(cell, run, record))
    sightings += repaired
    blocks = recorded.blocks
    doubts = [*outcome.doubts, *evidence.doubts, *classed.doubts, *late, *_doubts_of_kernel(cell, run, record, tests)]
    doubts += _doubts_of_order(cell, run, record, recorded.events)
    altered = outcome.altered
    if record.audit:
        audited, of_audit, seen, passed_in_audit = _audit(cell / run_folder.AUDIT, run, record, opinion)
        sightings += audited.sightings
        unsteady_in_audit = [name for name in audited.unsteady if name not in classed.unsteady]
        doubts += of_audit.doubts
        altered |= of_audit.invents and bool(record.audit_seal)
        # In an audit a server also replies that dies of its first misaligned block otherwise.
        blocks = (*blocks, *seen)
    sightings = misaligned_blocks.marked(sightings, record.target, blocks)
    outcome = msgspec.structs.replace(
        outcome,
        doubts=list(dict.fromkeys(doubts)),
        altered=altered,
        unexplained=evidence.unexplained,
        unsteady=classed.unsteady,
        unsteady_in_audit=unsteady_in_audit,
        audited=passed_in_audit,
        unasked=opinion.problem,
    )
    return _of_cell(sightings, folder, record), outcome


class _Classed(NamedTuple):
    """What a cell's tests showed, with the host's opinion."""

    sightings: list[Sighting]
    """Those marked that the native build shows as well."""
    unsteady: list[str]
    """The tests whose failure it shows only at times. A sighting of such a test is no finding."""
    doubts: list[str]
    """The ends of the native build that another process may have caused."""


def _classed(sightings: list[Sighting], tests: list[TestEvent], opinion: SecondOpinion) -> _Classed:
    failed = _failed_by_name(tests)
    kept: list[Sighting] = []
    unsteady: list[str] = []
    doubts: list[str] = []
    for one in sightings:
        which = opinion.class_of(one, failed.get(one.test))
        if which == "unsteady":
            unsteady.append(one.test)
        elif which == "stranger":
            name = one.test or "between tests"
            doubts.append(f"{name}: the native build was {one.detail}, which another process may have caused")
        else:
            kept.append(msgspec.structs.replace(one, everywhere=one.everywhere or which == "everywhere"))
    return _Classed(kept, list(dict.fromkeys(unsteady)), doubts)


def _failed_by_name(tests: Iterable[TestEvent]) -> dict[str, TestEvent]:
    return {name_of(test): test for test in tests if test.outcome == "failed"}


def _in_order(sightings: list[Sighting], tests: list[TestEvent], opinion: InOrder) -> tuple[list[Sighting], list[str]]:
    """The sightings, those marked that the target does not show in the host's memory order; and doubts, for the tests
    that only were late.
    """
    failed = _failed_by_name(tests)
    doubts = [f"its failed tests have no result in order: {opinion.problem}"] if opinion.problem else []
    kept: list[Sighting] = []
    for one in sightings:
        said = opinion.opinion_on(one, failed.get(one.test))
        if said.which == "late":
            doubts.append(f"{one.test} did not end in time while stores waited, and did in order: it may only be slow")
            continue
        place = said.place
        told = [*([place.sentence] if place is not None else []), *([said.rates] if said.rates else [])]
        kept.append(
            msgspec.structs.replace(
                one,
                reordered=said.which == "reordered",
                title=f"{one.title}: {place.sentence}" if place is not None else one.title,
                overtakes=tuple(dict.fromkeys([*told, *one.overtakes])),
                pair=place.pair if place is not None else None,
                pair_program=place.program if place is not None else "",
                replays=said.replays,
            )
        )
    return kept, doubts


def _doubts_of_order(cell: Path, run: RunRecord, record: CellRecord, events: Sequence[cell_events.Event]) -> list[str]:
    """Why a cell with another memory order proves nothing: no store of its servers has waited."""
    if run.memory_order == "usual" or run.machines[record.target].emulator.runs_here:
        return []
    if not any(isinstance(one, cell_events.GuestEvent) for one in events):
        return []
    waited = any(one.stores for one in stored_run.store_counts(cell))
    return [] if waited else ["no store of its servers waited: nothing was reordered"]


def _audit(
    cell: Path, run: RunRecord, record: CellRecord, opinion: SecondOpinion
) -> tuple[_Classed, evidence_seal.Damage, tuple[int, ...], int]:
    """What a cell's audit showed, why they may be incomplete or invented, the addresses of its server's blocks, and how
    many of its tests passed.

    The misaligned access that ended the server before its audit is in the audit's record. Without such a record,
    nothing shows that the audit looked, and no passed test counts.
    """
    recorded = event_log.read(cell / event_log.NAME)
    evidence = Evidence(cell, run, record, recorded.events)
    tests = [event for event in recorded.events if isinstance(event, cell_events.TestEvent)]
    classed = _classed(with_ends_beside(cell, run, evidence.sightings()), tests, opinion)
    own = recorded.doubts if record.audit == "done" else [record.audit]
    damage = evidence_seal.damage(cell, record.audit_seal)
    doubts = [f"its audit: {one}" for one in dict.fromkeys([*own, *damage.doubts, *evidence.doubts, *classed.doubts])]
    looked = any(one.detector == "audit" for one in classed.sightings)
    passed = sum(test.outcome == "passed" for test in tests) if looked else 0
    return classed, msgspec.structs.replace(damage, doubts=doubts), recorded.blocks, passed


def never_run(target: str, suite: str) -> CellOutcome:
    """The outcome of a planned cell that the run has no record of."""
    record = run_record.CellRecord(target=target, suite=suite, seconds=0.0, problem="it was planned but has no record")
    return _unrun(record)


def _of_cell(sightings: list[Sighting], folder: Path, record: CellRecord) -> list[Sighting]:
    cell = f"{record.target}/{record.suite}"
    return [
        msgspec.structs.replace(one, evidence=str(Path(one.evidence).relative_to(folder)), cell=cell)
        for one in map(program_ends.of_program, sightings)
    ]


def _unrun(record: CellRecord) -> CellOutcome:
    """The outcome of a cell without a test process: its build failed, or there was nothing to run."""
    absent = record.problem if record.problem_kind == "absent" else ""
    return CellOutcome(
        target=record.target,
        suite=record.suite,
        seconds=record.seconds,
        passed=0,
        failed=0,
        skipped=0,
        absent=absent,
        doubts=[] if absent else [record.problem or "its evidence was never sealed"],
        unexplained=[],
    )


def _doubts_of(record: CellRecord, recorded: event_log.Recorded) -> list[str]:
    """Why a cell's process did not finish: its own reason, or the gaps in its event log."""
    if record.problem:
        return [record.problem]
    claims_failure = record.status not in {0, None}
    if not recorded.doubts and claims_failure != bool(recorded.failed):
        return [f"its test process ended with status {record.status}, and recorded {recorded.failed} failed tests"]
    return recorded.doubts


def _doubts_of_kernel(cell: Path, run: RunRecord, record: CellRecord, tests: list[TestEvent]) -> list[str]:
    """Why a real kernel's counters contradict the evidence, where each misaligned access must raise a signal; empty if
    they do not, and where no kernel counted.
    """
    counted = kernel_faults.counted(tests)
    if counted is None:
        return []
    machine = run.machines[record.target]
    policy = rules.policy_for(run.policies, run.policy, machine)
    # On a board, the kernel and other programs count as well, and nothing records the faults.
    if policy.fixup or policy.ignore or machine.emulator.is_board:
        return []
    repaired = sum(counted.by_class.values())
    if repaired:
        return [f"the kernel repaired {repaired} misaligned accesses, each of which must raise a signal"]
    logs = (stored_run.read_fault_log(log) for log in cell.glob(f"guest-*/{fault_log.NAME}"))
    if counted.user and not any(fault_log.is_misaligned(fault) for log in logs for fault in log.faults):
        return [f"the kernel counted {counted.user} misaligned accesses in its tests, and none of them is recorded"]
    return []


def _silence(tests: list[TestEvent]) -> str:
    """Why nothing passed: no test recorded a result, all tests failed, or the reasons for which they were skipped."""
    skipped = [test for test in tests if test.outcome == "skipped"]
    failed = [test for test in tests if test.outcome == "failed"]
    if failed:
        return f"nothing passed: {len(failed)} tests failed"
    reasons = dict.fromkeys(test.message.removeprefix("Skipped: ") for test in skipped)
    return f"every test was skipped: {'; '.join(reasons)}" if skipped else "no test recorded a result"
