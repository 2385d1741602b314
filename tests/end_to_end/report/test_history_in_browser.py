"""The history's site in a real browser: it fits, writes nothing to the console, and its links lead to reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.report.run_history.history_site import write_site
from tests.end_to_end.support.browser import LOOKS, look
from tests.end_to_end.support.driven_browser import DrivenBrowser
from tests.support.histories import finding, judged_run
from tests.support.judgements import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

UNREACHABLE = """[...document.querySelectorAll("body *")].filter(one => {
  const style = getComputedStyle(one);
  return /auto|scroll/.test(style.overflowX) && one.scrollWidth > one.clientWidth + 1 && one.tabIndex < 0;
}).length"""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """The first page of a site of four runs, one of them hostile."""
    runs = tmp_path / "runs"
    flaky = finding("wrong-result-seldom", "armv5", title="seldom seen")
    judged_run(runs, "20260101-000000", finding("alignment-a-load", "armv5"), flaky, server="redis-7.0.14")
    judged_run(runs, "20260102-000000", finding("alignment-a-load", "armv5"), server="redis-7.0.14")
    judged_run(runs, "20260103-000000", server="redis-7.0.15")
    hostile = finding(
        HOSTILE, "sparc64", title=HOSTILE + "<img src=http://127.0.0.1:1/x onerror=alert(1)>" + "long" * 60
    )
    judged_run(runs, "20260104-000000", hostile, server="redis-8.0.6")
    write_site([runs], tmp_path / "site")
    return tmp_path / "site" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[DrivenBrowser]:
    with DrivenBrowser() as driven:
        yield driven


def test_it_renders_without_a_word_on_the_console(index: Path) -> None:
    document, console = look(index)
    assert console == []
    assert "<h1>History of runs</h1>" in document
    assert "alert(1)&gt;" in document
    assert "<script" not in document


def test_the_history_shows_which_findings_are_flaky_and_when_they_disappeared(
    browser: DrivenBrowser, index: Path
) -> None:
    browser.open(index)
    rows = browser.ask(
        '[...document.querySelectorAll("section[aria-labelledby=findings] tbody tr")].map(row => row.innerText)'
    )
    states = {row.split()[0]: row for row in rows if not row.startswith("<")}
    cells = browser.ask(
        '[...document.querySelectorAll("section[aria-labelledby=verdicts] tbody tr")].map(row => row.innerText)'
    )
    assert len(rows) == 3
    assert rows[0].startswith("<script>alert(1)</script>"), (
        "findings that still exist come first, and their titles are text"
    )
    seldom = states["seldom"]
    assert "flaky" in seldom
    assert "1 of 4" in seldom
    assert "gone" in states["title"]
    assert "2 of 4" in states["title"]
    assert "flaky" not in states["title"]
    assert [row.split()[0] for row in cells] == ["redis-8.0.6", "redis-7.0.15", "redis-7.0.14"]


@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_the_page_fits_and_everything_can_be_reached(
    browser: DrivenBrowser, index: Path, size: tuple[int, int], *, dark: bool
) -> None:
    browser.open(index, size=size, dark=dark)
    assert browser.ask("document.documentElement.scrollWidth - window.innerWidth") == 0
    assert browser.ask(UNREACHABLE) == 0
    assert browser.ask("[...document.images].map(one => one.naturalWidth > 0)") == [True]


@pytest.mark.slow(instead="tests/unit/report/test_run_history.py; test_the_page_fits_and_everything_can_be_reached")
def test_the_links_lead_to_the_reports_of_the_runs(browser: DrivenBrowser, index: Path) -> None:
    browser.open(index)
    addresses = browser.ask('[...document.querySelectorAll("main td a, main th a")].map(one => one.href)')
    assert len(set(addresses)) == 4
    for address in set(addresses):
        report = index.parent / "runs" / address.split("/")[-2] / "report.html"
        assert report.as_uri() == address
        browser.open(report)
        assert browser.ask("document.querySelector('h1').innerText").startswith("redis-")
