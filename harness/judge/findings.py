"""Turns a run folder's evidence into findings and verdicts, repeatable at any time. Starts only symbol tools."""

from __future__ import annotations

import functools
import shlex
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis.detectors import registry
from harness.core.errors import InconclusiveError
from harness.core.finding import Cause, Finding, Occasion, Verdict, Witness
from harness.core.model import (
    CANARY_SUITE,
    Allocator,
    GuestEnvironment,
    MemoryOrder,
    Name,
    Record,
    Tier,
    Transport,
)
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.isa import rules
from harness.judge import misaligned_blocks
from harness.judge.causes import ordered, stored_or_made
from harness.judge.cell_outcome import cell_evidence, never_run
from harness.judge.opinions import second_opinion
from harness.judge.program_runs.program_ends import told_apart
from harness.judge.reproducer import best_of, write_reproducer
from harness.judge.sightings.failures import REPAIRED
from harness.judge.verdict import CellVerdict  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.record import event_log, kernel_faults
from harness.record.cell_events import Counters, TestEvent
from harness.record.run_folder import AUDIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.judge.sightings.sighting import Sighting
    from harness.judge.verdict import CellOutcome
    from harness.record.run_record import CellRecord, RunRecord
    from harness.record.stored_run import TrustedRun


ORDER = "order"
"""The kind of a finding that a machine shows only while stores wait (harness.judge.opinions.second_opinion)."""


SCHEMA = 1
"""The value of `schema` in findings.json. A version may gain fields, but never renames, removes or retypes one."""


class Judgement(Record, frozen=True):
    """The run folder's findings.json, and what `check --json` prints."""

    schema: int
    verdict: Verdict
    server: str
    seed: int
    run: str
    policy: str
    optimisation: str
    cells: list[CellVerdict]
    findings: list[Finding]
    remarks: list[str]
    stages: dict[str, float]
    counters: dict[str, Counters] = msgspec.field(default_factory=dict)
    """Target -> its audit's totals; empty if nothing was audited."""
    kernel_counters: dict[str, Counters] = msgspec.field(default_factory=dict)
    """Target -> the kernel's own counts during the tests; only for kernels that count."""
    allocator: Allocator = "libc"
    toolchain: Name = DEFAULT_FAMILY
    """The family of toolchains; the default: those that the targets name."""
    environment: GuestEnvironment = "usual"
    """The environment of the programs (`--environment`)."""
    memory_order: MemoryOrder = "usual"
    """The order of memory accesses that their threads saw (`--memory-order`)."""
    io: Transport = "unix"
    """How the suites' clients reached the servers."""
    tier: Tier | Literal[""] = ""
    """How thorough the suites were; empty if the command has no tiers, or if joined runs differ."""
    tests: list[str] = msgspec.field(default_factory=list)
    """The `--test` patterns: no other test ran. Empty if all tests ran."""
    base: str = ""
    """The revision whose findings count as known here (`plumb premerge`); empty if there is none."""
    place: str = ""
    """The folder of the server's tree in its repository: where annotations and code scanning find its files."""
    warnings: list[Finding] = msgspec.field(default_factory=list)
    """Compiler warnings that occur only on targets, if they are noted and do not fail (`--warnings note`)."""
    causes: list[Cause] = msgspec.field(default_factory=list)
    """The findings by probable cause: what to read first."""
    revision: str = ""
    """The commit of the server's tree, with `+changes` behind it where files differ from it; empty if unknown."""
    emulators: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Target -> SHA-256 of each user-mode emulator that ran its programs, compiled here or from a wheel."""
    unchecked: list[str] = msgspec.field(default_factory=list)
    """Changes that nothing checked (`plumb premerge`): with any of them the verdict is not PASS."""
    left_out: int = 0
    """Tests that did not run: they ended as expected before, and the change cannot reach them (`plumb premerge`)."""
    settings: list[str] = msgspec.field(default_factory=list)
    """What the builds for targets added to the makefile's own flags and variables: `--cflags` and `--make`."""
    timeout_multiplier: float = 1.0
    """How many times longer than usual its commands and servers could take (`--timeout-multiplier`); of joined runs the
    largest.
    """
    record: str = ""
    """The digest in the run.json of the run that was judged; empty for joined runs, and in older documents, which count
    only without their run."""

    def findings_by_cause(self) -> list[tuple[Cause, dict[str, Finding]]]:
        """Each cause with its findings by id: the one to read first, others that share it, and what may follow."""
        by_id = {finding.id: finding for finding in self.findings}
        return [
            (cause, {identity: by_id[identity] for identity in (cause.start, *cause.members, *cause.followers)})
            for cause in stored_or_made(self.causes, self.findings)
        ]


