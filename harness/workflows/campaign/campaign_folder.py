"""A campaign's folder: what was asked for, what has arrived, and what happened meanwhile. It is the campaign's journal.

FOLDER/campaign.json        CampaignRecord: every job
FOLDER/jobs/NAME/run/       a job's run folder, with its own report
FOLDER/jobs/NAME/told.json  JobReport: how the job ended
FOLDER/jobs/NAME/again-2/   the same of a second result that has failures which the first lacks; again-3/ of a third
FOLDER/journal.jsonl        JournalEntry lines: workers that came and went, jobs that were lost, given again, refused
FOLDER/now.json             CampaignState, written every few seconds while the campaign runs
FOLDER/campaign.html        the same for people
FOLDER/findings.json …     the joined judgement, once every job has arrived

A job has arrived if its folder is there: it is renamed into place, after its result was checked. A campaign that was
stopped therefore loses at most what was being worked on.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import InconclusiveError, InfrastructureError, UsageError
from harness.core.finding import Verdict
from harness.core.model import Cell, Record
from harness.judge.findings import Judgement
from harness.workflows.campaign.archive import unpack
from harness.workflows.campaign.job import CampaignJob  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.workflows.campaign.result_check import check_run
from harness.workflows.second_judgement import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
AGAIN = "again-"
"""The beginning of the names of folders with further results of a job, which end with their numbers."""


class CampaignRecord(Record, frozen=True):
    """FOLDER/campaign.json."""

    command: list[str]
    """The words after `plumb` that a person typed."""
    seed: int
    jobs: list[CampaignJob]
    begun: str
    """UTC, ISO 8601."""
    order: list[Cell] = msgspec.field(default_factory=list)
    """The plan's cells, in the order in which one machine would run and report them."""
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """Cell → how long it took before, from which the jobs were cut."""
    format: int = FORMAT


class JobReport(Record, frozen=True):
    """How a job ended, as its worker reports it."""

    key: str
    worker: str
    """The worker's name."""
    exit_code: int
    seconds: float
    """The command's elapsed time, in seconds."""
    output: str = ""
    """The command's document on standard output."""
    messages: str = ""
    """The last lines of standard error."""
    archive: str = ""
    """Digest of the packed run folder; empty if there is none."""
    problem: str = ""
    """Why the command did not run, or not to its end; empty if it did."""


Happening = Literal[
    "began", "resumed", "ended", "joined", "left", "landed", "again", "lost", "refused", "scheduler", "learned"
]


class JournalEntry(Record, frozen=True, omit_defaults=True):
    """One thing that happened.

    `again`: a result arrived twice; `lost`: a job is given to another worker; `learned`: a target's corpus has a new
    generation.
    """

    at: float
    """Seconds since 1970."""
    what: Happening
    job: str = ""
    worker: str = ""
    why: str = ""
    target: str = ""
    features: int = 0
    """How many features the target's corpus shows now: edges of the guest's code, where its emulator reports them."""
    kept: int = 0
    """How many entries the corpus needs for that."""


class WorkerState(Record, frozen=True):
    """A worker, as the engine knows it."""

    name: str
    address: str
    version: str
    """Empty for a worker that is not Plumbline's."""
    cells: int
    """How many cells it runs at a time; 0 while it gets none."""
    running: list[str]
    """Names of jobs."""


class CampaignState(Record, frozen=True):
    """FOLDER/now.json: the state of the campaign's own process at a moment."""

    at: float
    pid: int
    host: str
    workers: list[WorkerState]
    waiting: int
    given: int


