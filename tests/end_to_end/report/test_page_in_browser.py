"""report.html in a real browser, at desktop and phone width, light and dark."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.analysis import source_excerpt
from harness.core import json_codec
from harness.report.formats import registry as formats
from tests.end_to_end.support.browser import LOOKS, look
from tests.support.judgements import HOSTILE, judgement, run_folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

MEASURE = """
const layout = {};
const page = document.documentElement;
document.querySelectorAll("details").forEach(one => one.open = true);
layout.overflow = page.scrollWidth - window.innerWidth;
layout.scripts = document.querySelectorAll("script:not(#probe), img, iframe").length;
layout.heading = document.querySelector("details h3").textContent;
layout.cells = [...document.querySelectorAll("#main section:first-child td strong")].map(one => one.textContent.trim());
layout.skip = document.querySelector(".skip").getAttribute("href");
const colour = text => (text.match(/[\\d.]+/g) || []).map(Number);
const shine = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
function behind(one) {
  for (; one; one = one.parentElement) {
    const rgb = colour(getComputedStyle(one).backgroundColor);
    if (rgb.length === 3 || rgb[3] > 0) return rgb;
  }
  return [255, 255, 255];
}
layout.page = behind(document.body);
layout.faint = [];
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || one.closest("svg") || !one.getClientRects().length) continue;
  const [high, low] = [shine(colour(getComputedStyle(one).color)), shine(behind(one))].sort((a, b) => b - a);
  if ((high + .05) / (low + .05) < 4.5) layout.faint.push(one.className + ": " + one.textContent.slice(0, 40));
}
layout.unreachable = [...document.querySelectorAll("body *")].filter(one => {
  const style = getComputedStyle(one);
  return /auto|scroll/.test(style.overflowX) && one.scrollWidth > one.clientWidth + 1 && one.tabIndex < 0;
}).map(one => one.outerHTML.slice(0, 80));
document.documentElement.dataset.layout = JSON.stringify(layout);
"""
"""Runs in a copy of the page without its policy, which forbids scripts. The contrast rule is WCAG 2.2, 1.4.3."""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page of a hostile server's run."""
    folder = run_folder(tmp_path)
    whole = judgement(title=HOSTILE + "<img src=http://127.0.0.1:1/x onerror=alert(1)>" + "long" * 60, reason=HOSTILE)
    kept = source_excerpt.Excerpts(sources={"src/bitops.c": {452: "\t" * 3 + "x" * 300}})
    (folder / source_excerpt.FILE).write_bytes(json_codec.encode(kept))
    formats.write(folder, whole)
    return folder / "report.html"


def measured(page: Path, *, size: tuple[int, int], dark: bool) -> dict[str, Any]:
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))
    probe = page.with_name("probe.html")
    probe.write_text(text.replace("</body>", f'<script id="probe">{MEASURE}</script></body>'), "utf-8")
    document, console = look(probe, size=size, dark=dark)
    assert console == []
    found = re.search(r'data-layout="([^"]*)"', document)
    assert found is not None, document[:500]
    read: dict[str, Any] = json.loads(
        found[1].replace("&quot;", '"').replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
    )
    return read


def test_it_renders_without_a_word_on_the_console(page: Path) -> None:
    """The browser would report there a script, an image or a style that the page's policy forbids."""
    document, console = look(page)
    assert console == []
    assert "<h1>redis-3.2.6</h1>" in document
    assert "alert(1)&gt;" in document
    assert "<script" not in document


def test_a_browser_reports_content_that_a_policy_forbids(page: Path) -> None:
    """Proves that the test above can fail."""
    text = page.read_text("utf-8")
    page.write_text(text.replace("</main>", "<script>1</script><img src='http://127.0.0.1:1/x'></main>"), "utf-8")
    assert len(look(page)[1]) == 2


@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_it_fits_is_legible_and_reachable(page: Path, size: tuple[int, int], *, dark: bool) -> None:
    layout = measured(page, size=size, dark=dark)
    assert (layout["overflow"], layout["scripts"], layout["faint"], layout["unreachable"]) == (0, 0, [], [])
    assert layout["heading"].startswith("<script>alert(1)</script>"), "the title of the first finding, as text"
    assert [text.split()[-1] for text in layout["cells"]] == ["PASS", "FAIL", "UNKNOWN", "UNKNOWN", "XFAIL"]
    assert (sum(layout["page"][:3]) < 3 * 128) == dark


def test_a_picture_can_be_taken(page: Path, tmp_path: Path) -> None:
    look(page, shot=tmp_path / "shot.png")
    assert (tmp_path / "shot.png").read_bytes().startswith(b"\x89PNG")