def judge(stored: TrustedRun) -> tuple[list[Finding], list[CellOutcome], dict[str, Counters]]:
    """Findings, the most direct evidence first; the outcome of every planned cell; the totals of audits.

    Raises InconclusiveError for a record without the policies that its machines need. Writes reproducers beside the
    evidence. Does not compare findings with the known list: harness.judge.conclusion does.
    """
    folder, run = stored.folder, stored.record
    _refuse_lacking_policies(run)
    records = {(record.target, record.suite): record for record in run.cells}
    sightings: list[Sighting] = []
    outcomes: list[CellOutcome] = []
    # Iterate over the plan, not over the records: a planned cell without a record did not run.
    for target, suite in [(target, suite) for target in run.targets for suite in run.suites]:
        record = records.get((target, suite))
        if record is None:
            outcomes.append(never_run(target, suite))
            continue
        of_cell, outcome = cell_evidence(folder, run, record)
        sightings += of_cell
        outcomes.append(outcome)
    sightings = misaligned_blocks.merged(told_apart(sightings))
    sightings = second_opinion.without_contradicted(sightings, _passed(folder, run, sightings))
    findings = ordered(_finding(run, group, functools.partial(_replay, folder, run)) for group in _groups(sightings))
    return findings, outcomes, _counters(sightings)


def findings_of_cell(folder: Path, run: RunRecord, record: CellRecord) -> list[Finding]:
    """The findings of a cell that has ended, while others run: as it shows them alone, and without reproducers."""
    sightings, _ = cell_evidence(folder, run, record)
    return [_finding(run, group, lambda _best: "") for group in _groups(told_apart(sightings))]


def _passed(folder: Path, run: RunRecord, sightings: list[Sighting]) -> set[str]:
    """The tests of findings that the native build shows as well, and that passed on a target of the run or in its
    audit.
    """
    suites = {one.suite for one in sightings if one.everywhere}
    cells = (folder / target / suite for suite in sorted(suites) for target in run.targets)
    files = (place / event_log.NAME for cell in cells for place in (cell, cell / AUDIT))
    return set().union(*map(_passed_in, files))


def _passed_in(log: Path) -> set[str]:
    """The tests in an event log that passed. A name that examples share, of which some failed, is none of them."""
    events = event_log.read_events(log) if log.is_file() else []
    outcomes = [(event.name, event.outcome) for event in events if isinstance(event, TestEvent)]
    failed = {name for name, outcome in outcomes if outcome == "failed"}
    return {name for name, outcome in outcomes if outcome == "passed"} - failed


def _refuse_lacking_policies(run: RunRecord) -> None:
    needed = rules.fate_policies(run.policies, run.machines.values()) if "ignore" in run.policies else {"ignore"}
    if lacking := sorted(needed - run.policies.keys()):
        raise InconclusiveError(
            "the run does not record all its policies, so nothing can be concluded",
            because=f"it lacks {', '.join(lacking)}",
            remedy="run again",
        )


def kernel_counters(folder: Path, run: RunRecord) -> dict[str, Counters]:
    """Target -> the counters of its kernel during the tests. Excludes the canaries, which misalign on purpose."""
    found = {}
    for target in run.targets:
        suites = [record.suite for record in run.cells if record.target == target and record.suite != CANARY_SUITE]
        files = [folder / target / suite / "events.jsonl" for suite in suites]
        total = kernel_faults.counted([event for file in files for event in event_log.read_events(file)])
        if total is not None:
            found[target] = total
    return found


def _counters(sightings: list[Sighting]) -> dict[str, Counters]:
    by_target: dict[str, list[Sighting]] = {}
    for one in sightings:
        # An access that the hardware completes by itself never reaches a kernel.
        if one.detector == "audit" and one.fate != "hardware":
            by_target.setdefault(one.target, []).append(one)
    found = {}
    for target, recorded in by_target.items():
        counts = {name: sum(one.count for one in recorded if one.access_class == name) for name in _COUNTED}
        user = sum(one.count for one in recorded)
        found[target] = Counters(user=user, skipped=user - sum(counts.values()), **counts)
    return found


_COUNTED = ("half", "word", "dword", "multi")


