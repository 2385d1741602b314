"""A campaign judges its workers' results again: a worker's verdict cannot hide what the evidence shows."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.core.errors import InconclusiveError
from harness.core.model import BuildSettings, Cell
from harness.judge.conclusion import conclude
from harness.record import compiler_warnings, run_folder, stored_run
from harness.record.compiler_warnings import CompilerReport, Diagnostic
from harness.report.formats import registry as formats
from harness.workflows.campaign.job import CampaignJob
from harness.workflows.campaign.result_check import check_run
from tests.support.campaigns import SERVER
from tests.support.fakes import fault, quiet, write
from tests.support.stored import StoredRun, a_fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Lie = Callable[[dict[str, Any]], None]


def passes(document: dict[str, Any]) -> None:
    for cell in document["cells"]:
        cell.update(verdict="PASS", passed=1, failed=0)
    document.update(verdict="PASS", findings=[], causes=[])


def knows(document: dict[str, Any]) -> None:
    for finding in document["findings"]:
        finding["known"] = "it is always so"
    for cell in document["cells"]:
        cell["verdict"] = "XFAIL" if cell["verdict"] == "FAIL" else cell["verdict"]


def renames(document: dict[str, Any]) -> None:
    """Give it the identity of a finding in the known list."""
    document["findings"][0]["id"] = "alignment-memcpy"


def job_of(stored: StoredRun, known: str = "findings = []\n") -> CampaignJob:
    """A job whose result the stored run is, judged."""
    path = write(stored.folder.with_name("known.toml"), known)
    formats.write(stored.finish(), conclude(stored_run.read(stored.folder), path, quiet())[0])
    cells = [Cell(target=target, server=SERVER, suite=suite) for target in stored.targets for suite in stored.suites]
    return CampaignJob(
        name="job", words=[], cells=cells, expected_seconds=1, deadline_seconds=1, version="1", known=known
    )


def tell(folder: Path, lie: Lie) -> None:
    path = folder / "findings.json"
    document = json.loads(path.read_bytes())
    lie(document)
    path.write_text(json.dumps(document), "utf-8")


def fails(stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_one")
    stored.test("armv5", "bitops", "test_two", outcome="failed", message="wrong")


def does_not_end(stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_one")
    stored.problem("armv5", "bitops", "it did not end within 7 s", "deadline")


def is_skipped(stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_one", outcome="skipped")


def misaligns(stored: StoredRun) -> None:
    """Add a misaligned access without a failed test, as if a child of the server had died."""
    stored.fault("armv5", "bitops", "guest-1", fault(pc=stored.place("armv5", "bitopCommand")))
    stored.test("armv5", "bitops", "test_one", guest="guest-1", faults=(0, 1))


@pytest.mark.parametrize(
    ("happens", "lie", "why"),
    [
        (misaligns, passes, "its evidence has a misaligned access in armv5/bitops"),
        (misaligns, knows, "its worker calls alignment-"),
        (fails, passes, "according to its evidence: armv5/bitops 1 passed, 1 failed"),
        (fails, knows, "known"),
        (does_not_end, passes, "according to its evidence: armv5/bitops 1 passed, 0 failed, 0 skipped, UNKNOWN"),
        (is_skipped, passes, "according to its evidence: armv5/bitops 0 passed"),
    ],
)
def test_what_needs_no_names_is_judged_without_the_binary(
    run: StoredRun, happens: Callable[[StoredRun], None], lie: Lie, why: str
) -> None:
    happens(run)
    job = job_of(run)
    check_run(run.folder, job)
    tell(run.folder, lie)
    with pytest.raises(InconclusiveError, match="contradicts its evidence") as refused:
        check_run(run.folder, job)
    assert why in refused.value.because


@pytest.mark.parametrize(
    ("words", "record", "why"),
    [
        (["check", "--tier", "full"], {"tier": "quick"}, "--tier quick instead of full"),
        (["check", "--policy", "strict"], {"policy": "signal"}, "--policy signal instead of strict"),
        (["audit", "--policy", "strict"], {"policy": "strict"}, "the policy strict instead of that of plumb audit"),
        (["check", "--warnings", "fail"], {"warnings": "off"}, "--warnings off instead of fail"),
        (["check", "--cflags=-g"], {}, "no settings instead of --cflags=-g"),
        (["check"], {"settings": BuildSettings(make=("A=1",))}, "--make=A=1 instead of none"),
        (["check"], {"tests": ["bit*"]}, "--test 'bit*' instead of all tests"),
        (["check", "--test", "bit*"], {}, "--test (none) instead of 'bit*'"),
        (["check"], {"server": "redis-7.0.15"}, "the server redis-7.0.15 instead of redis-3.2.6"),
        (["check", "--timeout-multiplier", "1"], {"timeout_multiplier": 2.5}, "--timeout-multiplier 2.5 instead of 1"),
        (["check", "--mixed"], {}, "no --mixed"),
        (["check"], {"target_clients": True}, "--target-clients"),
    ],
)
def test_a_run_with_other_options_than_its_jobs_is_refused(
    run: StoredRun, words: list[str], record: dict[str, Any], why: str
) -> None:
    """A worker passed that ran less than it was asked for, or another server."""
    run.test("armv5", "bitops", "test_one")
    job = job_of(run)
    check_run(run.folder, job)
    changed = msgspec.structs.replace(run_folder.read_run(run.folder), **record)
    run_folder.write_run(run.folder, changed)
    with pytest.raises(InconclusiveError, match="a result's run is not that of its job") as refused:
        check_run(run.folder, msgspec.structs.replace(job, words=words))
    assert refused.value.because == why


def test_a_run_of_a_tree_is_of_the_one_that_its_job_sent(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_one")
    job = msgspec.structs.replace(job_of(run), tree="0123456789abcdef" * 4, tree_name="my redis")
    recorded = run_folder.read_run(run.folder)
    with pytest.raises(InconclusiveError, match="a result's run is not that of its job") as refused:
        check_run(run.folder, job)
    assert refused.value.because == "the server redis-3.2.6 instead of my redis"
    for folder, is_sent in ((job.tree_folder, True), ("0" * 32, False)):
        changed = msgspec.structs.replace(recorded, server=f"/cache/campaign-trees/{folder}/my redis")
        run_folder.write_run(run.folder, changed)
        with contextlib.nullcontext() if is_sent else pytest.raises(InconclusiveError, match="not that of its job"):
            check_run(run.folder, job)


def test_a_workers_judgement_has_the_warnings_that_must_fail(run: StoredRun) -> None:
    """Without the binary, only misaligned accesses and numbers of tests were compared."""
    run.test("armv5", "bitops", "test_one")
    recorded = run_folder.read_run(run.finish())
    run_folder.write_run(run.folder, msgspec.structs.replace(recorded, warnings="fail"))
    cast = Diagnostic(severity="warning", file="src/a.c", line=3, text="cast", warning="cast-align", function="f")
    for target in {"native", *recorded.targets}:
        warned = [cast] if target == "armv5" else []
        compiler_warnings.write(run.folder, target, CompilerReport(warnings=warned))
    known = write(run.folder.with_name("known.toml"), "findings = []\n")
    formats.write(run.folder, conclude(stored_run.read(run.folder), known, quiet())[0])
    job = CampaignJob(
        name="job",
        words=["check", "--warnings", "fail"],
        cells=[Cell(target=cell.target, server=SERVER, suite=cell.suite) for cell in recorded.cells],
        expected_seconds=1,
        deadline_seconds=1,
        version="1",
        known="findings = []\n",
    )
    check_run(run.folder, job)
    tell(run.folder, passes)
    with pytest.raises(InconclusiveError, match="contradicts its evidence") as refused:
        check_run(run.folder, job)
    assert refused.value.because == "according to its evidence: warning-cast-align-f"


def test_what_a_run_did_not_check_is_told_by_its_worker(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_one")
    job = job_of(run)
    recorded = run_folder.read_run(run.folder)
    beside = {**recorded.beside, "changes.json": "0" * 64}
    run_folder.write_run(run.folder, msgspec.structs.replace(recorded, beside=beside))
    with pytest.raises(InconclusiveError, match="contradicts its evidence") as refused:
        check_run(run.folder, job)
    assert refused.value.because == "according to its evidence: NOT CHECKED: changes.json, which is missing"
    document = conclude(stored_run.read(run.folder), write(run.folder.with_name("known.toml"), job.known), quiet())[0]
    assert document.unchecked
    formats.write(run.folder, document)
    check_run(run.folder, job)


KNOWN = 'id = "alignment-memcpy"\nreason = "issue 1"\nexpires = 2999-01-01\n'


@pytest.mark.usefixtures("fake_symbols")
@pytest.mark.parametrize("lie", [passes, knows, renames])
def test_with_the_binary_the_same_findings_are_wanted(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    # Judging opens only binaries in the cache.
    monkeypatch.setenv("PLUMBLINE_CACHE", str(run.folder.parent))
    a_fault(run)
    run.test("armv5", "bitops", "test_one")
    job = job_of(run, f"[[findings]]\n{KNOWN}")
    before = sorted(run.folder.rglob("*"))
    check_run(run.folder, job)
    assert sorted(run.folder.rglob("*")) == before, "the result is not as its worker left it"
    tell(run.folder, lie)
    with pytest.raises(InconclusiveError, match="contradicts its evidence"):
        check_run(run.folder, job)


@pytest.mark.usefixtures("fake_symbols")
def test_a_result_whose_names_only_its_worker_can_know_is_taken(run: StoredRun) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_one")
    job = job_of(run)
    run.binary("armv5").unlink()
    check_run(run.folder, job)
