"""The cost of the campaign engine: `python -m tests.support.campaign_benchmark [overhead | scale] …`, run by hand.

`overhead` runs cells that sleep on 1, 2 and 4 workers on the host, and measures from the first job's start to the last
arrival. `scale` runs the campaign's own process and the engine's scheduler against many idle workers in a few
processes. What remains is the cost of sending a job, and of receiving, verifying and storing its result.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil  # type: ignore[import-untyped]

from harness.core import json_codec
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.workflows.campaign import archive, task
from harness.workflows.campaign.campaign_folder import JobReport
from harness.workflows.campaign.engine import cluster
from harness.workflows.campaign.engine.engine_process import CONFIGURATION, EngineSettings
from harness.workflows.campaign.job import CampaignJob
from harness.workflows.campaign.version import harness_version, resource_of
from tests.support import campaigns

if TYPE_CHECKING:
    from collections.abc import Sequence


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def overhead(seconds: float, cells_each: int, workers: Sequence[int]) -> None:
    """Efficiency: the time that the cells slept, divided by the time that the workers were available."""
    for number in workers:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            folder = Path(name)
            jobs = campaigns.standin_jobs(number * cells_each)
            program = campaigns.prepare(folder / "standin", jobs, seconds=seconds)
            campaign = campaigns.begin(folder / "campaign", jobs)
            with campaigns.machines(folder / "machines", number, program) as local:
                campaigns.drive(campaign, local)
            landed = [entry.at for entry in campaign.journal() if entry.what == "landed"]
            joined = max(entry.at for entry in campaign.journal() if entry.what == "joined")
            took = max(landed) - joined
            share = len(jobs) * seconds / number / took
            say(f"{number} workers, {len(jobs)} cells of {seconds:g} s: {took:.2f} s, efficiency {share:.1%}")


def scale(workers: int, cells: int, seconds: float, hosts: int) -> None:
    """Processor time of the campaign's process and of the scheduler for each cell, and bytes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        made = campaigns.standin_jobs(1)
        campaigns.prepare(folder / "standin", made)
        run = folder / "standin" / "runs" / made[0].name
        # As large as a job of real cells, which compresses to a few hundred kilobytes.
        (run / "target0" / "suite0" / "ballast").write_bytes(os.urandom(200_000))
        packed = archive.pack(run)
        (folder / "result").write_bytes(packed)
        # Different words give a different key, while the same cells get the same result.
        jobs = [
            msgspec.structs.replace(made[0], name=f"job{at}", words=[*made[0].words, str(at)]) for at in range(cells)
        ]
        campaign = campaigns.begin(folder / "campaign", jobs)
        with campaigns.machines(folder / "machines", 0, []) as local:
            settings = EngineSettings(role="worker", cluster=local.cluster, cells=1, scratch=str(folder / "result"))
            hosted = []
            for host in range(hosts):
                file = folder / f"host{host}.json"
                file.write_bytes(json_codec.pretty(settings))
                words = [
                    sys.executable,
                    "-m",
                    "tests.support.campaign_benchmark",
                    "host",
                    file,
                    workers // hosts,
                    seconds,
                ]
                with (folder / f"host{host}.log").open("ab") as output:
                    hosted.append(
                        process.start([str(w) for w in words], output=output, folder=ROOT, environment=dict(os.environ))
                    )
            before, own = cpu(local.scheduler.pid), time.process_time()
            began = time.monotonic()
            try:
                campaigns.drive(campaign, local)
            finally:
                for one in hosted:
                    process.kill_group(one)
            took = time.monotonic() - began
            engine, client = cpu(local.scheduler.pid) - before, time.process_time() - own
            memory = psutil.Process(local.scheduler.pid).memory_info().rss >> 20
        landed = sorted(entry.at for entry in campaign.journal() if entry.what == "landed")
        rate = (len(landed) - 1) / (landed[-1] - landed[0])
        say(
            f"{workers} workers, {cells} cells of {seconds:g} s, {len(packed) / 1000:.0f} kB each: {took:.1f} s, "
            f"{rate:.1f} results a second; for each cell {1000 * engine / cells:.1f} ms of the scheduler and "
            f"{1000 * client / cells:.1f} ms of the campaign's process; the scheduler has {memory} MB"
        )


def cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def host(settings: EngineSettings, content: bytes, number: int, seconds: float) -> None:
    """Many workers in one process. Their jobs wait, and return the same result under their own keys."""
    import dask
    from distributed import Worker

    dask.config.set(CONFIGURATION)
    digest = archive.digest_of_archive(content)

    async def idle(described: bytes, _tree: bytes | None) -> tuple[bytes, bytes]:
        await asyncio.sleep(seconds)
        given = json_codec.decode(described, CampaignJob)
        report = JobReport(key=given.key, worker="many", exit_code=0, seconds=seconds, archive=digest)
        return json_codec.encode(report), content

    # The engine refers to the function by its module and name.
    task.carry_out = idle  # type: ignore[assignment]
    made: list[Any] = []
    for at in range(number):
        worker = Worker(
            settings.cluster.address,
            nthreads=1,
            resources={resource_of(harness_version()): 1.0},
            security=cluster.security_of(settings.cluster),
            name=f"{os.getpid()}-{at}",
            memory_limit=0,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
        )
        made.append(worker)
        await worker
    await asyncio.gather(*(worker.finished() for worker in made))


def main(words: list[str]) -> None:
    if words[:1] == ["host"]:
        settings = json_codec.decode(Path(words[1]).read_bytes(), EngineSettings)
        asyncio.run(host(settings, Path(settings.scratch).read_bytes(), int(words[2]), float(words[3])))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["overhead", "scale"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--cells", type=int, default=3, help="overhead: for each worker; scale: of all")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--hosts", type=int, default=2)
    chosen = parser.parse_args(words)
    if chosen.what == "overhead":
        overhead(chosen.seconds, chosen.cells, chosen.workers)
    else:
        for number in chosen.workers:
            scale(number, chosen.cells, chosen.seconds, chosen.hosts)


if __name__ == "__main__":
    main(sys.argv[1:])
