"""The page about the cost of servers: tables, and charts that need no script in a browser."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

import msgspec

from harness.workflows.measure.cost_comparison import differences
from harness.workflows.measure.cost_document import Measurement, NoFigure
from harness.workflows.measure.server_cost_page import charts, page
from tests.unit.report.test_page import Outline
from tests.unit.workflows.test_server_cost import cost, measured


def of(*servers: str, **changed: Any) -> Measurement:
    costs = [cost(7_600 + 100 * at, 7_600 + 100 * at, name=name, **changed) for at, name in enumerate(servers)]
    return msgspec.structs.replace(measured([]), servers=list(servers), against="", costs=costs)


def images(text: str) -> list[str]:
    return [b64decode(one).decode() for one in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)]


def test_a_page_of_several_releases_draws_one_line_for_each_target() -> None:
    (drawn,) = images(page(of("redis-1", "redis-2", "redis-3")))
    assert drawn.count("<polyline") == 1
    assert drawn.count("<circle") == 3
    assert [name in drawn for name in ("redis-1", "redis-2", "redis-3", "armv5")] == [True] * 4


def test_bytes_are_drawn_if_a_workload_measures_them() -> None:
    titles = [one.title for one in charts(of("a", "b", used_memory=1_006_400, written_bytes=100))]
    assert titles == [f"get: {what} a request" for what in ("instructions", "bytes of used_memory")] + [
        "get: bytes written to files a request"
    ]


def test_one_server_has_tables_and_no_chart() -> None:
    text = page(of("redis-1"))
    assert images(text) == []
    assert "7,600" in Outline(text).text()


def test_a_page_has_no_script_and_shows_names_as_text() -> None:
    text = page(of("<script>alert(1)</script>", "b"))
    assert "<script" not in text
    assert "<script" not in images(text)[0]


def test_a_page_shows_the_comparison_and_what_has_no_figure() -> None:
    dear = differences(cost(8_200, 8_200, name="ours"), cost(7_600, 7_600), 0.03)
    missing = NoFigure(server="ours", target="armv5", workload="x", reason="it died")
    text = Outline(page(measured(dear, [missing]))).text()
    for part in ("beyond the limit", "+7.9%", "getCommand", "no figure: x on armv5, ours: it died"):
        assert part in text
