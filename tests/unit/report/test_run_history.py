"""The history of many runs: its order, its first, last, gone and flaky findings, and the site that shows them.

tests/end_to_end/report/test_history_in_browser.py tests the site in a browser.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from base64 import b64decode
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from harness.core.errors import ExitCode
from harness.record.run_record import CHANGES
from harness.report.history import history, read_judged
from harness.report.run_history.timeline import Timeline, Trace, timeline
from tests.support import fakes
from tests.support.histories import finding, judged_run
from tests.support.judgements import HOSTILE
from tests.support.stored import StoredRun
from tests.unit.report.test_page import Outline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fakes import Plumb

ONE, TWO = "1" * 40, "2" * 40


def line_of(*folders: Path) -> Timeline:
    return timeline(map(read_judged, folders))


def trace_of(*folders: Path) -> Trace:
    (trace,) = line_of(*folders).traces
    return trace


def test_verdicts_are_by_revision_and_target_the_latest_first(tmp_path: Path) -> None:
    old = judged_run(tmp_path, "20260101-000000", finding("a", "armv5"), server="/src/my-redis", revision=ONE)
    new = judged_run(tmp_path, "20260102-000000", finding("a", "sparc64"), server="/job/my-redis", revision=TWO)
    line = line_of(new, old)
    assert line.targets == ["armv5", "sparc64"]
    assert [row.label for row in line.rows] == [f"my-redis {TWO[:12]}", f"my-redis {ONE[:12]}"]
    verdicts = [{target: cell.verdict.value for target, cell in row.cells.items()} for row in line.rows]
    assert verdicts == [{"armv5": "PASS", "sparc64": "FAIL"}, {"armv5": "FAIL", "sparc64": "PASS"}]
    assert [row.cells["armv5"].findings for row in line.rows] == [0, 1]
    assert line.rows[0].cells["armv5"].seconds == 3.0


def test_a_finding_has_a_first_and_last_run_and_is_gone_if_the_latest_run_lacks_it(tmp_path: Path) -> None:
    runs = [
        judged_run(tmp_path, "20260101-000000", server="redis-6.2.14"),
        judged_run(tmp_path, "20260102-000000", finding("a", "armv5", title="old"), server="redis-7.0.14"),
        judged_run(tmp_path, "20260103-000000", finding("a", "armv5", "sparc64", title="new"), server="redis-7.0.15"),
    ]
    there = trace_of(*runs)
    assert (there.first.folder.name, there.last.folder.name) == ("20260102-000000", "20260103-000000")
    assert (there.finding.title, there.targets, there.series) == ("new", ["armv5", "sparc64"], "redis")
    assert (there.seen, there.looked, there.is_gone, there.is_flaky, there.has_returned) == (2, 3, False, False, False)
    gone = trace_of(*runs, judged_run(tmp_path, "20260104-000000", server="redis-8.0.6"))
    assert (gone.seen, gone.looked, gone.is_gone, gone.is_flaky) == (2, 4, True, False)
    assert gone.last.folder.name == "20260103-000000"


def test_a_run_that_could_not_show_a_finding_does_not_affect_its_history(tmp_path: Path) -> None:
    """With another target, policy, build or server, fewer tests or an inconclusive cell, a finding is neither gone nor
    flaky.
    """
    runs = [
        judged_run(tmp_path, "20260101-000000", finding("a", "armv5"), tier="full"),
        judged_run(tmp_path, "20260101-000001", tier="quick"),
        judged_run(tmp_path, "20260101-000002", tier="full", tests=["another"]),
        judged_run(tmp_path, "20260102-000000", targets=["sparc64"], tier="full"),
        judged_run(tmp_path, "20260103-000000", verdict="UNKNOWN", tier="full"),
        judged_run(tmp_path, "20260104-000000", policy="fixup", tier="full"),
        judged_run(tmp_path, "20260105-000000", server="valkey-9.1.2", tier="full"),
        judged_run(tmp_path, "20260106-000000", tier="full", settings=["--cflags=-DX"]),
        judged_run(tmp_path, "20260107-000000", tier="full", left_out=7),
    ]
    trace = trace_of(*runs)
    assert (trace.seen, trace.looked, trace.is_gone, trace.is_flaky) == (1, 1, False, False)


def test_a_run_that_could_not_show_a_finding_does_not_mark_it_as_gone(tmp_path: Path) -> None:
    """The same holds in the list of a run and its neighbours."""
    names = [f"2026010{day}-000000" for day in (1, 2, 3, 4)]
    judged_run(tmp_path, names[0], finding("a", "armv5"))
    judged_run(tmp_path, names[1], verdict="UNKNOWN")
    judged_run(tmp_path, names[2], finding("a", "armv5"))
    last = judged_run(tmp_path, names[3])
    lines = {run.name: (run.findings, run.appeared, run.gone) for run in history(last)}
    assert lines == {names[0]: (1, None, None), names[1]: (0, [], []), names[2]: (1, [], []), names[3]: (0, [], ["a"])}


def test_runs_of_one_revision_that_disagree_are_flaky(tmp_path: Path) -> None:
    runs = [
        judged_run(tmp_path, "20260101-000000", finding("a", "armv5"), server="/src/r", revision=ONE),
        judged_run(tmp_path, "20260102-000000", server="/elsewhere/r", revision=ONE),
        judged_run(tmp_path, "20260103-000000", server="/src/r", revision=ONE),
    ]
    line = line_of(*runs)
    (trace,), (row,) = line.traces, line.rows
    assert (trace.is_flaky, trace.is_gone) == (True, True)
    assert {target: cell.differing for target, cell in row.cells.items()} == {
        "armv5": "FAIL in 1 of 3 runs",
        "sparc64": "",
    }


@pytest.mark.parametrize("revision", ["", ONE + CHANGES], ids=["no-checkout", "uncommitted"])
def test_runs_of_a_tree_that_no_commit_names_are_never_flaky(tmp_path: Path, revision: str) -> None:
    """It is unknown whether the tree was the same."""
    runs = [
        judged_run(tmp_path, "20260101-000000", finding("a", "armv5"), server="/src/r", revision=revision),
        judged_run(tmp_path, "20260102-000000", server="/src/r", revision=revision),
    ]
    line = line_of(*runs)
    assert [row.runs[0].folder.name for row in line.rows] == ["20260102-000000", "20260101-000000"]
    assert not line.traces[0].is_flaky


def test_a_finding_that_was_gone_and_recurs_has_returned(tmp_path: Path) -> None:
    runs = [
        judged_run(tmp_path, "20260101-000000", finding("a", "armv5"), server="redis-7.0.13"),
        judged_run(tmp_path, "20260102-000000", server="redis-7.0.14"),
        judged_run(tmp_path, "20260103-000000", finding("a", "armv5"), server="redis-7.0.15"),
    ]
    trace = trace_of(*runs)
    assert (trace.has_returned, trace.is_flaky, trace.is_gone) == (True, False, False)


def test_present_findings_come_before_gone_ones_and_new_ones_before_known_ones(tmp_path: Path) -> None:
    runs = [
        judged_run(tmp_path, "20260101-000000", finding("a", "armv5"), finding("b", "armv5", known="issue 1")),
        judged_run(tmp_path, "20260102-000000", finding("b", "armv5", known="issue 1"), finding("c", "armv5")),
    ]
    assert [trace.finding.id for trace in line_of(*runs).traces] == ["c", "b", "a"]


def test_a_site_shows_runs_of_a_folder_and_a_later_call_adds_to_it(tmp_path: Path, plumb: Plumb) -> None:
    runs, site = tmp_path / "runs", tmp_path / "site"
    judged_run(runs, "20260101-000000", finding("a", "armv5"), server="redis-7.0.14")
    judged_run(runs, "20260102-000000")
    assert plumb("history", runs, "--output", site) == (ExitCode.PASS, f"{site / 'index.html'}\n", "")
    later = judged_run(tmp_path / "other", "nightly", finding("b", "sparc64"))
    stamp = 1767500000
    os.utime(later / "run.json", (stamp, stamp))
    code, out, _ = plumb("history", later, "--output", site, "--json")
    assert code == ExitCode.PASS
    names = json.loads(out)["runs"]
    # A folder without a time in its name gets that of the run, as a clock on the wall shows it.
    began = time.strftime("%Y%m%d-%H%M%S", time.localtime(stamp))
    assert names == [f"{began}-nightly", "20260102-000000", "20260101-000000"]
    page = Outline((site / "index.html").read_text("utf-8"))
    words = " ".join(page.text().split())
    assert "3 runs of 2 revisions, 2 findings, of which 1 is still there" in words
    addresses = {each["href"] for each in page.named("a") if each["href"].startswith("./")}
    assert addresses == {f"./runs/{name}/report.html" for name in names}
    for name in names:
        report = (site / "runs" / name / "report.html").read_text("utf-8")
        assert "History of runs" not in report, "only the site, and not the run's own report, links to neighbours"


def test_the_same_call_twice_makes_the_same_site_and_a_new_judgement_replaces_the_old(
    tmp_path: Path, plumb: Plumb
) -> None:
    run, site = judged_run(tmp_path / "runs", "20260101-000000", finding("a", "armv5")), tmp_path / "site"
    plumb("history", run, "--output", site)
    first = {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    plumb("history", run, site / "runs", "--output", site)
    assert {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()} == first
    text = (run / "findings.json").read_text("utf-8")
    fakes.write(run / "findings.json", text.replace("title of a", "another title"))
    plumb("history", run, "--output", site)
    assert [path.name for path in (site / "runs").iterdir()] == ["20260101-000000"]
    for page in (site / "index.html", site / "runs" / "20260101-000000" / "report.html"):
        assert "another title" in page.read_text("utf-8"), page


def test_two_runs_of_one_name_are_two_runs(tmp_path: Path, plumb: Plumb) -> None:
    one = judged_run(tmp_path / "a", "20260101-000000", finding("a", "armv5"))
    two = judged_run(tmp_path / "b", "20260101-000000", finding("b", "armv5"), server="redis-8.0.6")
    _, out, _ = plumb("history", one, two, "--output", tmp_path / "site", "--json")
    assert len(json.loads(out)["runs"]) == 2


def test_a_joined_run_without_a_record_has_no_page_of_its_own(tmp_path: Path, plumb: Plumb) -> None:
    run = judged_run(tmp_path, "20260101-000000", finding("a", "armv5"))
    (run / "run.json").unlink()
    assert plumb("history", run, "--output", tmp_path / "site")[0] == ExitCode.PASS
    page = Outline((tmp_path / "site" / "index.html").read_text("utf-8"))
    assert [each["href"] for each in page.named("a") if each["href"].startswith("./")] == []


def test_hostile_runs_are_shown_escaped(tmp_path: Path, plumb: Plumb) -> None:
    identity = HOSTILE + "</title></style>"
    judged_run(
        tmp_path / "runs", "a<img src=x>", finding(identity, HOSTILE, title=HOSTILE, known=HOSTILE), targets=[HOSTILE]
    )
    judged_run(tmp_path / "runs", "20260102-000000", server=HOSTILE, revision=HOSTILE)
    judged_run(tmp_path / "runs", "20260103-000000", targets=[HOSTILE])
    judged_run(tmp_path / "runs", "20260104-000000", targets=[HOSTILE], server="redis-8.0.6")
    site = tmp_path / "site"
    assert plumb("history", tmp_path / "runs", "--output", site)[0] == ExitCode.PASS
    text = (site / "index.html").read_text("utf-8")
    page = Outline(text)
    assert page.named("script", "iframe", "form") == []
    assert all(each["src"].startswith("data:image/svg+xml;base64,") for each in page.named("img"))
    assert all(each["href"].startswith(("#", "./runs/", "data:,")) for each in page.named("a", "link"))
    (chart,) = page.named("img")
    ElementTree.fromstring(b64decode(chart["src"].partition(",")[2]))  # noqa: S314 - the project's own picture
    assert not set(text) & {"\x1b", "\x00", "\u202e"}
    assert all(
        path.name.replace("-", "").replace("_", "").replace(".", "").isalnum() for path in (site / "runs").iterdir()
    )


def test_a_strangers_page_in_an_existing_site_cannot_run_scripts(tmp_path: Path, plumb: Plumb) -> None:
    """Regression: a page that was there remained, whatever it did."""
    names = ("20260101-000000", "20260102-000000", "20260103-000000")
    for name in names:
        judged_run(tmp_path / "runs", name)
    site = tmp_path / "site"
    plumb("history", tmp_path / "runs", "--output", site)
    own, hostile, old = (site / "runs" / name / "report.html" for name in names)
    fakes.write(own, own.read_text("utf-8") + "<!-- still ours -->")
    for page in (hostile, old):
        fakes.write(page, "<!doctype html>\n<script>alert(1)</script>\n" + page.read_text("utf-8"))
    # Nothing can render the page of an old format again.
    fakes.write(old.with_name("run.json"), "{}")
    assert plumb("history", tmp_path / "runs" / names[0], "--output", site)[0] == ExitCode.PASS
    assert "still ours" in own.read_text("utf-8"), "not every page of a long history is rendered each time"
    assert Outline(hostile.read_text("utf-8")).named("script") == []
    assert not old.exists()
    index = Outline((site / "index.html").read_text("utf-8"))
    shown = {each["href"] for each in index.named("a") if each["href"].startswith("./")}
    assert shown == {f"./runs/{name}/report.html" for name in names[:2]}


def test_runs_whose_names_are_not_utf8_are_shown_and_linked(tmp_path: Path, plumb: Plumb) -> None:
    """Regression: a stranger's site, or a folder beside the run's own, made the command a bug in Plumbline."""
    run = judged_run(tmp_path / "runs", "20260101-000000")
    site = tmp_path / "site"
    plumb("history", run, "--output", site)
    plumb("report", run)
    for beside in (site / "runs", run.parent):
        shutil.copytree(run, beside / os.fsdecode(b"20260102-000000-\xe9"))
    assert plumb("history", run, "--output", site)[0] == ExitCode.PASS
    assert json.loads((site / "history.json").read_text("utf-8"))["runs"][0] == r"20260102-000000-\xe9"
    assert plumb("report", run)[0] == ExitCode.PASS
    for page, address in ((site / "index.html", "./runs/"), (run / "report.html", "./../")):
        links = [each["href"] for each in Outline(page.read_text("utf-8")).named("a") if "%E9" in each["href"]]
        assert set(links) == {f"{address}20260102-000000-%E9/report.html"}


def test_unreadable_runs_of_a_folder_are_listed_and_an_explicitly_named_one_is_an_error(
    tmp_path: Path, plumb: Plumb
) -> None:
    runs, site = tmp_path / "runs", tmp_path / "site"
    judged_run(runs, "20260101-000000")
    (judged_run(runs, "20260102-000000") / "findings.json").unlink()
    fakes.write(runs / "20260103-000000" / "findings.json", '{"verdict": "PASS", "server": 1}')
    outside = judged_run(runs, "20260104-000000")
    (outside / "excerpts.json").symlink_to("/etc/passwd")
    damaged = StoredRun(runs / "20260105-000000")
    plumb("judge", damaged.finish())
    fakes.write(damaged.folder / "run.json", "{")
    code, _, err = plumb("history", runs, "--output", site)
    assert code == ExitCode.PASS
    listed = [line.split(": ")[1] for line in err.splitlines()]
    assert listed == ["20260102-000000", "20260103-000000", "20260104-000000", "20260105-000000"]
    shown = Outline((site / "index.html").read_text("utf-8")).text()
    assert shown.count("Left out: ") == 4
    assert [path.name for path in (site / "runs").iterdir()] == ["20260101-000000"]
    code, _, err = plumb("history", runs / "20260103-000000", "--output", site)
    assert (code, "the judgement is damaged" in err, "plumb judge" in err or "judge " in err) == (4, True, True)
    assert plumb("history", outside, "--output", site)[0] == ExitCode.USAGE


def test_a_judgement_that_is_not_a_regular_file_is_left_out_without_waiting(tmp_path: Path, plumb: Plumb) -> None:
    runs, site = tmp_path / "runs", tmp_path / "site"
    here = judged_run(runs, "20260101-000000")
    pipe, folder = (judged_run(runs, name) / "findings.json" for name in ("20260102-000000", "20260103-000000"))
    pipe.unlink()
    os.mkfifo(pipe)
    folder.unlink()
    folder.mkdir()
    assert [run.name for run in history(here)] == ["20260101-000000"]
    code, _, err = plumb("history", runs, "--output", site)
    assert (code, [line.split(": ")[1] for line in err.splitlines()]) == (0, ["20260102-000000", "20260103-000000"])


def test_a_folder_without_runs_and_an_output_that_is_something_else_are_refused(tmp_path: Path, plumb: Plumb) -> None:
    run = judged_run(tmp_path / "runs", "20260101-000000")
    fakes.write(tmp_path / "other" / "precious", "")
    code, _, err = plumb("history", tmp_path / "other", "--output", tmp_path / "site")
    assert (code, "no judged run" in err) == (ExitCode.USAGE, True)
    code, _, err = plumb("history", run, "--output", tmp_path / "other")
    assert (code, "neither empty nor a history" in err) == (ExitCode.USAGE, True)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["precious"]
    code, _, err = plumb("history", run, "--output", run / "run.json")
    assert (code, "the site is a folder" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("name", ["20261301-000000", "99999999-999999-x", "00000000-000000"])
def test_a_name_whose_digits_are_not_a_time_is_dated_by_its_record(tmp_path: Path, plumb: Plumb, name: str) -> None:
    folder = judged_run(tmp_path / "runs", name)
    os.utime(folder / "run.json", (1.7e9, 1.7e9))
    assert plumb("history", tmp_path / "runs", "--output", tmp_path / "site")[0] == ExitCode.PASS
    assert read_judged(folder).seconds == 1.7e9
    assert (tmp_path / "site" / "runs" / name / "report.html").is_file()


def test_a_number_that_no_chart_can_show_is_refused(tmp_path: Path, plumb: Plumb) -> None:
    run = judged_run(tmp_path / "runs", "20260101-000000")
    text = (run / "findings.json").read_text("utf-8")
    fakes.write(run / "findings.json", text.replace('"seconds":1.5', '"seconds":1e308'))
    assert plumb("history", run, "--output", tmp_path / "site")[0] == ExitCode.USAGE


WAYS_OUT: dict[str, Callable[[Path, Path], None]] = {
    "a run that is a link": lambda site, away: (site / "runs" / "20260101-000000-x").symlink_to(away),
    "all runs in another folder": lambda site, away: _replaced(site / "runs", away),
    "a pipe as a judgement": lambda site, _: os.mkfifo(site / "runs" / "20260102-000000" / "pipe"),
    "a judgement elsewhere": lambda site, away: (site / "runs" / "findings.json").symlink_to(away / "findings.json"),
}


def _replaced(path: Path, away: Path) -> None:
    path.rename(path.with_name("old"))
    path.symlink_to(away)


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_site_that_leads_out_of_itself_is_refused(plumb: Plumb, tmp_path: Path, way: str) -> None:
    """Regression: a site from a stranger made the command write into other folders, or wait for a pipe."""
    run = judged_run(tmp_path, "20260102-000000", finding("a", "armv5"))
    away = judged_run(tmp_path / "away", "20260101-000000", finding("b", "armv5"))
    site = tmp_path / "site"
    assert plumb("history", run, "--output", site)[0] == ExitCode.PASS
    before = sorted(path.name for path in away.iterdir())
    WAYS_OUT[way](site, away)
    code, _, err = plumb("history", run, "--output", site)
    assert (code, "error: a site may contain only files" in err) == (ExitCode.USAGE, True)
    assert sorted(path.name for path in away.iterdir()) == before
