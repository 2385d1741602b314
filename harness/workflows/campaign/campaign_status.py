"""The status of a campaign at a moment, read only from its folder, so any machine that can read the folder can show
it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

from harness.core.errors import PlumblineError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.core.untrusted_text import one_line
from harness.report.formats import registry as formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness.judge.findings import Judgement
    from harness.workflows.campaign.campaign_folder import CampaignFolder, CampaignState, JournalEntry

STALE_SECONDS = 30.0
"""A state that is older than this is of a campaign that was stopped or killed."""
RATE_SECONDS = 600.0
"""The time over which the rate is counted."""


class WorkerRow(Record, frozen=True):
    """A worker in the table."""

    name: str
    version: str
    cells: int
    running: list[str]
    landed: int
    """How many jobs it has delivered."""


class FindingRow(Record, frozen=True):
    """A finding so far."""

    id: str
    title: str
    known: bool
    jobs: list[str]


class CorpusRow(Record, frozen=True):
    """What the jobs of a target have learned so far."""

    target: str
    generation: int
    features: int
    """How many features the corpus shows: edges of the guest's code, where its emulator reports them."""
    kept: int
    """How many entries it needs for that."""
    growth: list[tuple[float, int]]
    """Seconds since the campaign began → features: the page's chart."""


class CampaignStatus(Record, frozen=True):
    """The document of `plumb campaign status --json`."""

    folder: str
    begun: str
    goes_on: bool
    """Whether a process works on it now."""
    jobs: int
    arrived: int
    given: int
    waiting: int
    cells: int
    cells_arrived: int
    jobs_per_minute: float
    """Over the last ten minutes in which results arrived."""
    minutes_left: float | None
    """Estimated from the current rate; None if there is no rate yet."""
    lost: int
    """How often a job was given again."""
    again: int
    """How many results arrived a second time."""
    refused: list[str]
    """Workers of another version, and both versions."""
    verdicts: dict[str, int]
    """Verdict → number of cells so far."""
    findings: list[FindingRow]
    workers: list[WorkerRow]
    remarks: list[str]
    arrivals: list[tuple[float, int]] = msgspec.field(default_factory=list)
    """Seconds since the campaign began → jobs that had arrived: the page's chart."""
    corpora: list[CorpusRow] = msgspec.field(default_factory=list)
    """One for each target of a campaign whose jobs learn."""


def status_of(folder: CampaignFolder) -> CampaignStatus:
    """Read a campaign's folder."""
    journal, state, arrived = folder.journal(), folder.state(), folder.arrived()
    complete = len(arrived) >= len(folder.jobs) or bool(journal and journal[-1].what == "ended")
    working = state if state is not None and abs(time.time() - state.at) < STALE_SECONDS and not complete else None
    entries: dict[str, list[JournalEntry]] = defaultdict(list)
    for entry in journal:
        entries[entry.what].append(entry)
    landed = entries["landed"]
    rate = _rate([entry.at for entry in landed])
    missing = len(folder.jobs) - len(arrived)
    given = working.given if working is not None else 0
    judged = list(_judged(folder, arrived))
    cells = _cells(judged)
    began = journal[0].at if journal else 0.0
    return CampaignStatus(
        folder=str(folder.path),
        begun=folder.record.begun,
        goes_on=working is not None,
        jobs=len(folder.jobs),
        arrived=len(arrived),
        given=given,
        waiting=missing - given,
        cells=len({(cell.target, cell.suite) for job in folder.record.jobs for cell in job.cells}),
        cells_arrived=len(cells),
        jobs_per_minute=round(rate * 60, 2),
        minutes_left=round(missing / rate / 60, 1) if rate else None,
        lost=len(entries["lost"]),
        again=len(entries["again"]),
        refused=[f"{entry.worker}: {entry.why}" for entry in entries["refused"]],
        verdicts=dict(Counter(map(str, cells.values()))),
        findings=_findings(judged),
        workers=_workers(working, Counter(entry.worker for entry in landed)),
        remarks=[f"{entry.job} ran twice: {entry.why}" for entry in entries["again"] if entry.why],
        arrivals=[(round(entry.at - began, 1), number) for number, entry in enumerate(landed, 1)],
        corpora=_corpora(entries["learned"], began),
    )