class CampaignFolder:
    """Reads and writes a campaign's folder. One process writes."""

    def __init__(
        self, path: Path, record: CampaignRecord, read_document: Callable[[str, str], object] = lambda _, __: None
    ) -> None:
        """`read_document` gets the name and the document of a job that has no run folder. It raises InconclusiveError
        for a document that is not the job's.
        """
        self.path = path
        self._read_document = read_document
        self.record = record
        self.jobs = {job.name: job for job in record.jobs}

    @classmethod
    def begin(
        cls, path: Path, record: CampaignRecord, read_document: Callable[[str, str], object] = lambda _, __: None
    ) -> CampaignFolder:
        """Begin a campaign in a folder, or continue the one in it.

        Raises UsageError if the folder has a campaign with other jobs.
        """
        if not (path / "campaign.json").is_file():
            path.mkdir(0o700, parents=True, exist_ok=True)
            _write(path / "campaign.json", json_codec.pretty(record))
            begun = cls(path, record, read_document)
            begun.note("began")
            return begun
        stored = cls.read(path)
        wanted, has = {job.key for job in record.jobs}, {job.key for job in stored.record.jobs}
        if wanted != has:
            raise UsageError(
                "the folder belongs to another campaign",
                where=str(path),
                because=_difference(stored.record, record),
                remedy="name a new folder, or repeat the command that began it: plumb "
                + " ".join(stored.record.command),
            )
        stored.note("resumed")
        return cls(path, stored.record, read_document)

    @classmethod
    def read(cls, path: Path) -> CampaignFolder:
        """Read a campaign's folder. Raises UsageError if there is none, InconclusiveError if it is damaged."""
        try:
            record = json_codec.decode((path / "campaign.json").read_bytes(), CampaignRecord)
        except FileNotFoundError as error:
            raise UsageError(
                "not a campaign's folder", where=str(path), because="it has no campaign.json", remedy="--run FOLDER"
            ) from error
        except msgspec.DecodeError as error:
            raise InconclusiveError(
                "the campaign's record is damaged", where=str(path / "campaign.json"), because=str(error)
            ) from error
        return cls(path, record)

    def place(self, name: str) -> Path:
        """The path of a job's folder, once it has arrived."""
        return self.path / "jobs" / name

    def run_of(self, name: str) -> Path:
        """A job's run folder."""
        return self.place(name) / "run"

    def runs_of(self, name: str) -> list[Path]:
        """The run folders of all results of a job that count: the first one, and those with other failures."""
        return [self.run_of(name), *(folder / "run" for folder in sorted(self.place(name).glob(f"{AGAIN}*")))]

    def arrived(self) -> dict[str, JobReport]:
        """The jobs that have arrived."""
        return {name: report for name in self.jobs if (report := self.report(name)) is not None}

    def report(self, name: str) -> JobReport | None:
        """How a job ended; None if it has not arrived. A damaged report counts as none, and the job is done again."""
        try:
            return json_codec.decode((self.place(name) / "told.json").read_bytes(), JobReport)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            shutil.rmtree(self.place(name), ignore_errors=True)
            return None

    def land(self, job: CampaignJob, report: JobReport, content: bytes) -> bool:
        """Put a job's result into its place. Returns whether it is the first of this job.

        A second result is compared with the first, and a difference is noted. The first counts. The second replaces it
        if only the second fails, and counts as well if it has failures that the first lacks.

        Raises InconclusiveError for a result that is damaged, is another job's, lacks a cell, its run folder or its
        document, or says what its evidence does not.
        """
        unfinished = self.place(f".{job.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            if report.key != job.key:
                raise InconclusiveError("a result belongs to another job", where=job.name, because=report.key)
            if job.cells and not report.archive:
                raise InconclusiveError("a result has no run folder", where=job.name)
            if not job.cells and not report.output.strip():
                # The command ended with an error that says nothing about the server.
                raise InconclusiveError("a result has no document", where=job.name, because=report.messages)
            if not job.cells:
                self._read_document(job.name, report.output)
            if report.archive:
                unpack(content, report.archive, unfinished / "run")
                check_run(unfinished / "run", job)
            (unfinished / "told.json").write_bytes(json_codec.pretty(report))
            first = self.report(job.name)
            if first is None:
                unfinished.rename(self.place(job.name))
                self.note("landed", job=job.name, worker=report.worker)
                return True
            differs = _seen_differently(self.place(job.name), unfinished)
            self.note("again", job=job.name, worker=report.worker, why=differs)
            self._keep_failures(job.name, unfinished)
            return False
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _keep_failures(self, name: str, folder: Path) -> None:
        """Keep a further result of a job if it has failures that those which are there lack."""
        there = [_failures(run) for run in self.runs_of(name)]
        if not _failures(folder / "run") - set().union(*there):
            return
        if there == [set()]:
            self._replace(name, folder)
        else:
            folder.rename(self.place(name) / f"{AGAIN}{len(there) + 1}")

    def _replace(self, name: str, folder: Path) -> None:
        """Put a folder into a job's place. If this process is killed meanwhile, the job has not arrived."""
        old = self.place(f".{name}.{os.getpid()}.old")
        shutil.rmtree(old, ignore_errors=True)
        self.place(name).rename(old)
        folder.rename(self.place(name))
        shutil.rmtree(old, ignore_errors=True)

    def note(self, what: Happening, **details: Any) -> None:
        """Add a line to the journal. `details`: further fields of JournalEntry."""
        entry = JournalEntry(at=round(time.time(), 2), what=what, **details)
        with (self.path / "journal.jsonl").open("ab") as stream:
            stream.write(json_codec.encode(entry) + b"\n")

    def journal(self) -> list[JournalEntry]:
        """The events so far, without a line that a killed process left unfinished."""
        try:
            lines = (self.path / "journal.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        entries = []
        for line in lines:
            try:
                entries.append(json_codec.decode(line, JournalEntry))
            except msgspec.DecodeError:
                continue
        return entries

    def write_state(self, state: CampaignState) -> None:
        """Replace now.json."""
        _write(self.path / "now.json", json_codec.encode(state))

    def state(self) -> CampaignState | None:
        """The last now.json; None if no process has written one."""
        try:
            return json_codec.decode((self.path / "now.json").read_bytes(), CampaignState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


def _seen_differently(first: Path, second: Path) -> str:
    """How two results of one job differ in their statements about the server; empty if they agree."""
    one, another = _outcome(first), _outcome(second)
    if one == another:
        return ""
    only = [f"only the first has {name}" for name in sorted(one - another)]
    only += [f"only the second has {name}" for name in sorted(another - one)]
    return "; ".join(only)


def _failures(run: Path) -> set[str]:
    """The cells that fail in a run, and its new findings where they were seen; empty for a command without a run."""
    path = run / "findings.json"
    if not path.is_file():
        return set()
    judged = json_codec.decode(path.read_bytes(), Judgement)
    cells = {f"{cell.target}/{cell.suite}" for cell in judged.cells if cell.verdict == Verdict.FAIL}
    news = (finding for finding in judged.findings if not finding.known)
    return cells | {f"{one.id} on {witness.target}/{witness.suite}" for one in news for witness in one.witnesses}


def _outcome(folder: Path) -> set[str]:
    """The verdicts and findings of a result, or the document of a command without a run folder."""
    path = folder / "run" / "findings.json"
    if not path.is_file():
        report = json_codec.decode((folder / "told.json").read_bytes(), JobReport)
        return {f"exit code {report.exit_code}"}
    return outcome_of(json_codec.decode(path.read_bytes(), Judgement))


def _difference(stored: CampaignRecord, wanted: CampaignRecord) -> str:
    """The first difference of two campaigns, in words."""
    before, now = stored.jobs[0], wanted.jobs[0]
    if before.version != now.version:
        return f"Plumbline {before.version} began it, and this is {now.version}"
    if stored.seed != wanted.seed:
        return f"its seed is {stored.seed}, and the seed of this one is {wanted.seed}"
    names, wanted_names = {job.name for job in stored.jobs}, {job.name for job in wanted.jobs}
    if names != wanted_names:
        return f"its jobs are {', '.join(sorted(names))}"
    if before.tree != now.tree:
        return "the server's source has changed since"
    return "its options differ"


def _write(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        what = "the campaign's folder cannot be written"
        raise InfrastructureError(what, where=str(path), because=str(error)) from error


def cells_of(record: CampaignRecord) -> list[Cell]:
    """All cells of a campaign, each once: canaries are in several jobs."""
    found = {(cell.target, cell.suite): cell for job in record.jobs for cell in job.cells}
    return list(found.values())
