"""report.html without a browser: one file without external parts, no executed content, and the necessary structure.

tests/end_to_end/report/test_page_in_browser.py tests it in a browser.
"""

from __future__ import annotations

import itertools
from collections import Counter
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import source_excerpt
from harness.core import json_codec
from harness.core.finding import Verdict
from harness.report.formats import registry as formats
from harness.report.verdict_sentence import sentence
from tests.support import fakes
from tests.support.judgements import HOSTILE, cell, judgement, only_canaries, run_folder
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement

VOID = {"meta", "link", "br", "rect", "path", "img", "input", "hr"}


class Outline(HTMLParser):
    """Elements with their attributes, and text by the innermost element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert tag == self.open.pop(), f"</{tag}> where another element is open"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self) -> str:
        return "".join(data for tag, data in self.texts if tag != "style")

    def named(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


def written(tmp_path: Path, whole: Judgement) -> str:
    folder = run_folder(tmp_path)
    formats.write(folder, whole)
    return (folder / "report.html").read_text("utf-8")


def test_the_page_shows_the_contents_of_the_judgement(tmp_path: Path) -> None:
    text = Outline(written(tmp_path, judgement())).text()
    for words in (
        "redis-3.2.6",
        "FAIL",
        "alignment-bitopCommand-load",
        "src/bitops.c:452",
        "ldr r1, [r3]",
        "load of 4 bytes at 1 mod 4",
        "BITOP AND c a b",
        "plumb replay /run/reproducers/alignment-bitopCommand-load.json",
        "its canaries misbehaved",
        "known finding x expired",
    ):
        assert words in text, f"the page does not show: {words}"


def test_the_base_and_unusual_settings_of_a_run_are_shown(tmp_path: Path) -> None:
    usual = Outline(written(tmp_path / "usual", judgement())).text()
    assert "compared with base" not in usual
    assert "allocator" not in usual
    assert "clients by" not in usual
    unusual = msgspec.structs.replace(judgement(), base="abc1234 (main)", allocator="guard", io="tcp")
    texts = Outline(written(tmp_path / "unusual", unusual)).texts
    assert {("dt", "compared with base"), ("code", "abc1234 (main)"), ("dt", "allocator"), ("code", "guard")} <= {
        *texts
    }
    assert {("dt", "clients by"), ("code", "tcp")} <= {*texts}


def test_a_servers_text_is_shown_as_text(tmp_path: Path) -> None:
    hostile = HOSTILE + '"></td></table></details><img src=x onerror=alert(1)>{{ 7*7 }}</style>'
    calm, angry = (
        Outline(written(tmp_path / name, judgement(title=title, reason=title)))
        for name, title in (("calm", "x"), ("angry", hostile))
    )
    assert [tag for tag, _ in calm.elements] == [tag for tag, _ in angry.elements]
    assert "<img src=x onerror=alert(1)>{{ 7*7 }}" in angry.text()
    assert {character for character in angry.text() if not character.isprintable()} == {"\n"}


def test_the_page_runs_nothing_and_fetches_nothing(tmp_path: Path) -> None:
    outline = Outline(written(tmp_path, judgement(title=HOSTILE)))
    assert outline.named("script", "iframe", "object", "embed", "form", "img") == []
    assert [name for _, attributes in outline.elements for name in attributes if name.startswith("on")] == []
    addresses = [
        attributes[name] for _, attributes in outline.elements for name in ("href", "src") if name in attributes
    ]
    assert set() == {one for one in addresses if not one.startswith(("#", "./", "data:,"))}
    (policy,) = [one["content"] for one in outline.named("meta") if "http-equiv" in one]
    assert "default-src 'none'" in policy


def test_anchors_labels_and_tables_are_complete(tmp_path: Path) -> None:
    whole = judgement()
    outline = Outline(written(tmp_path, msgspec.structs.replace(whole, findings=whole.findings * 2)))
    ids = Counter(attributes["id"] for _, attributes in outline.elements if "id" in attributes)
    assert set() == {name for name, times in ids.items() if times > 1}
    for _, attributes in outline.elements:
        for reference in attributes.get("aria-labelledby", "").split():
            assert reference in ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids
        # A scrollable element must be reachable by keys, and so needs a name.
        if "tabindex" in attributes and attributes.get("id") != "main":
            assert {"aria-label", "aria-labelledby"} & set(attributes)
    assert all("scope" in one for one in outline.named("th"))
    assert len(outline.named("h1")) == len(outline.named("main")) == 1
    levels = [int(tag[1]) for tag, _ in outline.elements if tag in {"h1", "h2", "h3", "h4"}]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), levels


def test_source_and_instructions_are_shown_with_the_place_marked(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    witness = judgement().findings[0].witnesses[0]
    listing = source_excerpt.Listing(
        binary="redis-server",
        address=0x8004,
        instructions=[
            source_excerpt.Instruction(address=0x8000, code="", text="mov r3, r0"),
            source_excerpt.Instruction(address=0x8004, code="", text="ldr r1, [r3]"),
        ],
    )
    kept = source_excerpt.Excerpts(
        sources={"src/bitops.c": {451: "\t\twhile (n)", 452: "\t\t\tx = <p>;", 460: "\t\tfar away"}},
        listings={source_excerpt.place_key(witness): listing},
    )
    source_excerpt.keep(folder, kept)
    formats.write(folder, judgement())
    text = (folder / "report.html").read_text("utf-8")
    marked = [line for line in text.splitlines() if "marked" in line and "line" in line and "class" in line]
    assert len(marked) == 2
    assert "  452  </span>        x = &lt;p&gt;;<span" in marked[0]
    assert "◀ armv5" in marked[0]
    assert "    8004  </span>ldr r1, [r3]" in marked[1]
    assert "far away" not in text


def test_the_history_shows_new_and_vanished_findings(tmp_path: Path) -> None:
    """The history has the neighbouring runs with the same server, policy and cells. It ignores damaged and unrelated
    folders.
    """
    whole = judgement()
    for name, findings in (("20260101-000000", []), ("20260102-000000", whole.findings)):
        older = StoredRun(tmp_path / name).finish()
        (older / "findings.json").write_bytes(json_codec.encode(msgspec.structs.replace(whole, findings=findings)))
    fakes.write(tmp_path / "20260103-000000" / "findings.json", "{")
    other = msgspec.structs.replace(whole.findings[0], id="other")
    text = Outline(written(tmp_path, msgspec.structs.replace(whole, findings=[other]))).text()
    history = " ".join(text[text.index("History of runs") :].split())
    assert "this run" in history
    order = [history.index(part) for part in ("+ other", "− alignment-bitopCommand-load", "20260102", "+ alignment-")]
    assert sorted(order) == order
    assert "20260103" not in history
    assert "first of its kind" in history


def test_an_unfinished_copy_of_a_run_has_a_page_without_excerpts(tmp_path: Path) -> None:
    assert "Source</h4>" not in written(tmp_path, judgement())


def test_a_run_in_which_only_the_canaries_ran_has_a_remark() -> None:
    assert sentence(only_canaries()) == "no tests ran except the canaries"


def test_only_inherited_findings_count_as_those_of_the_base() -> None:
    """The reason in a known list does not matter."""
    cells = [cell("armv5", "bitops", "XFAIL")]
    (one,) = judgement().findings
    known = msgspec.structs.replace(one, known="also in BASE 0123456789ab")
    whole = msgspec.structs.replace(judgement(), verdict=Verdict.XFAIL, cells=cells, findings=[known])
    assert sentence(whole).startswith("nothing new; 1 known; ")
    compared = msgspec.structs.replace(whole, base="0123456789ab 'it' (why)")
    assert sentence(compared).startswith("nothing new; 1 also in the base; ")
    other = msgspec.structs.replace(whole, base="aaaaaaaaaaaa 'it' (why)")
    assert sentence(other).startswith("nothing new; 1 known; ")


def test_tests_that_passed_in_audits_alone_are_counted_apart() -> None:
    cells = [
        cell("armv5", "sds", "PASS"),
        msgspec.structs.replace(cell("armv5", "bitops", "XFAIL"), passed=0, audited=3),
    ]
    known = msgspec.structs.replace(judgement().findings[0], known="issue 3273")
    whole = msgspec.structs.replace(judgement(), verdict=Verdict.PASS, cells=cells, findings=[known])
    assert sentence(whole).endswith("passed on 1 target, and 3 in audits alone")
    cells[1] = msgspec.structs.replace(cells[1], passed=1)
    assert sentence(whole).endswith("passed on 1 target")


def test_a_run_that_did_not_end_does_not_blame_a_change() -> None:
    cells = [cell("armv5", "canary", "PASS"), cell("armv5", "bitops", "PASS")]
    ended = msgspec.structs.replace(only_canaries(), cells=cells)
    assert sentence(ended) == "the rest of the run could not be judged"
    unseen = msgspec.structs.replace(ended, unchecked=["NOT CHECKED: src/a.c"])
    assert sentence(unseen) == "a change could not be judged"


@pytest.mark.parametrize("verdict", ["PASS", "UNKNOWN", "XFAIL", "SKIP"])
def test_a_page_without_findings_shows_its_verdict(tmp_path: Path, verdict: str) -> None:
    calm = msgspec.structs.replace(judgement(), verdict=verdict, findings=[], remarks=[], cells=[])
    text = Outline(written(tmp_path, calm)).text()
    assert verdict in text
    assert sentence(calm) in text.lower()


def test_the_misaligned_sites_and_their_chart_show_every_target_that_an_audit_saw(tmp_path: Path) -> None:
    """They include a target without a cell, on which a test started a server."""
    whole = judgement()
    witness = whole.findings[0].witnesses[0]
    audited = [
        msgspec.structs.replace(witness, detector="audit", target=target, line=line, fate=fate, count=1234)
        for target, line, fate in (("armv5", 1, "rotated"), ("armv5", 2, "fixup"), ("native", 2, "hardware"))
    ]
    finding = msgspec.structs.replace(whole.findings[0], witnesses=audited)
    text = " ".join(Outline(written(tmp_path, msgspec.structs.replace(whole, findings=[finding]))).text().split())
    work = text[text.index("Misaligned accesses, by source line") :]
    assert "src/bitops.c:1 server load 4 1,234 rotated" in work
    assert "src/bitops.c:2 server load 4 1,234 fixup 1,234 hardware" in work
    chart = work[work.index("Misaligned source lines by target") :]
    assert "2 · 1 fixup · 1 rotated" in chart
    assert "native 1 hardware 1 · 1 hardware" in chart
