"""report.html as a reader uses it: filters, keys, links to findings, and a printer, at both widths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.core.finding import Verdict
from harness.report.formats import registry as formats
from tests.end_to_end.support.browser import DESKTOP, LOOKS, PHONE
from tests.end_to_end.support.driven_browser import DrivenBrowser
from tests.support.judgements import run_folder, several_findings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

LOAD, DUMP, START = (finding.id for finding in several_findings().findings)
SHOWN = """[...document.querySelectorAll("details.finding")].filter(one => one.checkVisibility())
  .map(one => one.querySelector("summary .soft").textContent)"""
NOTHING = 'document.querySelector(".nothing").checkVisibility()'
OPEN = """[...document.querySelectorAll("details.finding")].filter(one => one.querySelector("pre").checkVisibility(
  {contentVisibilityAuto: true})).map(one => one.querySelector("summary .soft").textContent)"""
"""The findings whose commands can be read."""
FOCUSED = "document.activeElement.id || document.activeElement.tagName"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page of a run whose findings differ in every property that the filters use."""
    folder = run_folder(tmp_path)
    formats.write(folder, several_findings())
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[DrivenBrowser]:
    with DrivenBrowser() as driven:
        yield driven


def choose(browser: DrivenBrowser, *names: str) -> list[str]:
    """Reset the filters and choose these. Returns the ids of the findings that are shown."""
    for group in ("status", "kind", "target"):
        browser.ask(f'document.getElementById("{group}-").click()')
    for name in names:
        browser.ask(f'document.getElementById("{name}").click()')
    shown: list[str] = browser.ask(SHOWN)
    return shown


@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_findings_can_be_filtered_by_target_kind_and_status(
    browser: DrivenBrowser, page: Path, size: tuple[int, int], *, dark: bool
) -> None:
    browser.open(page, size=size, dark=dark)
    assert browser.ask("[innerWidth, document.documentElement.scrollWidth]") == [size[0], size[0]]
    assert browser.ask('matchMedia("(prefers-color-scheme: dark)").matches') == dark
    assert set(choose(browser)) == {LOAD, DUMP, START}
    assert set(choose(browser, "target-sparc64")) == {START, DUMP}
    assert choose(browser, "target-sparc32plus") == [DUMP]
    assert choose(browser, "kind-alignment") == [LOAD]
    assert choose(browser, "status-known") == [START]
    assert choose(browser, "status-new", "target-sparc64") == [DUMP]
    assert not browser.ask(NOTHING)
    assert choose(browser, "status-new", "kind-exit") == []
    assert browser.ask(NOTHING), "an empty list must say why it is empty"
    assert choose(browser, "status-new", "kind-wrong-result", "target-armv5") == []
    assert browser.ask(NOTHING)


def test_filters_and_findings_can_be_used_with_keys_alone(browser: DrivenBrowser, page: Path) -> None:
    browser.open(page, size=PHONE)
    browser.press("Tab")
    assert browser.ask("document.activeElement.className") == "skip"
    assert browser.ask("document.activeElement.getBoundingClientRect().left") >= 0, (
        "the focused element must be visible"
    )
    for _ in range(30):
        if browser.ask(FOCUSED) == "status-":
            break
        browser.press("Tab")
    assert browser.ask(FOCUSED) == "status-"
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("ArrowRight", "ArrowRight")
    assert browser.ask(FOCUSED) == "status-known"
    assert browser.ask(SHOWN) == [START]
    browser.press("Tab", "Tab", "Tab")
    assert browser.ask(FOCUSED) == "SUMMARY", "the focus moves to status, kind, target, and then to the only finding"
    assert browser.ask(OPEN) == []
    browser.press("Enter")
    assert browser.ask(OPEN) == [START]
    browser.press(" ")
    assert browser.ask(OPEN) == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_link_to_a_finding_shows_it_unfolded(browser: DrivenBrowser, page: Path, size: tuple[int, int]) -> None:
    browser.open(page, size=size)
    assert browser.ask(OPEN) == [LOAD], "the first is open"
    links: list[str] = browser.ask(
        """[...document.querySelectorAll("details.finding a")].filter(
          one => one.textContent === "Link to this finding").map(one => one.hash.slice(1))"""
    )
    assert links == browser.ask('[...document.querySelectorAll("details.finding")].map(one => one.id)')
    browser.open(page, size=size, fragment=links[-1])
    assert set(browser.ask(OPEN)) == {LOAD, browser.ask(SHOWN)[-1]}
    top = browser.ask('document.querySelector("details.finding:target").getBoundingClientRect().top')
    assert 0 <= top < size[1], "the linked finding is not in the window"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_folded_finding_has_two_lines_for_its_id_and_four_for_its_title(
    browser: DrivenBrowser, page: Path, size: tuple[int, int]
) -> None:
    browser.open(page, size=size)
    for part, most in ((".what", 2), ("summary h3", 4)):
        lines: list[float] = browser.ask(
            f"""[...document.querySelectorAll("details.finding:not([open]) {part}")].map(
              one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight))"""
        )
        assert len(lines) == 2
        assert max(lines) < most + 0.5


def test_a_printer_gets_every_finding_unfolded_and_no_filters(browser: DrivenBrowser, page: Path) -> None:
    browser.open(page)
    browser.printed()
    assert set(browser.ask(OPEN)) == {LOAD, DUMP, START}
    assert not browser.ask('document.querySelector(".filters").checkVisibility()')


@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_a_page_without_a_finding_has_no_filters_and_no_gap(
    browser: DrivenBrowser, tmp_path: Path, size: tuple[int, int], *, dark: bool
) -> None:
    folder = run_folder(tmp_path)
    whole = several_findings()
    passed = [msgspec.structs.replace(cell, verdict=Verdict.PASS, reason="", failed=0) for cell in whole.cells]
    clean = msgspec.structs.replace(whole, verdict=Verdict.PASS, findings=[], remarks=[], cells=passed)
    formats.write(folder, clean)
    browser.open(folder / "report.html", size=size, dark=dark)
    texts: list[Any] = browser.ask(
        """[document.querySelectorAll(".filters, .nothing, details.finding, #findings").length,
          document.querySelector(".badge").textContent.trim(), document.querySelector("header p").textContent.trim(),
          document.documentElement.scrollWidth]"""
    )
    assert texts == [0, "✓ PASS", "Nothing found; 9 tests passed on 3 targets.", size[0]]
    broken = """[...document.querySelectorAll('a[href^="#"]')].filter(
      one => !document.getElementById(one.hash.slice(1))).length"""
    assert browser.ask(broken) == 0
