"""Campaigns of stand-in jobs on real workers: lost machines, refused workers, and workers that lie."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from typing import TYPE_CHECKING

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from harness.core.errors import ExitCode, InfrastructureError
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.record import corpus_folder
from harness.workflows.campaign.campaign_folder import CampaignFolder
from harness.workflows.campaign.campaign_page import page_of
from harness.workflows.campaign.campaign_status import lines_of, status_of
from harness.workflows.campaign.islands import Islands
from harness.workflows.campaign.job import CORPORA
from harness.workflows.campaign.spread import commands_on
from harness.workflows.campaign.version import harness_version
from tests.end_to_end.support.machines import beyond
from tests.support import campaigns
from tests.support.campaigns import (
    SERVER,
    Saboteur,
    begin,
    checked,
    machines,
    nothing_left,
    prepare,
    standin,
    standin_job,
    standin_jobs,
    started,
)
from tests.support.fakes import quiet, write
from tests.support.survivors import eventually, lives

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


ANSWERS = {
    "junk": "lambda *_: (b'junk', b'')",
    "three values": "lambda *_: (None, None, None)",
    "nested too deeply": "lambda *_: (b'[' * 100_000, b'')",
    "nothing": "lambda *_: __import__('time').sleep(1000)",
}


@pytest.mark.parametrize("answer", ["junk", "nothing", *map(beyond, sorted(ANSWERS.keys() - {"junk", "nothing"}))])
def test_a_worker_that_answers_nonsense_or_never_loses_its_job_to_another(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: bytes that are no report ended the campaign, and a worker that never answered kept it for ever."""
    hostile = (
        "import sys\n"
        "if any(word.endswith('local-1.json') for word in sys.orig_argv):\n"
        "    from harness.workflows.campaign import task\n"
        "    import time\n"
        f"    given = {ANSWERS[answer]}\n"
        # A job is given up whose only worker fails three times, and the other worker may start a second later.
        "    task.carry_out = lambda *words: (time.sleep(1.5), given(*words))[1]\n"
    )
    write(tmp_path / "hostile" / "sitecustomize.py", hostile)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hostile"))
    monkeypatch.setattr("harness.workflows.campaign.drive.ANSWER_SECONDS", 5.0)
    jobs = [msgspec.structs.replace(job, deadline_seconds=15.0) for job in standin_jobs(4)]
    program = prepare(tmp_path / "standin", jobs, seconds=0.4)
    campaign = begin(tmp_path / "campaign", jobs)
    with machines(tmp_path / "machines", 2, program) as local:
        campaigns.drive(campaign, local)
    checked(campaign, jobs)
    lost = [entry for entry in campaign.journal() if entry.what == "lost"]
    assert {entry.worker for entry in lost} == {"local-1"}
    wanted = "no answer within" if answer == "nothing" else "its answer is no result"
    assert all(entry.why.startswith(wanted) for entry in lost), lost


def test_killed_workers_and_schedulers_change_nothing(tmp_path: Path) -> None:
    jobs = standin_jobs(18)
    finds = (jobs[3].name, jobs[14].name)
    program = prepare(tmp_path / "standin", jobs, seconds=0.4, finds=finds)
    campaign = begin(tmp_path / "campaign", jobs)
    with machines(tmp_path / "machines", 3, program) as local:
        saboteur = Saboteur(local, workers=4, schedulers=1, every=0.8)
        saboteur.start()
        campaigns.drive(campaign, local)
        saboteur.done.set()
        saboteur.join()
    checked(campaign, jobs, finds)
    assert saboteur.killed["worker"] >= 3
    assert len(started(tmp_path / "standin")) > len(jobs), "no job was interrupted"
    assert eventually(lambda: nothing_left(tmp_path))
    page = page_of(status_of(campaign))
    assert f"{len(jobs)} of {len(jobs)} jobs arrived" in page.replace("\n", " ")
    assert f'href="jobs/{finds[0]}/run/report.html"' in page