def _groups(sightings: list[Sighting]) -> list[list[Sighting]]:
    """The sightings, grouped by misbehaviour."""
    by_identity: dict[str, list[Sighting]] = {}
    for sighting in _joined(sightings):
        by_identity.setdefault(sighting.identity, []).append(sighting)
    return list(by_identity.values())


def _joined(sightings: list[Sighting]) -> list[Sighting]:
    """The sightings, with each of unknown direction assigned to its function's load or store if one was seen."""

    def directed(one: Sighting, direction: str) -> str:
        return f"{one.identity}-{direction}"

    directed_identities = {one.identity for one in sightings if one.direction}
    joined = []
    for one in sightings:
        home = one.identity
        if one.kind == "alignment" and one.detector in registry.DETECTORS and not one.direction:
            home = next(
                (name for way in ("load", "store") if (name := directed(one, way)) in directed_identities), home
            )
        joined.append(msgspec.structs.replace(one, identity=home))
    return joined


def _finding(run: RunRecord, group: list[Sighting], replay_of: Callable[[Sighting], str]) -> Finding:
    best = best_of(group)
    place = best.frames[0] if best.frames else None
    sites: dict[tuple[str, ...], list[Sighting]] = {}
    for one in group:
        top = one.frames[0] if one.frames else None
        place_of_one = f"{top.function} {top.file}:{top.line}" if top else ""
        sites.setdefault((one.target, one.suite, one.detector, place_of_one, one.instruction), []).append(one)
    witnesses = [_witness(site) for site in sites.values()]
    reordered = all(one.reordered for one in group)
    return Finding(
        id=f"{ORDER}-{best.identity}" if reordered else best.identity,
        kind=ORDER if reordered else best.kind,
        title=best.title if best.identity != misaligned_blocks.IDENTITY else misaligned_blocks.title_of(best.blocks),
        function=place.function if place else "",
        file=place.file if place else "",
        line=place.line if place else 0,
        instruction=best.instruction,
        access=best.access,
        origin=place.origin if place else "unknown",
        targets=list(dict.fromkeys(sighting.target for sighting in group)),
        command=best.command,
        replay=replay_of(best),
        known="",
        witnesses=witnesses,
        occurrences=sum(one.count for one in group),
        difference=best.difference,
        unit=best.unit,
        ended=min((one.ended for one in group if one.ended), default=0),
        scope="everywhere" if all(one.everywhere for one in group) or _ends_all_servers(run, group) else "machine",
    )


def _replay(folder: Path, run: RunRecord, one: Sighting) -> str:
    """What replays a sighting: its reproducer, which is written, or the audit of a repaired access."""
    return _audit_of(run, one) if one.kind == REPAIRED else write_reproducer(folder, run, one)


def _audit_of(run: RunRecord, one: Sighting) -> str:
    """The command that names the instructions of accesses that a board's kernel only counted."""
    server, test = shlex.quote(run.server), shlex.quote(one.test.partition("[")[0])
    return f"plumb audit --server {server} --target {one.target} --suite {one.suite} --test {test}"


def _ends_all_servers(run: RunRecord, group: list[Sighting]) -> bool:
    """Whether the native build and the servers of every target ended in the same way.

    An open-ended suite gives each server other requests, so its tests are not asked again on the host. The native build
    answers them beside each target.
    """
    ended = {one.target for one in group}
    return {ORACLE, *run.targets} <= ended and all(one.detector == "process" for one in group)


def _witness(site: list[Sighting]) -> Witness:
    """The witness for the sightings of one instruction on one target by one detector."""
    first = site[0]
    top = first.frames[0] if first.frames else None
    return Witness(
        target=first.target,
        suite=first.suite,
        file=top.file if top else "",
        line=top.line if top else 0,
        instruction=first.instruction,
        access=first.access,
        test=first.test,
        evidence=first.evidence,
        backtrace=first.frames,
        against=first.against,
        detector=first.detector,
        count=sum(one.count for one in site),
        fate=first.fate,
        kernel=first.kernel,
        output=next((one.output for one in site if one.output), ""),
        unlike=first.unlike,
        difference=first.difference,
        cells=list(dict.fromkeys(one.cell for one in site)),
        overtakes=list(dict.fromkeys(text for one in site for text in one.overtakes)),
        occasions=list(dict.fromkeys(_occasion(one) for one in site)),
    )


def _occasion(one: Sighting) -> Occasion:
    functions = tuple(frame.function for frame in one.frames)
    return Occasion(
        test=one.test,
        command=one.command,
        title=one.title,
        said=one.message,
        functions=functions,
        asserted=one.asserted,
        id=one.exact_identity,
    )
