"""The workers of a campaign, as the engine knows them: which joined and left, which are refused, and how long to wait
for one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from harness.core.errors import InfrastructureError
from harness.workflows.campaign.campaign_folder import WorkerState
from harness.workflows.campaign.version import versions_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distributed import Client, Future

    from harness.workflows.campaign.campaign_folder import CampaignFolder
    from harness.workflows.campaign.engine.cluster import Cluster

LOOK_SECONDS = 1.0
"""How often the scheduler is queried for its workers."""
PATIENCE_SECONDS = 600.0
"""How long a campaign waits for a scheduler, or for a worker of its version."""
STRANGERS_SECONDS = 60.0
"""How long it waits if there are workers, all of another version."""


class Workers:
    """The current workers. The campaign's journal records their changes."""

    def __init__(
        self,
        folder: CampaignFolder,
        cluster: Cluster,
        say: Callable[[str], None],
        *,
        patience_seconds: float,
        strangers_seconds: float,
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._say = say
        self._patience = patience_seconds
        self._strangers_patience = strangers_seconds
        self._names = {job.key: job.name for job in folder.record.jobs}
        self._at: dict[str, WorkerState] = {}
        """Address → worker."""
        self._strangers: set[str] = set()
        self._looked = 0.0
        self._idle_since = time.monotonic()

    def __len__(self) -> int:
        return len(self._at)

    @property
    def version(self) -> str:
        """The version that workers must have."""
        return self._folder.record.jobs[0].version

    @property
    def cells(self) -> int:
        """How many cells they run at a time."""
        return sum(worker.cells for worker in self._at.values() if worker.version == self.version)

    @property
    def states(self) -> list[WorkerState]:
        """All of them, by name."""
        return sorted(self._at.values(), key=lambda worker: worker.name)

    def others_than(self, names: Collection[str]) -> list[str] | None:
        """The addresses of those that take jobs and are not among some; None if there are none."""
        others = [
            address
            for address, worker in self._at.items()
            if worker.cells and worker.version == self.version and worker.name not in names
        ]
        return others or None

    def forget(self) -> None:
        """Know none, after the loss of the scheduler."""
        self._at = {}

    def note_work(self) -> None:
        """Restart the waiting, because there is a result of a job."""
        self._idle_since = time.monotonic()

    def look(self, client: Client) -> set[str] | None:
        """Query the scheduler, and record which workers joined and left. Returns the jobs that workers have; None
        between two queries.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        information = client.scheduler_info(n_workers=-1)
        running: dict[str, list[str]] = {}
        for address, keys in client.processing().items():
            running[address] = [self._name_of(str(key)) for key in keys]
        found = {}
        for address, worker in information["workers"].items():
            versions = versions_in(worker["resources"])
            version = self.version if self.version in versions else next(iter(versions), "")
            found[address] = WorkerState(
                name=str(worker["name"]),
                address=address,
                version=version,
                cells=versions.get(version, 0),
                running=[name for name in running.get(address, []) if name],
            )
        for address in found.keys() - self._at.keys():
            self._welcome(found[address])
        for address in self._at.keys() - found.keys():
            self._folder.note("left", worker=self._at[address].name)
        self._at = found
        return {name for names in running.values() for name in names}

    def running(self, job: str) -> str:
        """The name of a worker that has a job; empty if none has it."""
        return next((worker.name for worker in self._at.values() if job in worker.running), "")

    def holder_of(self, future: Future[Any]) -> str:
        """The name of the worker that has a job's result; empty if that cannot be found out."""
        try:
            addresses = future.client.who_has([future])[future.key]
        except (OSError, TimeoutError, LookupError):
            return ""
        return next((self._at[address].name for address in addresses if address in self._at), "")

    def _welcome(self, worker: WorkerState) -> None:
        if worker.version == self.version:
            self._folder.note("joined", worker=worker.name)
            return
        why = f"it has Plumbline {worker.version or '(none)'}, the campaign has {self.version}"
        # Once for each name: a restarted worker has another address.
        if worker.name not in self._strangers:
            self._strangers.add(worker.name)
            self._folder.note("refused", worker=worker.name, why=why)
            self._say(f"the worker {worker.name} is refused: {why}")

    def refuse_to_wait(self) -> None:
        """Raise InfrastructureError if none of them has taken a job for too long."""
        waited = time.monotonic() - self._idle_since
        others = [worker for worker in self._at.values() if worker.version != self.version]
        if others and len(others) == len(self._at) and waited > self._strangers_patience:
            versions = ", ".join(sorted({worker.version or "none" for worker in others}))
            raise InfrastructureError(
                "every worker has another version",
                where=self._cluster.address,
                because=f"the campaign has Plumbline {self.version}, the workers have {versions}",
                remedy="give the workers this checkout and start them again: plumb campaign worker CLUSTER.toml",
            )
        if waited > self._patience:
            raise InfrastructureError(
                f"no worker took a job within {waited:.0f} s",
                where=self._cluster.address,
                remedy="start workers: plumb campaign worker CLUSTER.toml",
            )

    def _name_of(self, key: str) -> str:
        return self._names.get(key.removeprefix("plumb-").rpartition("-")[0], "")
