"""Campaigns: the content of a folder, refused workers, and verdicts that do not depend on machine failures."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from cryptography import x509

from harness.build.sources.tree_files import digest_of
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InconclusiveError, InfrastructureError, UsageError
from harness.core.model import BuildSettings
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.report.formats import registry as formats
from harness.workflows.campaign import archive, spread, task
from harness.workflows.campaign.campaign_folder import CampaignFolder, CampaignRecord, JobReport
from harness.workflows.campaign.campaign_status import status_of
from harness.workflows.campaign.drive import result_in
from harness.workflows.campaign.engine.cluster import CERTIFICATE, make_keys, read_cluster
from harness.workflows.campaign.job import DISCARDED, FOLDER, KNOWN, RUN, SERVER, check_jobs, command_jobs
from harness.workflows.campaign.job_ledger import JobFailedError, JobLedger
from harness.workflows.campaign.shared_store import SharedStore
from harness.workflows.campaign.spread import packed_tree
from harness.workflows.campaign.version import harness_version, resource_of
from harness.workflows.measure.cost_document import part_in
from harness.workflows.workbench import Workbench
from tests.support import fakes
from tests.support.campaigns import (
    begin,
    joined,
    prepare,
    standin_jobs,
)
from tests.support.fakes import write
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from harness.plan.request import Request
    from harness.workflows.campaign.job import CampaignJob
    from tests.support.fakes import Plumb


def request(tmp_path: Path, *, targets: tuple[str, ...], suites: tuple[str, ...] = (), tier: str = "quick") -> Request:
    plan = make_plan(Catalog(), targets=targets, server="redis-7.0.15", suites=suites, tier=tier)
    return fakes.quick_request(plan, server="redis-7.0.15", known=tmp_path / "known.toml", run=tmp_path / "run")


def test_every_cell_of_a_plan_is_in_one_job_and_every_job_has_the_canaries(tmp_path: Path) -> None:
    wanted = request(tmp_path, targets=("required",))
    jobs = check_jobs(Catalog(), wanted, version="1", known="")
    counted = Counter((cell.target, cell.suite) for job in jobs for cell in job.cells if cell.suite != "canary")
    assert set(counted.values()) == {1}
    assert counted.keys() == {(cell.target, cell.suite) for cell in wanted.plan.cells if cell.suite != "canary"}
    for job in jobs:
        targets = {cell.target for cell in job.cells}
        assert {cell.target for cell in job.cells if cell.suite == "canary"} == targets
    assert len({job.name for job in jobs}) == len({job.key for job in jobs}) == len(jobs) > 6
    # Only one job compiles for each target, so that each warning counts once.
    looking = [job for job in jobs if job.words[job.words.index("--warnings") + 1] == "note"]
    looked_at = Counter(target for job in looking for target in {cell.target for cell in job.cells})
    assert looked_at == Counter(wanted.plan.targets)
    assert [job.expected_seconds for job in jobs] == sorted((job.expected_seconds for job in jobs), reverse=True)


def test_a_cell_that_took_long_before_is_a_separate_job(tmp_path: Path) -> None:
    wanted = request(tmp_path, targets=("armv5",), suites=("bitops", "sds", "units"))
    long = {"armv5/bitops": 500.0, "armv5/sds": 1.0, "armv5/units": 1.0, "armv5/canary": 1.0}
    suites = [
        [cell.suite for cell in job.cells] for job in check_jobs(Catalog(), wanted, version="1", known="", seconds=long)
    ]
    assert suites == [["canary", "bitops"], ["canary", "sds", "units"]]


def test_the_same_work_has_the_same_key_and_different_work_has_a_different_one(tmp_path: Path) -> None:
    (job,) = standin_jobs(1)
    assert msgspec.structs.replace(job, name="other", expected_seconds=7).key == job.key
    for change in ({"words": [*job.words, "--fail-fast"]}, {"version": "2"}, {"known": "x"}, {"tree": "0"}):
        assert msgspec.structs.replace(job, **change).key != job.key, change


def test_jobs_reach_their_servers_with_the_checks_transport(tmp_path: Path) -> None:
    for io in ("unix", "tcp"):
        wanted = msgspec.structs.replace(request(tmp_path, targets=("armv5",)), io=io)
        ways = {job.words[job.words.index("--io") + 1] for job in check_jobs(Catalog(), wanted, version="1", known="")}
        assert ways == {io}


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("tcp://10.0.0.1:8786", "a scheduler on a network without TLS"),
        ("tcp://box:8786", "a scheduler on a network without TLS"),
        ("local:0", "not a number of workers"),
        ("box", "not a cluster"),
        ("ftp://box", "not a scheduler's address"),
    ],
)
def test_an_unprotected_or_unknown_cluster_is_refused(text: str, refused: str) -> None:
    with pytest.raises(UsageError, match=refused):
        read_cluster(text, insecure=False)


def test_an_insecure_cluster_is_accepted_on_demand_or_on_loopback(tmp_path: Path) -> None:
    assert read_cluster("tcp://10.0.0.1:8786", insecure=True).port == 8786
    for text in ("tcp://127.0.0.1:1", "tcp://[::1]:1", "tls://10.0.0.1:1"):
        assert read_cluster(text, insecure=False).address == text
    file = write(tmp_path / "cluster.toml", 'address = "tcp://127.0.0.1:1"\nlisten = "0.0.0.0"\n')
    with pytest.raises(UsageError, match="without TLS"):
        read_cluster(str(file), insecure=False)


def test_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "cluster.toml", 'address = "tls://10.0.0.1:1"\nkeys = "keys"\n')
    with pytest.raises(UsageError, match="keys are missing"):
        read_cluster(str(file), insecure=False)
    make_keys(tmp_path / "keys")
    assert read_cluster(str(file), insecure=False).keys == tmp_path / "keys"
    (tmp_path / "keys" / "key.pem").chmod(0o640)
    with pytest.raises(UsageError, match="others can read"):
        read_cluster(str(file), insecure=False)


def test_a_clusters_certificate_is_that_of_an_authority_to_the_strictest_peer(tmp_path: Path) -> None:
    """RFC 5280, 4.2.1.9: such a certificate marks its basic constraints as critical. Python 3.13 demands it."""
    make_keys(tmp_path / "keys")
    certificate = x509.load_pem_x509_certificate((tmp_path / "keys" / CERTIFICATE).read_bytes())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, True)
    with pytest.raises(UsageError, match="already contains keys"):
        make_keys(tmp_path / "keys")


def landed(tmp_path: Path, job: CampaignJob, *, finds: bool = False, test: str = "") -> tuple[JobReport, bytes]:
    """A job's result, as a worker sends it. `test`: the test that fails, if it is not the suite's own."""
    place = tmp_path / f"made-{finds}{test}"
    prepare(place, [job], finds=(job.name,) if finds else (), test=test)
    content = archive.pack(place / "runs" / job.name)
    digest = archive.digest_of_archive(content)
    return JobReport(key=job.key, worker="w", exit_code=int(finds), seconds=1, archive=digest), content


def test_a_result_that_arrives_twice_counts_once_and_findings_of_only_one_stay(tmp_path: Path) -> None:
    """Regression: a finding in only the second result of a job was lost, and the verdict stayed PASS."""
    (job,) = standin_jobs(1)
    campaign = begin(tmp_path / "campaign", [job])
    report, content = landed(tmp_path, job)
    assert campaign.land(job, report, content)
    assert not campaign.land(job, report, content)
    assert not campaign.land(job, *landed(tmp_path, job, finds=True))
    again = [entry.why for entry in campaign.journal() if entry.what == "again"]
    assert again[0] == ""
    assert "only the second has target0/suite0 FAIL" in again[1]
    assert joined(campaign).verdict == "FAIL"
    # The first of the two results that has findings stays.
    assert not campaign.land(job, report, content)
    assert joined(campaign).verdict == "FAIL"
    status = status_of(campaign)
    assert (status.arrived, status.again, len(status.remarks)) == (1, 3, 2)
    assert [path.name for path in (tmp_path / "campaign" / "jobs").iterdir()] == [job.name]


def test_the_findings_of_each_of_several_failing_results_of_a_job_stay(tmp_path: Path) -> None:
    """Regression: only the findings of the first result stayed."""
    (job,) = standin_jobs(1)
    campaign = begin(tmp_path / "campaign", [job])
    assert campaign.land(job, *landed(tmp_path, job, finds=True, test="test_a"))
    for _ in range(2):
        assert not campaign.land(job, *landed(tmp_path, job, finds=True, test="test_b"))
    assert not campaign.land(job, *landed(tmp_path, job))
    assert len(campaign.runs_of(job.name)) == 2, "a result that adds nothing is not kept"
    judgement = spread.joined(campaign)
    assert [one.id for one in judgement.findings] == ["wrong-result-test_a", "wrong-result-test_b"]
    assert [one.occurrences for one in judgement.findings] == [1, 1]
    evidence = [campaign.path / witness.evidence for one in judgement.findings for witness in one.witnesses]
    assert [path.is_file() for path in evidence] == [True, True]
    assert len(set(evidence)) == 2
    assert {row.id: row.jobs for row in status_of(campaign).findings} == {
        "wrong-result-test_a": [job.name],
        "wrong-result-test_b": [job.name],
    }
    # A resumed campaign finds both again.
    assert len(spread.joined(CampaignFolder.read(campaign.path)).findings) == 2


@pytest.mark.parametrize(("words", "verdict"), [(["--test", "bit*"], "PASS"), ([], "UNKNOWN")])
def test_jobs_that_ran_only_some_tests_pass_if_the_campaign_selected_these(
    tmp_path: Path, words: list[str], verdict: str
) -> None:
    (job,) = standin_jobs(1)
    job = msgspec.structs.replace(job, words=[*job.words, *words])
    campaign = begin(tmp_path / "campaign", [job])
    assert campaign.land(job, *landed(tmp_path, job))
    run = campaign.run_of(job.name)
    formats.write(run, msgspec.structs.replace(formats.read(run), tests=["bit*"]))
    assert spread.joined(campaign).verdict == verdict


def test_a_result_of_a_check_without_its_run_folder_is_refused(tmp_path: Path) -> None:
    (job,) = standin_jobs(1)
    campaign = begin(tmp_path / "campaign", [job])
    report, _ = landed(tmp_path, job)
    with pytest.raises(InconclusiveError, match="no run folder"):
        campaign.land(job, msgspec.structs.replace(report, archive=""), b"")
    assert campaign.arrived() == {}


def test_a_result_of_a_command_without_its_document_is_refused(tmp_path: Path) -> None:
    """A command that ended with exit code 6 before it printed anything had arrived, and was not tried again."""
    (job,) = command_jobs({"one": ["mutate", "one"]}, expected_seconds=1, version="1")
    campaign = begin(tmp_path / "campaign", [job])
    report = JobReport(key=job.key, worker="w", exit_code=6, seconds=1, messages="error: the cache is damaged")
    with pytest.raises(InconclusiveError, match="no document") as refused:
        campaign.land(job, report, b"")
    assert refused.value.because == "error: the cache is damaged"
    assert campaign.arrived() == {}
    assert campaign.land(job, msgspec.structs.replace(report, output="[]\n"), b"")


@pytest.mark.parametrize(
    ("code", "problem"),
    [*((code, "none") for code in (0, 1, -5, 8, 130, 1 << 70)), *((code, "") for code in (2, 3, 4, 5, 7, 130))],
)
def test_an_answer_whose_exit_code_contradicts_it_is_no_result(code: int, problem: str) -> None:
    """Regressions: a campaign ended with its worker's status, which was 0 or 1, or with an error of Plumbline's own."""
    report = JobReport(key="k", worker="w", exit_code=code, seconds=1, problem=problem)
    told = json.dumps(msgspec.to_builtins(report)).encode()
    with pytest.raises(TypeError, match=f"exit code {code} with"):
        result_in((told, b""))


@pytest.mark.parametrize(("code", "problem"), [(0, ""), (1, ""), (6, ""), (2, "x"), (3, "x"), (6, "x"), (7, "x")])
def test_an_answer_with_a_fitting_exit_code_is_a_result(code: int, problem: str) -> None:
    report = JobReport(key="k", worker="w", exit_code=code, seconds=1, problem=problem)
    assert result_in((json_codec.encode(report), b"x")) == (report, b"x")


def test_another_worker_repeats_a_command_whose_document_is_not_that_of_its_job(tmp_path: Path) -> None:
    """Regression: such a document arrived, and then ended the command with an error of Plumbline's own."""
    jobs = command_jobs({"one": ["measure"]}, expected_seconds=1, version="1")
    record = CampaignRecord(command=["measure"], seed=0, jobs=jobs, begun="")
    folder = CampaignFolder.begin(
        tmp_path / "campaign", record, lambda name, document: part_in(document, name, "armv5", "get")
    )
    report = JobReport(key=jobs[0].key, worker="w", exit_code=0, seconds=1, output="[]\n")
    with pytest.raises(InconclusiveError, match="not that of its job"):
        folder.land(jobs[0], report, b"")
    assert folder.arrived() == {}


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    job, other = standin_jobs(2)
    campaign = begin(tmp_path / "campaign", [job, other])
    report, content = landed(tmp_path, job)
    with pytest.raises(InconclusiveError, match="not what was sent"):
        campaign.land(job, report, content[:-1])
    with pytest.raises(InconclusiveError, match="belongs to another job"):
        campaign.land(other, report, content)
    with pytest.raises(InconclusiveError, match="cells are not those of its job"):
        campaign.land(other, msgspec.structs.replace(report, key=other.key), content)
    events = tmp_path / "made-False" / "runs" / job.name / "target0" / "suite0" / "events.jsonl"
    events.write_bytes(events.read_bytes().replace(b'"passed"', b'"failed"'))
    forged = archive.pack(tmp_path / "made-False" / "runs" / job.name)
    with pytest.raises(InconclusiveError, match="evidence is damaged"):
        campaign.land(job, msgspec.structs.replace(report, archive=archive.digest_of_archive(forged)), forged)
    assert campaign.arrived() == {}
    assert not list((tmp_path / "campaign" / "jobs").iterdir()), "an incomplete result was left behind"