@pytest.mark.slow(
    instead=(
        "test_killed_workers_and_schedulers_change_nothing; "
        "test_a_job_that_came_to_a_withdrawn_worker_begins_when_the_worker_returns"
    )
)
def test_a_machine_without_space_and_one_that_hangs_lose_nothing(tmp_path: Path) -> None:
    jobs = standin_jobs(12)
    program = prepare(tmp_path / "standin", jobs, seconds=0.3)
    campaign = begin(tmp_path / "campaign", jobs)
    local = machines(tmp_path / "machines", 3, program, worker_ttl="3 seconds")
    withdrawn_seconds = 5.0
    local.replace(0, program=standin(tmp_path / "standin", "full", full=True), withdrawn_seconds=withdrawn_seconds)
    began = time.monotonic()
    with local:
        hung: list[int] = []

        def hang_soon() -> None:
            if not hung and len(campaign.arrived()) > 2:
                hung.append(local.workers[1].pid)
                os.kill(hung[0], signal.SIGSTOP)

        said = campaigns.drive(campaign, local, watch=hang_soon)
        assert hung
    checked(campaign, jobs)
    unfit = [line for line in said if "No space left on device" in line]
    # The unfit worker withdrew after each failure, and did not take job after job, however slow the machine was.
    assert 1 <= len(unfit) <= 1 + (time.monotonic() - began) / withdrawn_seconds, said
    assert eventually(lambda: nothing_left(tmp_path))


def test_a_worker_of_another_version_is_refused_with_both_versions_named(tmp_path: Path) -> None:
    other = tmp_path / "checkout"
    for name in ("harness", "suites", "targets", "toolchains"):
        shutil.copytree(ROOT / name, other / name, ignore=shutil.ignore_patterns("__pycache__"))
    jobs = standin_jobs(4)
    program = prepare(tmp_path / "standin", jobs)
    campaign = begin(tmp_path / "campaign", jobs)
    write(other / "harness" / "new.py", "CHANGED = 1\n")
    local = machines(tmp_path / "machines", 1, program)
    local.replace(0, checkout=other, program=program)
    with local, pytest.raises(InfrastructureError, match="another version") as refused:
        campaigns.drive(campaign, local, strangers_seconds=2)
    assert campaign.arrived() == {}
    versions = {word for word in str(refused.value).replace(",", " ").split() if word.startswith("0.1.0+")}
    assert harness_version() in versions
    assert len(versions) == 2
    (refusal,) = status_of(campaign).refused
    assert all(version in refusal for version in versions)
    assert f"repeat the command that began it with --run {campaign.path}" in lines_of(status_of(campaign))[-1]


@pytest.mark.slow(instead=("tests/unit/workflows/test_result_check.py; tests/unit/workflows/test_campaign.py"))
def test_a_job_that_fails_everywhere_has_no_verdict_and_the_others_are_kept(tmp_path: Path) -> None:
    jobs = standin_jobs(3)
    program = prepare(tmp_path / "standin", jobs)
    shutil.rmtree(tmp_path / "standin" / "runs" / jobs[0].name)
    campaign = begin(tmp_path / "campaign", jobs)
    local = machines(tmp_path / "machines", 1, program, withdrawn_seconds=0.1)
    with local, pytest.raises(InfrastructureError) as failed:
        campaigns.drive(campaign, local)
    assert failed.value.exit_code == ExitCode.INFRASTRUCTURE
    # The other results arrived, in any order.
    assert set(campaign.arrived()) == {job.name for job in jobs[1:]}
    assert "2 of 3 jobs have arrived" in str(failed.value)


@pytest.mark.slow(
    instead="test_killed_workers_and_schedulers_change_nothing, where a killed scheduler continues; test_campaign.py"
)
def test_a_stopped_campaign_continues_with_the_missing_jobs(tmp_path: Path) -> None:
    jobs = standin_jobs(8)
    program = prepare(tmp_path / "standin", jobs, seconds=0.3)
    campaign = begin(tmp_path / "campaign", jobs)
    slow_from: list[int] = []

    def stop_soon() -> None:
        """Stop while both workers run a long job."""
        if len(campaign.arrived()) >= 3 and not slow_from:
            standin(tmp_path / "standin", seconds=600)
            slow_from.append(len(started(tmp_path / "standin")))
        if slow_from and len(started(tmp_path / "standin")) >= slow_from[0] + 2:
            standin(tmp_path / "standin", seconds=0.3)
            raise KeyboardInterrupt

    with machines(tmp_path / "machines", 2, program) as local:
        with pytest.raises(KeyboardInterrupt):
            campaigns.drive(campaign, local, watch=stop_soon)
        # The scheduler does not wait for running jobs, because the workers end them.
        assert eventually(lambda: not any(lives(pid) for _, pid in started(tmp_path / "standin")))
        before = set(campaign.arrived())
        number = len(started(tmp_path / "standin"))
        campaigns.drive(begin(campaign.path, jobs), local)
        assert {name for name, _ in started(tmp_path / "standin")[number:]}.isdisjoint(before)
    checked(campaign, jobs)


