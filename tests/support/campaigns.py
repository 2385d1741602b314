"""Campaigns of stand-in jobs: many small cells on workers on the host."""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psutil  # type: ignore[import-untyped]

from harness.core.model import Cell
from harness.judge import merge
from harness.judge.conclusion import conclude
from harness.record import run_folder, stored_run
from harness.report.formats import registry as formats
from harness.workflows.campaign.campaign_folder import CampaignFolder, CampaignRecord
from harness.workflows.campaign.drive import Drive
from harness.workflows.campaign.engine.local_machines import LocalMachines
from harness.workflows.campaign.job import KNOWN, RUN, CampaignJob
from harness.workflows.campaign.version import harness_version
from tests.support.fakes import quiet, write
from tests.support.stored import StoredRun
from tests.support.survivors import lives

if TYPE_CHECKING:
    from harness.judge.findings import Judgement

STANDIN = Path(__file__).with_name("campaign_standin.py")
SERVER = "redis-3.2.6"


def standin_job(target: str, suite: str, *, version: str = "", seconds: float = 1.0) -> CampaignJob:
    """A job of one cell and its canaries."""
    words = ["check", "--target", target, "--suite", suite, "--known", KNOWN, "--run", RUN]
    return CampaignJob(
        name=f"{target}-{suite}",
        words=words,
        cells=[Cell(target=target, server=SERVER, suite=name) for name in ("canary", suite)],
        expected_seconds=seconds,
        deadline_seconds=120,
        version=version or harness_version(),
        known="findings = []\n",
    )


def standin_jobs(number: int, **settings: Any) -> list[CampaignJob]:
    """The given number of different jobs."""
    return [standin_job(f"target{at // 10}", f"suite{at % 10}", **settings) for at in range(number)]


def begin(folder: Path, jobs: list[CampaignJob]) -> CampaignFolder:
    """A campaign's folder, which may exist already."""
    now = datetime.datetime.now(tz=datetime.UTC).isoformat()
    return CampaignFolder.begin(folder, CampaignRecord(command=["check"], seed=1, jobs=jobs, begun=now))


def prepare(
    folder: Path,
    jobs: list[CampaignJob],
    *,
    seconds: float = 0.02,
    finds: tuple[str, ...] = (),
    test: str = "",
    **settings: Any,
) -> list[str]:
    """Write the files that the stand-in needs for these jobs, and return the words that start it. A job in `finds` has
    a finding. `test`: the name of its test; empty to name it after the suite.
    """
    for job in jobs:
        target, suite = job.cells[-1].target, job.cells[-1].suite
        stored = StoredRun(folder / "runs" / job.name, targets=(target,), suites=("canary", suite))
        stored.canary(target)
        outcome: Literal["passed", "failed"] = "failed" if job.name in finds else "passed"
        message = "wrong" if job.name in finds else ""
        stored.test(target, suite, test or f"test_{suite}", outcome=outcome, message=message)
        run_folder.write_run(
            stored.folder, msgspec.structs.replace(run_folder.read_run(stored.finish()), tests=job.tests)
        )
        known = write(folder / "known.toml", job.known)
        judgement, code = conclude(stored_run.read(stored.folder), known, quiet())
        formats.write(stored.folder, judgement)
        write(stored.folder / "exit-code", str(int(code)))
    return standin(folder, seconds=seconds, **settings)


def standin(folder: Path, name: str = "standin", **settings: Any) -> list[str]:
    """The words that start a stand-in with its own settings."""
    common = {"runs": str(folder / "runs"), "log": str(folder / "log"), "seconds": 0.02}
    path = write(folder / f"{name}.json", json.dumps({**common, **settings}))
    return [sys.executable, "-I", "-S", str(STANDIN), str(path)]


def started(folder: Path) -> list[tuple[str, int]]:
    """Job and process number of every stand-in that was started."""
    lines = [line.split() for line in (folder / "log").read_text("utf-8").splitlines()]
    return [(name, int(pid)) for name, pid in lines]


def machines(folder: Path, workers: int, program: list[str], **settings: Any) -> LocalMachines:
    """Workers that run the stand-in."""
    folder.mkdir(parents=True, exist_ok=True)
    return LocalMachines(folder, workers, program=program, **settings)


def drive(campaign: CampaignFolder, local: LocalMachines, **settings: Any) -> list[str]:
    """Run a campaign. Returns its output."""
    messages: list[str] = []
    Drive(campaign, local.cluster, messages.append, **{"restart_ended": local.restart_ended, **settings}).run()
    return messages


def joined(campaign: CampaignFolder) -> Judgement:
    """The joined judgement of all jobs."""
    return merge.join([formats.read(campaign.run_of(name)) for name in campaign.jobs])


def checked(campaign: CampaignFolder, jobs: list[CampaignJob], finds: tuple[str, ...] = ()) -> None:
    """Assert that every job arrived once, and that the joined verdicts are the expected ones."""
    landings = Counter(entry.job for entry in campaign.journal() if entry.what == "landed")
    assert landings == Counter(job.name for job in jobs)
    actual = {(cell.target, cell.suite): cell.verdict for cell in joined(campaign).cells}
    expected = {(cell.target, cell.suite): "PASS" for job in jobs for cell in job.cells}
    expected |= {(job.cells[-1].target, job.cells[-1].suite): "FAIL" for job in jobs if job.name in finds}
    assert actual == expected


def nothing_left(folder: Path) -> bool:
    """Whether no process that the test started is left: no stand-in, worker or scheduler."""
    # The command line of an ending process cannot be read, and counts as empty.
    words = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    begun = started(folder / "standin")
    return not any(str(folder) in word for word in words) and not any(lives(pid) for _, pid in begun)


def works(pid: int) -> bool:
    """Whether a worker has a job now: it has a process for the job as well as the watchdog."""
    try:
        return pid > 0 and any("standin.py" in " ".join(one.cmdline()) for one in psutil.Process(pid).children())
    except psutil.Error:
        return False


class Saboteur(threading.Thread):
    """Kills processes of a cluster while a campaign runs."""

    def __init__(self, local: LocalMachines, *, workers: int, schedulers: int, every: float, seed: int = 1) -> None:
        super().__init__(daemon=True)
        self.local = local
        self.random = random.Random(seed)
        self.workers, self.schedulers, self.every = workers, schedulers, every
        self.killed = Counter[str]()
        self.done = threading.Event()

    def run(self) -> None:
        plan = ["worker"] * self.workers + ["scheduler"] * self.schedulers
        self.random.shuffle(plan)
        for kind in plan:
            if self.done.wait(self.every * self.random.uniform(0.5, 1.5)):
                return
            one = self.local.scheduler
            # Killing a worker that has no job, because it hangs or its machine is unfit, would lose nothing.
            while kind == "worker" and not self.done.is_set():
                if busy := [worker for worker in self.local.workers if works(worker.pid)]:
                    one = self.random.choice(busy)
                    break
                time.sleep(0.01)
            if self.done.is_set():
                return
            if pid := one.pid:
                os.kill(pid, signal.SIGKILL)
                self.killed[kind] += 1