def _judged(folder: CampaignFolder, arrived: Iterable[str]) -> Iterator[tuple[str, Judgement]]:
    """The jobs that have arrived, and the judgements of each: of several results, if they fail differently."""
    for name in sorted(arrived):
        for run in folder.runs_of(name):
            try:
                judgement = formats.read(run)
            except PlumblineError:
                # A command without a run folder.
                continue
            yield name, judgement


def _cells(judged: Iterable[tuple[str, Judgement]]) -> dict[tuple[str, str], Verdict]:
    """Target and suite → the verdict so far. Canaries are in several jobs, and so is a cell cut into short runs."""
    cells: dict[tuple[str, str], Verdict] = {}
    for _, judgement in judged:
        for cell in judgement.cells:
            place = (cell.target, cell.suite)
            cells[place] = Verdict.merge([cell.verdict, *([cells[place]] if place in cells else [])])
    return cells


def _findings(judged: Iterable[tuple[str, Judgement]]) -> list[FindingRow]:
    """Each finding with the jobs that show it. It is known if it is known in every one of them."""
    findings: dict[str, FindingRow] = {}
    for name, judgement in judged:
        for finding in judgement.findings:
            row = findings.get(finding.id)
            known = bool(finding.known) and (row is None or row.known)
            jobs = list(dict.fromkeys([*(row.jobs if row else []), name]))
            findings[finding.id] = FindingRow(id=finding.id, title=finding.title, known=known, jobs=jobs)
    return list(findings.values())


def _workers(working: CampaignState | None, landed: Mapping[str, int]) -> list[WorkerRow]:
    """The workers of a running campaign. `landed`: worker → how many jobs it has delivered."""
    return [
        WorkerRow(
            name=worker.name,
            version=worker.version,
            cells=worker.cells,
            running=worker.running,
            landed=landed.get(worker.name, 0),
        )
        for worker in (working.workers if working is not None else [])
    ]


def _corpora(learned: list[JournalEntry], began: float) -> list[CorpusRow]:
    by_target: dict[str, list[JournalEntry]] = {}
    for entry in learned:
        by_target.setdefault(entry.target, []).append(entry)
    return [
        CorpusRow(
            target=target,
            generation=len(entries),
            features=entries[-1].features,
            kept=entries[-1].kept,
            growth=[(round(entry.at - began, 1), entry.features) for entry in entries],
        )
        for target, entries in sorted(by_target.items())
    ]


def _rate(times: list[float]) -> float:
    """Results a second, over the last RATE_SECONDS before the last one."""
    recent = [at for at in times if at > times[-1] - RATE_SECONDS] if times else []
    return (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else 0.0


def lines_of(status: CampaignStatus) -> list[str]:
    """The status for people, one fact a line."""
    left = f", {status.minutes_left:g} min left" if status.minutes_left and status.goes_on else ""
    how = "running" if status.goes_on else "complete" if status.arrived == status.jobs else "stopped"
    lines = [
        f"{how}: {status.arrived} of {status.jobs} jobs arrived, {status.given} given, {status.waiting} waiting",
        f"cells: {status.cells_arrived} of {status.cells}"
        + "".join(f", {number} {verdict}" for verdict, number in sorted(status.verdicts.items())),
        f"rate: {status.jobs_per_minute:g} jobs a minute{left}",
    ]
    lines += [f"given again: {status.lost}, arrived twice: {status.again}"] if status.lost or status.again else []
    lines += [
        f"worker {one_line(worker.name)}: {worker.landed} jobs, {worker.cells} cells at a time, "
        f"{', '.join(worker.running) or 'idle'}"
        for worker in status.workers
    ]
    lines += [
        f"corpus {one_line(row.target)}: generation {row.generation} shows {row.features} features "
        f"with {row.kept} entries"
        for row in status.corpora
    ]
    lines += [f"refused: {one_line(text)}" for text in status.refused]
    lines += [
        f"{'known' if finding.known else 'finding'} {one_line(finding.id)}: {one_line(finding.title)}"
        for finding in status.findings
    ]
    lines += [f"remark: {one_line(text)}" for text in status.remarks]
    if not status.goes_on and status.arrived < status.jobs:
        lines.append(f"to continue, repeat the command that began it with --run {status.folder}")
    return lines