@pytest.mark.slow(instead=("test_the_commands_of_a_cluster_run_jobs_and_end_at_a_signal, whose job is such a command"))
def test_a_command_that_prints_a_document_is_a_job_without_a_run_folder(tmp_path: Path) -> None:
    words = {name: ["list", name, "--json"] for name in ("targets", "suites")}
    reports = commands_on(
        quiet(), words, tmp_path / "campaign", on="local:1", insecure=False, expected_seconds=1, command=["test"]
    )
    assert [report.exit_code for report in reports.values()] == [0, 0]
    listed = json.loads(reports["suites"].output)
    assert {one["name"] for one in listed} == Catalog().suites.keys()
    assert status_of(CampaignFolder.read(tmp_path / "campaign")).arrived == 2


def test_a_local_cluster_listens_only_on_the_loopback_interface_and_uses_tls(tmp_path: Path) -> None:
    jobs = standin_jobs(1)
    program = prepare(tmp_path / "standin", jobs)
    campaign = begin(tmp_path / "campaign", jobs)
    heard: set[str] = set()
    with machines(tmp_path / "machines", 1, program) as local:
        campaigns.drive(campaign, local)
        pids = [one.pid for one in (local.scheduler, *local.workers)]
        for pid in pids:
            found = psutil.Process(pid).net_connections()
            heard |= {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}
        with socket.create_connection((local.cluster.host, local.cluster.port), timeout=5) as plain:
            plain.sendall(b"hello")
            assert plain.recv(100)[:1] in {b"\x15", b""}, "it answers without TLS"
    assert heard == {"127.0.0.1"}


@pytest.mark.slow(instead=("tests/unit/workflows/test_campaign.py, on entries of the shared store"))
def test_results_and_sources_go_through_the_shared_store(tmp_path: Path) -> None:
    jobs = standin_jobs(4)
    program = prepare(tmp_path / "standin", jobs)
    campaign = begin(tmp_path / "campaign", jobs)
    with machines(tmp_path / "machines", 2, program, store=str(tmp_path / "store")) as local:
        campaigns.drive(campaign, local)
    checked(campaign, jobs)
    assert list((tmp_path / "store" / "results").iterdir()) == [], "results that have arrived need no copy"


@pytest.mark.slow(
    instead="tests/unit/workflows/test_result_check.py; test_killed_workers_and_schedulers_change_nothing"
)
def test_a_worker_that_lies_changes_no_verdict(tmp_path: Path) -> None:
    jobs = standin_jobs(10)
    finds = tuple(job.name for job in jobs)
    program = prepare(tmp_path / "standin", jobs, seconds=0.4, finds=finds)
    campaign = begin(tmp_path / "campaign", jobs)
    local = machines(tmp_path / "machines", 2, program)
    local.replace(0, program=standin(tmp_path / "standin", "liar", lies=True))
    with local:
        said = campaigns.drive(campaign, local)
    checked(campaign, jobs, finds)
    refused = [entry for entry in campaign.journal() if "contradicts its evidence" in entry.why]
    assert {entry.worker for entry in refused} == {"local-1"}, said
    # The other worker repeats the refused job. The lying worker gets no further job.
    assert len({entry.job for entry in refused}) == len(refused)


@pytest.mark.slow(instead=("tests/unit/workflows/test_islands.py, for corpora without workers"))
def test_jobs_on_workers_build_on_each_other(tmp_path: Path) -> None:
    """Each stand-in adds one entry, which shows one more feature than the entries that it received."""
    alone = [standin_job("target", f"fuzz{number}") for number in range(6)]
    jobs = [msgspec.structs.replace(job, words=[*job.words, "--corpus", CORPORA]) for job in alone]
    program = prepare(tmp_path / "standin", jobs)
    campaign = begin(tmp_path / "campaign", jobs)
    corpora = tmp_path / "corpora"
    with machines(tmp_path / "machines", 1, program) as local:
        campaigns.drive(campaign, local, islands=Islands(campaign, corpora, lambda _: None))
    learned = [entry for entry in campaign.journal() if entry.what == "learned"]
    assert [entry.features for entry in learned] == [1, 2, 3, 4, 5, 6]
    assert len(corpus_folder.entries(corpora / f"{SERVER}-target")) == 6
    status = status_of(campaign)
    assert status.verdicts == {"PASS": 7}
    (row,) = status.corpora
    assert (row.target, row.generation, row.features, row.kept) == ("target", 6, 6, 6)
    assert "corpus target: generation 6 shows 6 features with 6 entries" in lines_of(status)
