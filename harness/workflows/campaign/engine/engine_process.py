"""A process of the engine: a scheduler or a worker.

`python -m harness.workflows.campaign.engine.engine_process FILE` is one.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.core.processes import process, temporary_folder
from harness.core.processes.process_tree import STOPPING
from harness.workflows.campaign import task
from harness.workflows.campaign.engine import cluster
from harness.workflows.campaign.version import harness_version, resource_of

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

CONFIGURATION = {
    # A job that is lost with its worker is not at fault. The campaign itself counts such losses.
    "distributed.scheduler.allowed-failures": 20,
    # Stealing ignores resources.
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60 seconds",
    "distributed.comm.timeouts.connect": "20s",
    "distributed.worker.memory.terminate": False,
    "distributed.admin.log-length": 1000,
}
LOOPBACK_PORT = "127.0.0.1:0"


class EngineSettings(Record, frozen=True):
    """The settings of one process of the engine."""

    role: Literal["scheduler", "worker"]
    cluster: cluster.Cluster
    cells: int = 1
    """Worker: how many cells it runs at a time."""
    name: str = ""
    program: list[str] = msgspec.field(default_factory=list)
    """Worker: the words before a job's; empty for `plumb` itself."""
    scratch: str = ""
    """Worker: where run folders are written; empty for the folder of temporary files."""
    dashboard: str = ""
    """Scheduler: where its own page listens, as `127.0.0.1:8787`; empty for none."""
    withdrawn_seconds: float = 20.0
    """Worker: as harness.workflows.campaign.task.WorkerSettings."""
    worker_ttl: str = ""
    """Scheduler: after what time a silent worker counts as lost; empty for the usual one."""


def main(words: list[str]) -> int:
    """Be the process that a file describes, until the scheduler is gone or a signal comes."""
    settings = json_codec.decode(Path(words[0]).read_bytes(), EngineSettings)
    process.stop_on_signals()
    temporary_folder.confine()
    import asyncio  # noqa: PLC0415 - every command that takes `--on` imports this module, asyncio thirty more

    import dask  # noqa: PLC0415 - loading it takes half a second, in which signals must be handled

    dask.config.set(CONFIGURATION)
    if settings.worker_ttl:
        dask.config.set({"distributed.scheduler.worker-ttl": settings.worker_ttl})
    try:
        asyncio.run(_scheduler(settings) if settings.role == "scheduler" else _worker(settings))
    except KeyboardInterrupt:
        return 2
    return 0


async def _scheduler(settings: EngineSettings) -> None:
    from distributed import Scheduler  # noqa: PLC0415

    where = settings.cluster
    made: Scheduler = Scheduler(
        host=where.listen or where.host,
        port=where.port,
        protocol=where.address.partition("://")[0],
        security=cluster.security_of(where),
        dashboard=bool(settings.dashboard),
        # Without an address, the engine's page would listen on every interface, even if it is switched off.
        dashboard_address=settings.dashboard or LOOPBACK_PORT,
    )
    async with made:
        print(f"scheduler at {made.address}", flush=True)  # noqa: T201 - who started it waits for this line
        await made.finished()


async def _worker(settings: EngineSettings) -> None:
    from distributed import Worker  # noqa: PLC0415

    version = harness_version()
    scratch = tempfile.mkdtemp(prefix="engine-")
    made: Worker = Worker(
        settings.cluster.address,
        # One more, for the small tasks that hand sources on.
        nthreads=settings.cells + 1,
        resources={resource_of(version): float(settings.cells)},
        security=cluster.security_of(settings.cluster),
        name=settings.name or None,
        memory_limit=0,
        local_directory=scratch,
        dashboard=False,
        dashboard_address=LOOPBACK_PORT,
        death_timeout=60,
        # A worker listens where the scheduler can reach it, and on loopback alone if the scheduler is on this host.
        host="127.0.0.1" if cluster.is_loopback(settings.cluster.host) else None,
    )
    task.WorkerSettings.withdrawn_seconds = settings.withdrawn_seconds
    task.WorkerSettings.cells = settings.cells
    task.WorkerSettings.worker = made
    task.WorkerSettings.store = settings.cluster.store
    task.WorkerSettings.name = settings.name or f"{os.uname().nodename}-{os.getpid()}"
    task.WorkerSettings.program = settings.program or task.PLUMB
    task.WorkerSettings.scratch = Path(settings.scratch) if settings.scratch else None
    async with made:
        print(f"worker {task.WorkerSettings.name} at {made.address}, Plumbline {version}", flush=True)  # noqa: T201
        await made.finished()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    process.stop()
    # A thread may still wait for a job that has just been killed.
    os._exit(status)
