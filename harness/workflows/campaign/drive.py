"""The campaign's own process: submits jobs to the engine, collects their results, and resubmits lost jobs.

The engine never has more jobs than there are cells to run them. Therefore no job has to be stolen from a busy worker, a
worker that joins late gets its share, and a restarted scheduler has nothing to remember.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import json_codec
from harness.core.errors import ExitCode, InconclusiveError, InfrastructureError
from harness.core.processes import process
from harness.workflows.campaign import shared_store, task
from harness.workflows.campaign.campaign_folder import CampaignState, JobReport
from harness.workflows.campaign.engine.cluster import security_of
from harness.workflows.campaign.job_ledger import JobLedger
from harness.workflows.campaign.version import resource_of
from harness.workflows.campaign.workers import PATIENCE_SECONDS, STRANGERS_SECONDS, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client, Future

    from harness.workflows.campaign.campaign_folder import CampaignFolder
    from harness.workflows.campaign.engine.cluster import Cluster
    from harness.workflows.campaign.islands import Islands
    from harness.workflows.campaign.job import CampaignJob

TICK_SECONDS = 0.2
"""How long the campaign waits for a result before it checks on workers and processes."""
UNSEEN_SECONDS = 5.0
CONNECT_SECONDS = 20.0
GATHER_SECONDS = 60.0
_FAILED = set(ExitCode) - {ExitCode.PASS, ExitCode.FINDINGS}
"""The exit codes of jobs that had a problem."""
ANSWER_SECONDS = 600.0
"""How much longer than a job's deadline, which its worker watches, a worker may have it."""


class _SchedulerLostError(Exception):
    """The engine's scheduler is gone, and with it everything that it was given."""