def test_a_folder_continues_its_own_campaign_and_no_other(tmp_path: Path) -> None:
    jobs = standin_jobs(2)
    begin(tmp_path / "campaign", jobs)
    assert [entry.what for entry in begin(tmp_path / "campaign", jobs).journal()] == ["began", "resumed"]
    with pytest.raises(UsageError, match="another campaign"):
        begin(tmp_path / "campaign", jobs[:1])
    older = begin(tmp_path / "older", standin_jobs(2, version="2"))
    with pytest.raises(UsageError, match="another campaign") as refused:
        begin(older.path, jobs)
    assert "Plumbline 2 began it" in refused.value.because


@pytest.fixture(params=["with Python's filter", "as before Python 3.11.4"])
def unpacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to unpack an archive: Debian 12 has Python 3.11.2."""
    if request.param != "with Python's filter":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filter")


def packed(*members: tuple[str, bytes, str, bytes]) -> bytes:
    """An archive of members: name, kind, where a link leads, content."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as into:
        for name, kind, link, content in members:
            one = tarfile.TarInfo(name)
            one.type, one.linkname, one.size = kind, link, len(content)
            into.addfile(one, BytesIO(content))
    return made.getvalue()


HOSTILE = {
    "cut": packed(("file", tarfile.REGTYPE, "", b"x" * 5000))[:60],
    "a file as a folder": packed(("x", tarfile.REGTYPE, "", b""), ("x/y", tarfile.REGTYPE, "", b"")),
    "a long name": packed(("n" * 300, tarfile.REGTYPE, "", b"")),
    "too deep": packed(("d/" * 900 + "file", tarfile.REGTYPE, "", b"")),
    "a link to nothing": packed(("file", tarfile.LNKTYPE, "other", b"")),
    "a pipe": packed(("pipe", tarfile.FIFOTYPE, "", b"")),
    "a device": packed(("null", tarfile.CHRTYPE, "", b"")),
}


