"""The state of each job of a campaign: it waits, it is retried after a loss, or it is abandoned."""

from __future__ import annotations

import shlex
from collections import deque
from typing import TYPE_CHECKING

from harness.core.errors import ExitCode, InfrastructureError, PlumblineError
from harness.workflows.campaign.campaign_folder import JobReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.workflows.campaign.campaign_folder import CampaignFolder
    from harness.workflows.campaign.job import CampaignJob

ATTEMPTS = 4
"""How often a job is given to a worker whose machine cannot carry it out."""
LOSSES = 50
"""How often a job is given again because its worker was lost. More than this is the job's doing."""


class JobFailedError(PlumblineError):
    """A job said nothing about the server, and another worker would not change that."""


class JobLedger:
    """The jobs of a campaign that have not arrived, the longest first."""

    def __init__(self, folder: CampaignFolder, say: Callable[[str], None]) -> None:
        """`say`: reports to the user a job that a machine could not run."""
        self._folder = folder
        self._say = say
        arrived = folder.arrived()
        missing = [job for job in folder.record.jobs if job.name not in arrived]
        self.waiting = deque(sorted(missing, key=lambda job: -job.expected_seconds))
        self._attempts: dict[str, int] = {}
        self._failed_on: dict[str, list[str]] = {}
        """Job → the workers that could not carry it out, or whose result was refused."""
        self._losses: dict[str, int] = {}
        self._given_up: dict[str, JobReport] = {}
        self._failures_since_result = 0

    def __bool__(self) -> bool:
        """Whether a job waits."""
        return bool(self.waiting)

    @property
    def given_up(self) -> dict[str, JobReport]:
        """The jobs that are not tried again, and how each ended."""
        return dict(self._given_up)

    def take(self) -> tuple[CampaignJob, int]:
        """The next job, and how often it was taken before."""
        job = self.waiting.popleft()
        attempt = self._attempts[job.name] = self._attempts.get(job.name, -1) + 1
        return job, attempt

    def give_back(self, job: CampaignJob, *, first: bool = False) -> None:
        """Queue the job again. It is not the job's fault that it has no result."""
        if first:
            self.waiting.appendleft(job)
        else:
            self.waiting.append(job)

    def failed_on(self, job: CampaignJob) -> list[str]:
        """The workers that could not carry the job out."""
        return self._failed_on.get(job.name, [])

    def note_result(self) -> None:
        """A job has arrived, so that at least one machine can carry jobs out."""
        self._failures_since_result = 0

    def note_loss(self, job: CampaignJob, why: str) -> None:
        """A worker was lost with a job, which says nothing about the job. Often, it says something."""
        number = self._losses[job.name] = self._losses.get(job.name, 0) + 1
        self._folder.note("lost", job=job.name, why=why[:400])
        if number < LOSSES:
            self.waiting.append(job)
            return
        why = f"its worker was lost {number} times, the last time with: {why}"
        self._given_up[job.name] = JobReport(
            key=job.key, worker="", exit_code=ExitCode.INFRASTRUCTURE, seconds=0, problem=why
        )

    def note_failure(self, job: CampaignJob, report: JobReport, workers: int) -> None:
        """A job said nothing about the server. Where the machine may be the reason, another of the `workers` tries.

        Raises what `refuse_failures` raises when nothing succeeds at all: then the rest is not tried.
        """
        self._folder.note("lost", job=job.name, worker=report.worker, why=report.problem[:400])
        if report.exit_code == ExitCode.INTERRUPTED:
            self.note_loss(job, report.problem)
            return
        if report.exit_code != ExitCode.INFRASTRUCTURE:
            self._given_up[job.name] = report
            return
        self._say(f"{job.name} on {report.worker}: {report.problem}")
        failed_on = self._failed_on.setdefault(job.name, [])
        failed_on.append(report.worker)
        self._failures_since_result += 1
        hopeless = self._failures_since_result >= 2 * ATTEMPTS + 2 * workers
        if len(failed_on) < ATTEMPTS and not hopeless:
            self.waiting.append(job)
            return
        self._given_up[job.name] = report
        if hopeless:
            self.refuse_failures()

    def refuse_failures(self) -> None:
        """Raise the worst failure of the jobs that were given up, with their number. Raises nothing without one.

        Raises JobFailedError for a job whose command failed wherever it runs, and InfrastructureError if machines could
        not carry it out.
        """
        if not self._given_up:
            return
        name, report = max(self._given_up.items(), key=lambda item: item[1].exit_code)
        total, arrived = len(self._folder.record.jobs), len(self._folder.arrived())
        raised = InfrastructureError if report.exit_code == ExitCode.INFRASTRUCTURE else JobFailedError
        error = raised(
            f"{len(self._given_up)} jobs of the campaign could not be run",
            where=name + (f" on {report.worker}" if report.worker else ""),
            because=report.problem.removeprefix("error: "),
            remedy=f"repeat the command with --run {shlex.quote(str(self._folder.path))}: "
            f"{arrived} of {total} jobs have arrived and are kept in {self._folder.path}",
        )
        error.exit_code = ExitCode(report.exit_code)
        raise error