class Drive:
    """Runs the missing jobs of a campaign."""

    def __init__(
        self,
        folder: CampaignFolder,
        cluster: Cluster,
        say: Callable[[str], None],
        *,
        trees: dict[str, bytes] | None = None,
        islands: Islands | None = None,
        restart_ended: Callable[[], list[str]] = list,
        watch: Callable[[], None] = lambda: None,
        patience_seconds: float = PATIENCE_SECONDS,
        strangers_seconds: float = STRANGERS_SECONDS,
        failures: dict[str, JobReport] | None = None,
    ) -> None:
        """`trees`: digest → packed source; `islands`: what jobs learn from each other; None if they do not.

        `failures`: takes the jobs that could not be run, and how each ended; None if they are an error.

        `restart_ended` restarts the processes of this host that have ended; `watch` is called often.
        """
        self.folder = folder
        self.cluster = cluster
        self.say = say
        self._trees = trees or {}
        self._islands = islands
        self._restart_ended = restart_ended
        self._watch = watch
        self._failures = failures
        self._patience = patience_seconds
        self._store = shared_store.SharedStore(cluster.store) if cluster.store else None
        self._jobs = JobLedger(folder, say)
        self._given: dict[str, Future[Any]] = {}
        """Job → the future of its result."""
        self._taken: dict[str, Future[Any]] = {}
        """The same of jobs that have ended, while their results are taken."""
        self._ended = threading.Event()
        self._lost_with_scheduler: set[str] = set()
        self._workers = Workers(
            folder, cluster, say, patience_seconds=patience_seconds, strangers_seconds=strangers_seconds
        )
        self._unseen: dict[str, float] = {}
        """Job that was given and that no worker has → since when."""
        self._given_at: dict[str, float] = {}
        """Job → when it was given last."""
        self.seconds_of_cells = 0.0

    def state(self) -> str:
        """`12/40 jobs, 4 given, 4 cells on 4 workers`."""
        total = len(self.folder.record.jobs)
        done = total - len(self._jobs.waiting) - len(self._given) - len(self._jobs.given_up)
        offered = f"{self._workers.cells} cells on {len(self._workers)} workers"
        return f"{done}/{total} jobs arrived, {len(self._given)} given, {offered}"

    def run(self) -> None:
        """Return when every job has arrived.

        Raises JobFailedError for a job whose command failed wherever it runs, and InfrastructureError if machines
        cannot carry jobs out, or there is no scheduler or worker. What has arrived by then stays.
        """
        try:
            self._put_trees()
            self._run()
        finally:
            self._write_state()
            self.folder.note("ended")
        if self._failures is None:
            self._jobs.refuse_failures()
        else:
            self._failures.update(self._jobs.given_up)

    def _run(self) -> None:
        lost = 0.0
        while self._jobs or self._given:
            try:
                with self._connected() as client:
                    lost = 0.0
                    self._serve(client)
            except _SchedulerLostError as error:
                process.refuse_after_stop()
                lost = lost or time.monotonic()
                self._begin_again(str(error))
                if time.monotonic() - lost > self._patience:
                    raise InfrastructureError(
                        "the scheduler cannot be reached",
                        where=self.cluster.address,
                        because=str(error),
                        remedy="start it (plumb campaign scheduler CLUSTER.toml) and repeat the command: results that "
                        f"have arrived are kept in {self.folder.path}",
                    ) from error

    def _put_trees(self) -> None:
        if self._store is not None:
            for digest, content in self._trees.items():
                self._store.put("trees", digest, content)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Client]:
        from distributed import Client  # noqa: PLC0415 - loading it takes half a second

        self._restart_ended()
        self._watch()
        try:
            client: Client = Client(
                self.cluster.address,
                security=security_of(self.cluster),
                timeout=CONNECT_SECONDS,
                set_as_default=False,
                direct_to_workers=False,
            )
        except (OSError, TimeoutError, ValueError) as error:
            time.sleep(TICK_SECONDS)
            raise _SchedulerLostError(f"{type(error).__name__}: {error}") from error
        try:
            yield client
        finally:
            self._given, self._taken = {}, {}
            with contextlib.suppress(Exception):
                client.close(timeout=5)

    def _begin_again(self, why: str) -> None:
        """Everything that was given is given again, to a scheduler that knows nothing of it."""
        jobs = self.folder.jobs
        lost = [name for name in jobs if name in self._lost_with_scheduler]
        for name in lost:
            self._jobs.give_back(jobs[name], first=True)
        if lost or self._workers:
            self.folder.note("scheduler", why=why[:200])
            self.say(f"the scheduler is gone: {len(lost)} jobs are submitted again")
        self._lost_with_scheduler = set()
        self._workers.forget()

    def _serve(self, client: Client) -> None:
        """Give and take until nothing is left. Raises _SchedulerLostError."""
        self._workers.note_work()
        try:
            while self._jobs or self._given:
                process.refuse_after_stop()
                self._watch()
                self._restart_ended()
                if client.status != "running":
                    raise _SchedulerLostError(f"the connection is {client.status}")
                self._look(client)
                self._ended.clear()
                self._taken = {name: one for name, one in self._given.items() if one.status != "pending"}
                for name in self._taken:
                    del self._given[name]
                idle = not self._taken
                if self._islands is not None:
                    # The next job begins with what these have learned.
                    self._take_ended()
                # Jobs are submitted before results are unpacked and verified, so that no worker waits for that.
                while self._jobs and len(self._given) < self._workers.cells:
                    self._give(client, *self._jobs.take())
                if idle:
                    self._ended.wait(TICK_SECONDS)
                self._take_ended()
        except (OSError, TimeoutError) as error:
            raise _SchedulerLostError(f"{type(error).__name__}: {error}") from error
        finally:
            self._lost_with_scheduler = self._given.keys() | self._taken.keys()

    def _take_ended(self) -> None:
        for name in list(self._taken):
            self._take(name, self._taken[name])
            del self._taken[name]

    def _give(self, client: Client, job: CampaignJob, attempt: int) -> None:
        tree: Any = None
        if job.tree and self._store is None:
            # A task of the engine's own: workers hand the source on to each other, and it can be made again.
            tree = client.submit(bytes, self._trees[job.tree], key=f"plumb-tree-{job.tree[:32]}")
        self._given_at[job.name] = time.monotonic()
        future = self._given[job.name] = client.submit(
            task.carry_out,
            json_codec.encode(job),
            tree,
            self._islands.generation(job) if self._islands is not None and job.learns else None,
            # The number of the attempt: for a key that failed, the engine would return the same failure again.
            key=f"plumb-{job.key}-{attempt}",
            resources={resource_of(job.version): 1},
            priority=job.expected_seconds,
            # Workers that have not failed in this job, if there are any.
            workers=self._workers.others_than(failed) if (failed := self._jobs.failed_on(job)) else None,
            pure=False,
        )
        future.add_done_callback(lambda _: self._ended.set())

    def _take(self, name: str, future: Future[Any]) -> None:
        """Handle the outcome of a job: a result, a failure of a machine, or nothing."""
        job = self.folder.jobs[name]
        if future.status in {"cancelled", "lost"}:
            self._lose(job, f"the engine has it as {future.status}")
            return
        if future.status == "error":
            error = future.exception(timeout=GATHER_SECONDS)
            self._lose(job, f"{type(error).__name__}: {error}")
            return
        try:
            answer = future.result(timeout=GATHER_SECONDS)
        except TimeoutError:
            # The worker that had it is gone: the engine does the job again.
            self._given[name] = future
            return
        except Exception as error:  # noqa: BLE001 - whatever the engine raises here says nothing about the job
            self._lose(job, f"{type(error).__name__}: {error}")
            return
        self._receive(job, answer, future)

    def _receive(self, job: CampaignJob, answer: object, future: Future[Any]) -> None:
        self._workers.note_work()
        try:
            report, content = result_in(answer)
        except (TypeError, RecursionError, msgspec.DecodeError) as error:
            self._blame(job, self._workers.holder_of(future), f"its answer is no result: {error}")
            return
        if report.problem:
            self._jobs.note_failure(job, report, len(self._workers))
            return
        try:
            if report.archive and self._store is not None:
                content = self._store.get("results", report.archive)
            self.folder.land(job, report, content)
        except InconclusiveError as error:
            refused = msgspec.structs.replace(report, problem=str(error), exit_code=ExitCode.INFRASTRUCTURE)
            self._jobs.note_failure(job, refused, len(self._workers))
            return
        if report.archive and self._store is not None:
            self._store.remove("results", report.archive)
        if self._islands is not None and job.learns:
            self._islands.learn(job)
        self._jobs.note_result()
        self.seconds_of_cells += report.seconds

    def _blame(self, job: CampaignJob, worker: str, why: str) -> None:
        """A worker did not do its job. Another one tries, if there is one."""
        report = JobReport(key=job.key, worker=worker, exit_code=ExitCode.INFRASTRUCTURE, seconds=0, problem=why)
        self._jobs.note_failure(job, report, len(self._workers))

    def _lose(self, job: CampaignJob, why: str) -> None:
        self._workers.note_work()
        self._jobs.note_loss(job, why)

    def _look(self, client: Client) -> None:
        """Look after the workers, and write down the state."""
        running = self._workers.look(client)
        if running is None:
            return
        self._write_state()
        self._give_unseen_again(running)
        self._take_from_silent()
        if self._given:
            self._workers.note_work()
        else:
            self._workers.refuse_to_wait()

    def _give_unseen_again(self, running: set[str]) -> None:
        """Give jobs again that no worker has.

        A worker that withdrew as its job was given leaves it with the scheduler, which looks for a worker only when a
        new one joins.
        """
        now = time.monotonic()
        waiting = {name for name, future in self._given.items() if future.status == "pending"} - running
        self._unseen = {name: self._unseen.get(name, now) for name in waiting}
        for name, since in list(self._unseen.items()):
            if now - since > UNSEEN_SECONDS:
                future = self._given.pop(name)
                future.cancel()
                self._jobs.give_back(self.folder.jobs[name])

    def _take_from_silent(self) -> None:
        """Give the jobs of workers that do not answer to others. A worker itself ends a job at its deadline."""
        now = time.monotonic()
        for name in list(self._given):
            job, seconds = self.folder.jobs[name], now - self._given_at[name]
            if seconds > job.deadline_seconds + ANSWER_SECONDS:
                future = self._given.pop(name)
                future.cancel()
                self._blame(job, self._workers.running(name), f"no answer within {seconds:.0f} s")

    def _write_state(self) -> None:
        self.folder.write_state(
            CampaignState(
                at=round(time.time(), 2),
                pid=os.getpid(),
                host=os.uname().nodename,
                workers=self._workers.states,
                waiting=len(self._jobs.waiting),
                given=len(self._given),
            )
        )


def result_in(answer: object) -> tuple[JobReport, bytes]:
    """A job's result in what a worker returned, which may be anything. Its exit code fits its problem.

    Raises TypeError, RecursionError or msgspec.DecodeError.
    """
    if isinstance(answer, tuple) and len(answer) == 2:
        described, content = answer
        if isinstance(described, bytes) and isinstance(content, bytes):
            report = json_codec.decode(described, JobReport)
            if report.exit_code not in (_FAILED if report.problem else task.JUDGED):
                raise TypeError(f"exit code {report.exit_code} with{'' if report.problem else 'out'} a problem")
            return report, content
    raise TypeError(f"a {type(answer).__name__} without a report and an archive")
