"""Campaigns with real cells, and a long one whose machines fail continually."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from harness.core.cache import default_root
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.record import corpus_folder
from harness.workflows.campaign.campaign_folder import CampaignFolder
from harness.workflows.campaign.engine.local_machines import LocalMachines
from harness.workflows.campaign.job import LEARNED, check_jobs
from harness.workflows.campaign.spread import commands_on
from harness.workflows.campaign.version import harness_version
from tests.end_to_end.support import plumb_runs
from tests.support import campaigns, fakes
from tests.support.campaigns import Saboteur, begin, checked, machines, nothing_left, prepare, standin, standin_jobs
from tests.support.fakes import write
from tests.support.survivors import eventually, lives

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end
TARGETS = ("--target", "armv5", "--target", "aarch64", "--server", "redis-3.2.6")
SELECTED = (*TARGETS, "--suite", "bitops", "--suite", "sds", "--test", "bitfield", "--test", "limit")


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """The parts of a judgement that depend neither on durations nor on the place of the evidence."""
    cells = {(one["target"], one["suite"]): (one["verdict"], one["passed"], one["failed"]) for one in document["cells"]}
    # The title belongs to one target, and the number of faults in a loop varies.
    # A finding that was counted twice has twice as many witnesses.
    findings = {
        one["id"]: (sorted(one["targets"]), one["known"], len(one["witnesses"])) for one in document["findings"]
    }
    return {"verdict": document["verdict"], "cells": cells, "findings": findings, "remarks": set(document["remarks"])}


@pytest.mark.slow(instead="tests/unit/workflows/test_campaign.py; test_engine.py, on stand-in jobs")
def test_a_check_on_workers_has_the_result_of_the_same_check_alone(tmp_path: Path) -> None:
    known = write(tmp_path / "known.toml", "findings = []\n")
    common = ("check", *SELECTED, "--seed", 7, "--known", known, "--json")
    alone = plumb_runs.run(*common, "--run", tmp_path / "alone")
    spread = plumb_runs.run(*common, "--run", tmp_path / "spread", "--on", "local:2")
    assert (spread.returncode, alone.returncode) == (1, 1), spread.stderr
    assert comparable(plumb_runs.document(spread)) == comparable(plumb_runs.document(alone))
    assert comparable(plumb_runs.document(alone))["findings"], "nothing to compare"
    # The reproducers are at the paths in the commands.
    for finding in plumb_runs.document(spread)["findings"]:
        assert str(tmp_path / "spread" / "jobs") in finding["replay"]
    # Cells that have arrived are not run again, and have the same result.
    again = plumb_runs.run(*common, "--run", tmp_path / "spread", "--on", "local:2")
    assert comparable(plumb_runs.document(again)) == comparable(plumb_runs.document(spread))
    assert "running" not in again.stderr
    status = plumb_runs.document(plumb_runs.run("campaign", "status", tmp_path / "spread", "--json"))
    assert (status["arrived"], status["goes_on"]) == (status["jobs"], False)


@pytest.mark.slow(instead="tests/unit/workflows/test_islands.py, on streams that jobs exchange")
def test_a_stream_that_a_fuzzing_job_found_on_one_target_is_tried_on_the_other(tmp_path: Path) -> None:
    words = ("--target", "armv5", "--target", "sparc64", "--server", "redis-7.0.15", "--test", "streams", "--seed", 1)
    common = ("fuzz", *words, "--time", "5s", "--corpus", tmp_path / "corpora", "--on", "local:1")
    finished = plumb_runs.run(*common, "--run", tmp_path / "run")
    assert finished.returncode == 0, finished.stderr
    campaign = CampaignFolder.read(tmp_path / "run")
    learned = [entry for entry in campaign.journal() if entry.what == "learned"]
    assert [entry.features > 3000 for entry in learned] == [True, True], learned
    first, second = (
        corpus_folder.tried(campaign.run_of(entry.job) / LEARNED / f"redis-7.0.15-{entry.target}") for entry in learned
    )
    # Jobs draw different streams, so a stream that both tried was sent to the second job.
    given = [name for name in first.keys() & second.keys() if second[name].new]
    assert given, "no stream of the first target shows anything on the second"
    # The first job tries the second job's streams in the next run. On a slow machine there may be none.
    theirs = tmp_path / "corpora" / f"redis-7.0.15-{learned[0].target}"
    untried = [entry.name for entry in corpus_folder.entries(theirs) if corpus_folder.features_of(entry) is None]
    assert set(untried) == {name for name in second.keys() - first.keys() if second[name].new}


@pytest.mark.slow(
    instead="the other tests of test_campaign.py, on checks and fuzzing; test_server_cost.py, without workers"
)
def test_a_measurement_on_workers_has_the_rows_of_the_same_measurement_alone(tmp_path: Path) -> None:
    server = plumb_runs.run("fetch", "--server", "redis-7.0.15").stdout.split(": ", 1)[1].strip()
    words = ("--target", "armv5", "--server", server, "--against", "redis-7.0.15", "--rounds", 2)
    common = ("measure", *words, "--workload", "pi-get*", "--json")
    alone, spread = plumb_runs.run(*common), plumb_runs.run(*common, "--on", "local:1", "--run", tmp_path / "run")
    assert (spread.returncode, alone.returncode) == (0, 0), spread.stderr
    one, other = plumb_runs.document(alone), plumb_runs.document(spread)
    campaign = CampaignFolder.read(tmp_path / "run")
    assert len(campaign.arrived()) == 2
    # Another machine does not have this path, so the source is sent with the job.
    assert all(job.tree and server not in job.words for job in campaign.jobs.values())

    def rows(measured: dict[str, Any], name: str) -> list[tuple[str, ...]]:
        return [tuple(row.get(key, "") for key in ("target", "server", "workload", "figure")) for row in measured[name]]

    for name in ("costs", "differences"):
        assert rows(one, name) == rows(other, name) != []
    # A worker's count is reproducible within the noise of two rounds.
    for here, there in zip(one["costs"], other["costs"], strict=True):
        assert there["instructions"]["value"] == pytest.approx(here["instructions"]["value"], rel=0.01)
    assert {name: one[name] for name in ("servers", "against", "limit", "optimisation", "no_figures")} == {
        name: other[name] for name in ("servers", "against", "limit", "optimisation", "no_figures")
    }


@pytest.mark.slow(instead="tests/unit/workflows/test_campaign.py, on entries of the shared store")
def test_a_worker_that_joins_with_an_empty_cache_uses_the_builds_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = write(tmp_path / "known.toml", "findings = []\n")
    plan = make_plan(Catalog(), targets=("armv5",), server="redis-3.2.6", suites=("sds",), tier="quick")
    request = fakes.quick_request(plan, server="redis-3.2.6", known=known, run=tmp_path / "run")
    request = msgspec.structs.replace(request, warnings="off", tests=["limit"])
    jobs = check_jobs(Catalog(), request, version=harness_version(), known="findings = []\n")
    caches = [default_root(), tmp_path / "cold"]
    for number, cache in enumerate(caches):
        monkeypatch.setenv("PLUMBLINE_CACHE", str(cache))
        (tmp_path / f"machines-{number}").mkdir()
        campaign = begin(tmp_path / f"campaign-{number}", jobs)
        with LocalMachines(tmp_path / f"machines-{number}", 1, store=str(tmp_path / "store")) as local:
            campaigns.drive(campaign, local)
        (report,) = campaign.arrived().values()
    assert report.exit_code in {0, 1}, report.messages
    assert (tmp_path / "cold" / "emulators").is_dir()
    assert "building redis" not in report.messages
    assert "building QEMU" not in report.messages
    assert "judging" in report.messages, "the messages are cut"


def test_the_commands_of_a_cluster_run_jobs_and_end_at_a_signal(tmp_path: Path) -> None:
    assert plumb_runs.run("campaign", "keys", tmp_path / "keys").returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    file = write(tmp_path / "cluster.toml", f'address = "tls://127.0.0.1:{port}"\nkeys = "keys"\n')
    # The worker waits for the scheduler, which comes later.
    with (
        plumb_runs.running("campaign", "worker", file, "--cells", 1, "--name", "box") as worker,
        plumb_runs.running("campaign", "scheduler", file) as scheduler,
    ):
        reports = commands_on(
            fakes.quiet(),
            {"suites": ["list", "suites", "--json"]},
            tmp_path / "campaign",
            on=str(file),
            insecure=False,
            expected_seconds=1,
        )
        every = [*below(worker.pid), *below(scheduler.pid)]
        for one in (worker, scheduler):
            one.terminate()
            one.wait(timeout=60)
    assert (reports["suites"].exit_code, reports["suites"].worker) == (0, "box")
    assert len(every) > 3
    assert eventually(lambda: not [one for one in every if lives(one.pid)])


def below(pid: int) -> list[psutil.Process]:
    """All processes that a command has started."""
    return list(psutil.Process(pid).children(recursive=True))


def emulators(pid: int) -> list[psutil.Process]:
    """The emulators that a command has started."""
    found = []
    for one in below(pid):
        # The process may have ended since it was listed.
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.name().startswith("qemu-"):
                found.append(one)
    return found


@pytest.mark.slow(instead=("test_killed_workers_and_schedulers_change_nothing; tests/unit/workflows/test_campaign.py"))
def test_a_campaign_whose_process_is_killed_leaves_no_process_and_can_continue(tmp_path: Path) -> None:
    run = tmp_path / "run"
    selected = ("--target", "aarch64", "--suite", "sds", "--server", "redis-7.0.15", "--seed", "7")
    common = ("check", *selected, "--run", run, "--on", "local:1")
    with plumb_runs.running(*common) as plumb:
        assert plumb_runs.wait_for(lambda: emulators(plumb.pid), seconds=plumb_runs.RUN_SECONDS)
        every = below(plumb.pid)
        # Kill both the supervisor and the command, so that neither can clean up.
        os.kill(plumb.pid, signal.SIGKILL)
        every[0].kill()
    assert len(every) > 5
    assert eventually(lambda: not [one for one in every if lives(one.pid)]), [one for one in every if lives(one.pid)]
    assert CampaignFolder.read(run).arrived() == {}
    finished = plumb_runs.run(*common)
    assert finished.returncode == 0, finished.stderr
    assert [entry.what for entry in CampaignFolder.read(run).journal()].count("resumed") == 1


@pytest.mark.slow(instead="test_killed_workers_and_schedulers_change_nothing, for fewer")
def test_a_hundred_lost_workers_and_five_lost_schedulers_change_no_verdict(tmp_path: Path) -> None:
    jobs = standin_jobs(200)
    finds = tuple(job.name for job in jobs[::17])
    program = prepare(tmp_path / "standin", jobs, seconds=1.0, finds=finds)
    campaign = begin(tmp_path / "campaign", jobs)
    local = machines(tmp_path / "machines", 4, program, worker_ttl="10 seconds")
    local.replace(3, program=standin(tmp_path / "standin", "full", full=True), withdrawn_seconds=5.0)
    with local:
        saboteur = Saboteur(local, workers=100, schedulers=5, every=1.5)
        saboteur.start()
        hung: list[int] = []

        def hang_once() -> None:
            if not hung and len(campaign.arrived()) > 50:
                hung.append(local.workers[1].pid)
                if hung[0]:
                    os.kill(hung[0], signal.SIGSTOP)

        campaigns.drive(campaign, local, watch=hang_once)
        # The campaign may end before all of them are killed.
        saboteur.done.set()
        saboteur.join()
    checked(campaign, jobs, finds)
    assert hung
    assert eventually(lambda: nothing_left(tmp_path))
    assert saboteur.killed == {"worker": 100, "scheduler": 5}
