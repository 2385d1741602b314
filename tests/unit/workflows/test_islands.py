"""Fuzzing on many machines: jobs share corpus entries, and the useful ones are kept."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import json_codec
from harness.core.errors import ExitCode, InfrastructureError
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.record import corpus_folder
from harness.record.corpus_folder import EntryFeatures
from harness.workflows.campaign import archive, task
from harness.workflows.campaign.campaign_folder import JobReport
from harness.workflows.campaign.campaign_page import page_of
from harness.workflows.campaign.campaign_status import CorpusRow, status_of
from harness.workflows.campaign.islands import MOST_UNTRIED, Islands
from harness.workflows.campaign.job import CORPORA, ISLAND_SECONDS, LEARNED, RUN, check_jobs
from harness.workflows.campaign.version import harness_version
from tests.support import fakes
from tests.support.campaigns import SERVER, begin, standin_job
from tests.support.fakes import write

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.campaign.campaign_folder import CampaignFolder
    from harness.workflows.campaign.job import CampaignJob
    from tests.support.fakes import Plumb

shown = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.sets(st.integers(0, 9)), st.integers(0, 5), st.booleans())
)


def kept_in(folder: Path) -> dict[str, set[int]]:
    return {path.name: set(found.new) for path in corpus_folder.entries(folder) if (found := read(path))}


def read(entry: Path) -> EntryFeatures | None:
    return corpus_folder.features_of(entry)


@given(shown)
def test_kept_entries_show_all_features_and_each_has_its_own(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, tuple[set[int], int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    for name, (new, size, failed) in found.items():
        corpus_folder.keep(folder / name, bytes(size))
        corpus_folder.note(folder / name, EntryFeatures(build="b", new=sorted(new), failed=failed))
    corpus_folder.keep(folder / "untried", b"")
    every = set[int]().union(*(new for new, _, _ in found.values()))
    features, number = corpus_folder.minimise(folder, "b")
    kept = kept_in(folder)
    assert set[int]().union(*kept.values()) == every
    assert features == len(every)
    assert number <= len(kept)
    for name in kept:
        smaller = [new for other, (new, size, _) in found.items() if (size, other) < (found[name][1], name)]
        assert found[name][2] or found[name][0] - set[int]().union(*smaller), (
            "an entry without features of its own is kept"
        )
    assert {name for name, (_, _, failed) in found.items() if failed} <= kept.keys()
    assert (folder / "untried").exists()
    # Dropped entries are recorded as tried.
    assert corpus_folder.tried(folder).keys() == found.keys()
    assert corpus_folder.minimise(folder, "b") == (features, number)
    assert kept_in(folder) == kept


def test_features_of_another_build_drop_nothing(tmp_path: Path) -> None:
    for name, build in (("a", "old"), ("b", "new")):
        corpus_folder.keep(tmp_path / name, b"x")
        corpus_folder.note(tmp_path / name, EntryFeatures(build=build, new=[1]))
    assert corpus_folder.minimise(tmp_path, "new") == (1, 1)
    assert len(corpus_folder.entries(tmp_path)) == 2


def island(target: str, number: int) -> CampaignJob:
    job = standin_job(target, f"fuzz{number}")
    return msgspec.structs.replace(job, words=[*job.words, "--corpus", CORPORA])


JOBS = [island(target, number) for number in (1, 2) for target in ("little", "big")]
LITTLE, BIG, LITTLE_2, BIG_2 = JOBS


def bring(campaign: CampaignFolder, job: CampaignJob, **found: tuple[str, list[int]]) -> None:
    """Let a job arrive with new entries: name → content and features."""
    learned = campaign.run_of(job.name) / LEARNED / f"{SERVER}-{job.cells[0].target}"
    for name, (content, new) in found.items():
        if content:
            corpus_folder.keep(learned / name, content.encode())
        corpus_folder.note(learned / name, EntryFeatures(build=f"build of {job.cells[0].target}", new=new))
    report = JobReport(key=job.key, worker="w", exit_code=0, seconds=1)
    write(campaign.place(job.name) / "told.json", json_codec.encode(report).decode())


def given_to(islands: Islands, job: CampaignJob, tmp_path: Path) -> dict[str, list[int] | None]:
    """The initial corpus of a job: entry → its features; None for an entry that the job must try."""
    content = islands.generation(job)
    place = tmp_path / "given"
    shutil.rmtree(place, ignore_errors=True)
    archive.unpack(content, archive.digest_of_archive(content), place)
    entries = corpus_folder.entries(place / f"{SERVER}-{job.cells[0].target}")
    return {entry.name: found.new if (found := read(entry)) else None for entry in entries}


def test_one_targets_entries_are_tried_on_the_others_and_kept_where_they_show_features(tmp_path: Path) -> None:
    campaign = begin(tmp_path / "campaign", JOBS)
    messages: list[str] = []
    islands = Islands(campaign, tmp_path / "corpora", messages.append)
    assert given_to(islands, LITTLE, tmp_path) == {}
    bring(campaign, LITTLE, long=("a long one", [1, 2]), short=("short", [2, 3]))
    islands.learn(LITTLE)
    assert given_to(islands, LITTLE_2, tmp_path) == {"long": [1, 2], "short": [2, 3]}
    assert given_to(islands, BIG, tmp_path) == {"long": None, "short": None}
    bring(campaign, BIG, long=("", []), short=("", [7]))
    islands.learn(BIG)
    # `long` showed nothing there. It is not sent there again, and stays on the target where it shows something.
    assert given_to(islands, BIG_2, tmp_path) == {"short": [7]}
    assert given_to(islands, LITTLE_2, tmp_path) == {"long": [1, 2], "short": [2, 3]}
    # Later features of an entry are added to its first ones.
    bring(campaign, BIG_2, short=("", [8]))
    islands.learn(BIG_2)
    assert given_to(islands, BIG, tmp_path) == {"short": [7, 8]}
    # A shorter entry replaces both.
    bring(campaign, LITTLE_2, tiny=("t", [1, 2, 3]))
    islands.learn(LITTLE_2)
    assert given_to(islands, LITTLE, tmp_path) == {"tiny": [1, 2, 3]}
    assert given_to(islands, BIG_2, tmp_path) == {"short": [7, 8], "tiny": None}
    learned = [(one.target, one.features, one.kept) for one in campaign.journal() if one.what == "learned"]
    assert learned == [("little", 3, 2), ("big", 1, 1), ("big", 2, 1), ("little", 3, 1)]
    assert messages[-1] == "little: generation 2 shows 3 features with 1 entries"
    # The campaign stops and resumes. It continues from its last state, and no dropped stream returns.
    before = {path: path.read_bytes() for path in sorted((tmp_path / "corpora").rglob("*")) if path.is_file()}
    again = Islands(begin(campaign.path, JOBS), tmp_path / "corpora", messages.append)
    assert {path: path.read_bytes() for path in sorted((tmp_path / "corpora").rglob("*")) if path.is_file()} == before
    assert given_to(again, BIG_2, tmp_path) == {"short": [7, 8], "tiny": None}


def test_two_jobs_of_a_target_do_not_try_the_same_entries_and_a_lost_one_returns_its_own(tmp_path: Path) -> None:
    campaign = begin(tmp_path / "campaign", JOBS)
    for number in range(MOST_UNTRIED + 10):
        for target in ("little", "big"):
            corpus_folder.keep(tmp_path / "corpora" / f"{SERVER}-{target}" / f"entry{number}", b"x")
    islands = Islands(campaign, tmp_path / "corpora", lambda _: None)
    first, second = (given_to(islands, job, tmp_path).keys() for job in (LITTLE, LITTLE_2))
    assert (len(first), len(second), first & second) == (MOST_UNTRIED, 10, set())
    # Both targets try the same entry.
    assert given_to(islands, BIG, tmp_path).keys() == first
    # The job is given again, as after the loss of its worker.
    assert given_to(islands, LITTLE, tmp_path).keys() == first
    # The job had no time for all of them, so the others are available again.
    bring(campaign, LITTLE, **{name: ("", []) for name in sorted(first)[:30]})
    islands.learn(LITTLE)
    assert given_to(islands, LITTLE_2, tmp_path).keys() == second | set(sorted(first)[30:])


def test_a_corpus_of_another_build_is_tried_again(tmp_path: Path) -> None:
    campaign = begin(tmp_path / "campaign", JOBS)
    place = tmp_path / "corpora" / f"{SERVER}-little"
    corpus_folder.keep(place / "entry", b"x")
    corpus_folder.note(place / "entry", EntryFeatures(build="an older build", new=[1]))
    islands = Islands(campaign, tmp_path / "corpora", lambda _: None)
    bring(campaign, LITTLE, other=("y", [1]))
    islands.learn(LITTLE)
    assert given_to(islands, LITTLE_2, tmp_path) == {"entry": None, "other": [1]}


def test_a_corpus_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    campaign = begin(tmp_path / "campaign", JOBS)
    islands = Islands(campaign, write(tmp_path / "file", ""), lambda _: None)
    bring(campaign, LITTLE, entry=("x", [1]))
    with pytest.raises(InfrastructureError, match="cannot write"):
        islands.learn(LITTLE)


def test_what_no_suite_writes_is_left_out_of_a_corpus_and_ends_no_campaign(tmp_path: Path) -> None:
    """Regressions: a folder in the place of features, a large number in them and a long name ended the campaign."""
    campaign = begin(tmp_path / "campaign", JOBS)
    islands = Islands(campaign, tmp_path / "corpora", lambda _: None)
    too_large = "x" * (corpus_folder.LARGEST_BYTES + 1)
    bring(campaign, LITTLE, good=("x", [1]), large=(too_large, [2]), other=("y", [3]))
    learned = campaign.run_of(LITTLE.name) / LEARNED / f"{SERVER}-little"
    told = (learned / "good.features").read_text("utf-8")
    (learned / "folder.features").mkdir()
    write(learned / "number.features", told.replace("[1]", f"[{1 << 70}]"))
    for name in ("", ".hidden", "n" * 240, "a b"):
        write(learned / f"{name}.features", told)
    islands.learn(LITTLE)
    kept = {path.name for path in (tmp_path / "corpora").rglob("*.features")}
    assert kept == {"good.features", "other.features"}
    assert given_to(islands, LITTLE_2, tmp_path) == {"good": [1], "other": [3]}


WRITES = """
import pathlib, sys
words = sys.argv[1:]
run, corpora = (pathlib.Path(words[words.index(one) + 1]) for one in ("--run", "--corpus"))
assert (corpora / "S-T" / "old").read_bytes() == b"old"
(corpora / "S-T" / "new").write_bytes(b"new")
(corpora / "S-T" / "changed").write_bytes(b"now")
run.mkdir()
(run / "findings.json").write_text("{}")
"""


def test_a_job_returns_only_its_additions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old", "changed"):
        write(tmp_path / "corpora" / "S-T" / name, name)
    program = write(tmp_path / "program.py", WRITES)
    monkeypatch.setattr(task.WorkerSettings, "program", [sys.executable, str(program)])
    job = msgspec.structs.replace(LITTLE, version=harness_version())
    described, content = task.carry_out(json_codec.encode(job), None, archive.pack(tmp_path / "corpora"))
    report = json_codec.decode(described, JobReport)
    assert report.problem == ""
    archive.unpack(content, report.archive, tmp_path / "run")
    learned = {path.name: path.read_text("utf-8") for path in (tmp_path / "run" / LEARNED / "S-T").iterdir()}
    assert learned == {"new": "new", "changed": "now"}


def test_the_page_draws_the_features_of_each_target_over_time(tmp_path: Path) -> None:
    campaign = begin(tmp_path / "campaign", JOBS)
    assert "What jobs have learned" not in page_of(status_of(campaign))
    grows = {"<little>": [(60.0, 1000), (120.0, 1500), (240.0, 1600)], "big": [(120.0, 3000), (240.0, 3200)]}
    rows = [
        CorpusRow(target=target, generation=len(growth), features=growth[-1][1], kept=9, growth=growth)
        for target, growth in grows.items()
    ]
    page = page_of(msgspec.structs.replace(status_of(campaign), corpora=rows))
    (chart,) = [part for part in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if "features over time" in part]
    assert "<little>" not in page
    little, big = ([point.split(",") for point in line.split()] for line in re.findall(r'points="([^"]*)"', chart))
    heights = [float(height) for _, height in little]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == 3
    # A line begins when its first job arrives, and reaches the end of the chart.
    assert float(little[0][0]) < float(big[0][0])
    assert little[-1][0] == big[-1][0]
    assert {"0.0 min", "2.0 min", "4.0 min"} <= set(re.findall(r">([^<]* min)<", chart))


def test_a_long_learning_run_is_split_into_short_ones_of_all_targets_in_turn(tmp_path: Path, plumb: Plumb) -> None:
    plan = make_plan(Catalog(), targets=("armv5", "sparc64"), server=SERVER, suites=("fuzz",), tier="thorough")
    wanted = fakes.quick_request(plan, server=SERVER, known=tmp_path / "known.toml", run=tmp_path / "run")
    wanted = msgspec.structs.replace(wanted, learns=True, limit_seconds=2.5 * ISLAND_SECONDS, seed=2**32 - 1)
    jobs = check_jobs(Catalog(), wanted, version="1", known="")
    names = [f"{target}-fuzz-{number:03}" for number in (1, 2, 3) for target in ("armv5", "sparc64")]
    assert [job.name for job in jobs] == names
    assert len({job.key for job in jobs}) == 6
    assert {job.words[job.words.index("--time") + 1] for job in jobs} == {"50s"}
    seeds = [job.words[job.words.index("--seed") + 1] for job in jobs]
    assert seeds == ["4294967295", "0", "1", "2", "3", "4"], "two targets use the same seed"
    # Compiler warnings are collected once for each target.
    assert [job.words[job.words.index("--warnings") + 1] for job in jobs] == ["note"] * 2 + ["off"] * 4
    for limits in ({"limit_count": 7}, {"limit_seconds": 60.0}):
        assert len(check_jobs(Catalog(), msgspec.structs.replace(wanted, **limits), version="1", known="")) == 2
    places = {RUN: str(tmp_path / "run"), CORPORA: str(tmp_path / "corpora"), "{server}": "redis-0.0.0"}
    known = write(tmp_path / "known.toml", "findings = []\n")
    code, _, err = plumb(*[places.get(word, word).replace("{known}", str(known)) for word in jobs[0].words])
    assert (code, "redis-0.0.0" in err) == (ExitCode.USAGE, True), err