@pytest.mark.usefixtures("unpacking")
@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_archive_is_refused_and_ends_no_campaign(how: str, tmp_path: Path) -> None:
    """Regression: a worker's cut archive ended the campaign, and a long name was taken for a lost scheduler."""
    content = HOSTILE[how]
    with pytest.raises(InconclusiveError, match="an archive"):
        archive.unpack(content, archive.digest_of_archive(content), tmp_path / "here")
    assert list(tmp_path.iterdir()) == []


def claiming(size: int, content: bytes, **details: Any) -> bytes:
    """A compressed archive of one member that claims a size."""
    one = tarfile.TarInfo("x")
    one.size = size
    for name, value in details.items():
        setattr(one, name, value)
    return gzip.compress(one.tobuf(tarfile.PAX_FORMAT) + content)


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
HOLES = b"9999999\n" + b"0\n" * (1 << 19)
WASTEFUL = {
    "more than the disk": (claiming(20 << 30, b""), "unpacks to more than 4 GiB"),
    "a header that fills the memory": (claiming(1 << 20, bytes(1 << 20), type=tarfile.XHDTYPE), "a header has"),
    "too many members": (packed(*((str(at), tarfile.REGTYPE, "", b"") for at in range(4))), "more than 3 members"),
    "a map of holes without end": (
        claiming(1 << 20, b"9999999\n" + b"0\n" * (1 << 19), pax_headers=SPARSE),
        "processor",
    ),
}


@pytest.mark.parametrize("how", WASTEFUL)
def test_an_archive_that_wastes_memory_space_or_time_is_refused(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: 13 MB from a worker took 3 GiB of memory and four minutes."""
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    monkeypatch.setattr(archive, "UNPACK_SECONDS", 0.05)
    content, why = WASTEFUL[how]
    with pytest.raises(InconclusiveError, match="cannot be unpacked") as refused:
        archive.unpack(content, archive.digest_of_archive(content), tmp_path / "here")
    assert why in refused.value.because
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unpacking")
@pytest.mark.parametrize("link", ["/etc/passwd", "../other", "folder/../../other"])
def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path, link: str) -> None:
    write(tmp_path / "made" / "file", "x")
    (tmp_path / "made" / "folder").mkdir()
    (tmp_path / "made" / "out").symlink_to(link)
    content = archive.pack(tmp_path / "made")
    with pytest.raises(InconclusiveError, match="cannot be unpacked"):
        archive.unpack(content, archive.digest_of_archive(content), tmp_path / "here")
    assert not (tmp_path / "here").exists()
    (tmp_path / "made" / "out").unlink()
    assert archive.pack(tmp_path / "made") == archive.pack(tmp_path / "made")


@pytest.mark.usefixtures("unpacking")
def test_an_archives_names_stay_inside_and_its_files_have_no_owner_and_no_special_bits(tmp_path: Path) -> None:
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        one = tarfile.TarInfo("../outside")
        packed.addfile(one, BytesIO())
    content = made.getvalue()
    with pytest.raises(InconclusiveError, match="cannot be unpacked"):
        archive.unpack(content, archive.digest_of_archive(content), tmp_path / "here")
    assert not (tmp_path / "outside").exists()
    write(tmp_path / "made" / "folder" / "file", "x", mode=0o4777)
    (tmp_path / "made" / "folder" / "link").symlink_to("../folder/file")
    (tmp_path / "made" / "folder").chmod(0o555)
    content = archive.pack(tmp_path / "made")
    archive.unpack(content, archive.digest_of_archive(content), tmp_path / "here")
    file = tmp_path / "here" / "folder" / "file"
    assert (file.read_text("utf-8"), file.stat().st_mode & 0o7777, file.stat().st_uid) == ("x", 0o755, os.geteuid())
    assert (tmp_path / "here" / "folder" / "link").readlink() == Path("../folder/file")
    (tmp_path / "made" / "folder").chmod(0o755)


def test_a_source_tree_reaches_a_worker_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    tree = fakes.server_tree(tmp_path / "a tree")
    own = write(tree / ".plumbline" / "known.toml", "findings = []\n")
    packed, name = packed_tree(Workbench.default(), str(tree))
    assert packed_tree(Workbench.default(), str(tree))[0] == packed, "a campaign in this folder could not continue"
    (job,) = standin_jobs(1)
    digest = archive.digest_of_archive(packed)
    job = msgspec.structs.replace(job, words=[SERVER], tree=digest, tree_name=name, cells=[])
    # A program that prints the path of the server.
    monkeypatch.setattr(task.WorkerSettings, "program", ["/bin/echo", "-n"])
    report = json_codec.decode(task.carry_out(json_codec.encode(job), packed)[0], JobReport)
    there = Path(report.output)
    assert there != tree
    assert job.is_of_server(str(there))
    assert digest_of(there) == digest_of(tree)
    assert (there / ".plumbline" / "known.toml").read_bytes() == own.read_bytes()
    broken = json_codec.decode(
        task.carry_out(json_codec.encode(msgspec.structs.replace(job, tree="0" * 64)), packed)[0], JobReport
    )
    assert "not what was sent" in broken.problem


def test_a_command_has_a_folder_of_its_own_which_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = command_jobs({"one": [FOLDER, DISCARDED]}, expected_seconds=1, version=harness_version())
    makes = 'mkdir "$1" "$2" && touch "$1/tree" "$2/findings.json" && echo "$1 $2"'
    monkeypatch.setattr(task.WorkerSettings, "program", ["/bin/sh", "-c", makes, "sh"])
    told, content = task.carry_out(json_codec.encode(job), None)
    report = json_codec.decode(told, JobReport)
    assert report.problem == ""
    first, second = map(Path, report.output.split())
    assert first != second
    assert not first.parent.exists()
    assert (content, report.archive) == (b"", "")


def test_a_command_has_the_time_that_was_asked_for_or_that_of_its_expected_end() -> None:
    (given,) = command_jobs({"one": []}, expected_seconds=60, version="1", deadline_seconds=5, timeout_multiplier=2)
    (usual,) = command_jobs({"one": []}, expected_seconds=60, version="1")
    assert given.deadline_seconds == 10
    assert usual.deadline_seconds > 600


def test_a_ledger_tells_how_the_jobs_ended_that_are_not_tried_again(tmp_path: Path) -> None:
    jobs = command_jobs({"one": ["deb"], "two": ["deb"]}, expected_seconds=1, version="1")
    ledger = JobLedger(begin(tmp_path / "campaign", jobs), print)
    assert ledger.given_up == {}
    failed = JobReport(key="one", worker="w", exit_code=ExitCode.USAGE, seconds=1, problem="error: no build system")
    ledger.note_failure(jobs[0], failed, 1)
    assert ledger.given_up == {"one": failed}
    with pytest.raises(JobFailedError, match="1 jobs"):
        ledger.refuse_failures()


def test_a_damaged_entry_of_the_shared_store_is_not_used(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "store"))
    digest = archive.digest_of_archive(b"content")
    store.put("results", digest, b"content")
    store.put("results", digest, b"content")
    assert store.get("results", digest) == b"content"
    assert [path.name for path in (tmp_path / "store" / "results").iterdir()] == [digest]
    (tmp_path / "store" / "results" / digest).write_bytes(b"contend")
    with pytest.raises(InconclusiveError, match="damaged"):
        store.get("results", digest)
    with pytest.raises(InfrastructureError, match="shared store"):
        store.get("results", "0" * 64)


def test_a_worker_uses_the_intact_builds_of_another(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "store"))
    first, second, third = (Cache(tmp_path / name, lambda _: None) for name in ("first", "second", "third"))
    built: list[Path] = []

    def build(into: Path) -> None:
        built.append(into)
        write(into / "server", "machine code").chmod(0o755)

    parts = [("builds", "redis-1"), ("emulators", "nobody-has-it")]
    first.folder(*parts[0], build)
    store.share(first, parts)
    store.take(second, parts)
    there = second.folder(*parts[0], build) / "server"
    assert (there.read_text("utf-8"), os.access(there, os.X_OK), len(built)) == ("machine code", True, 1)
    assert second.entry(*parts[1]) is None
    (stored,) = (tmp_path / "store" / "parts").iterdir()
    content = stored.read_bytes()
    stored.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    store.take(third, parts)
    assert third.entry(*parts[0]) is None
    # The worker makes its own build, which replaces the damaged one.
    third.folder(*parts[0], build)
    store.share(third, parts)
    assert len(built) == 2
    assert digest_of_content(stored) == stored.read_bytes()[:64].decode()


def digest_of_content(stored: Path) -> str:
    return archive.digest_of_archive(stored.read_bytes()[64:])


def test_a_job_that_came_to_a_withdrawn_worker_begins_when_the_worker_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster

    cell = resource_of(harness_version())
    one_worker: dict[str, Any] = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": None,
    }
    with LocalCluster(**one_worker, resources={cell: 1}) as cluster, Client(cluster) as client:
        (worker,) = cluster.workers.values()
        monkeypatch.setattr(task.WorkerSettings, "worker", worker)
        # The worker has withdrawn, but the scheduler does not know it yet.
        worker.state.total_resources[cell] = worker.state.available_resources[cell] = 0.0
        future = client.submit(int, 7, resources={cell: 1})
        assert eventually(lambda: bool(worker.state.constrained))
        task.offer(1)
        assert future.result(timeout=10) == 7


def test_the_words_of_a_job_are_a_valid_plumb_command(tmp_path: Path, plumb: Plumb) -> None:
    """The command proceeds until the first error that depends on this release of the server."""
    fakes.write(tmp_path / "known", "findings = []\n")
    for tier in ("quick", "thorough"):
        wanted = msgspec.structs.replace(request(tmp_path, targets=("armv5",), tier=tier), server="redis-0.0.0")
        built = BuildSettings(cflags=("-g3",), make=("BUILD_LUA=module",))
        wanted = msgspec.structs.replace(wanted, settings=built)
        for job in check_jobs(Catalog(), wanted, version="1", known=""):
            assert set(built.words) <= set(job.words)
            places = {RUN: str(tmp_path / "run"), KNOWN: str(tmp_path / "known"), "{server}": wanted.server}
            code, _, err = plumb(*[places.get(word, word) for word in job.words])
            assert (code, "redis-0.0.0" in err) == (ExitCode.USAGE, True), err


def test_a_folder_without_a_campaign_is_reported(tmp_path: Path, plumb: Plumb) -> None:
    code, _, err = plumb("campaign", "status", tmp_path)
    assert (code, "not a campaign's folder" in err) == (ExitCode.USAGE, True)
