"""A line chart is well-formed SVG, stays within its frame, skips missing values, and has no colliding labels."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest

from harness.report.line_chart import line_chart

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["2.8.17", "5.0.6", "9.1.2"]


def drawn(**lines: list[float | None]) -> ET.Element:
    return ET.fromstring(line_chart("A & B", NAMES, lines))  # noqa: S314 - the same


def test_each_value_is_a_point_of_its_line_in_the_frame() -> None:
    chart = drawn(armv5=[5000, 7000, 9600], aarch64=[4000, None, 6500])
    armv5, aarch64 = (line.get("points", "").split() for line in chart.iter(f"{SVG}polyline"))
    assert (len(armv5), len(aarch64)) == (3, 2)
    heights = [float(point.split(",")[1]) for point in armv5]
    # Larger values are higher.
    assert heights == sorted(heights, reverse=True)
    assert all(48 <= height <= 356 for height in heights)
    assert "A & B" in [text.text for text in chart.iter(f"{SVG}text")]


def test_the_axis_begins_at_zero_and_ends_at_a_round_number_beyond_the_largest() -> None:
    texts = [text.text for text in drawn(one=[6_100, 6_200, 6_300]).iter(f"{SVG}text")]
    assert [text for text in texts if text in {"0", "6,500", "6,300"}] == ["0", "6,500"]


@pytest.mark.parametrize(
    ("largest", "labels"),
    [
        (4.2, ["0.0", "0.9", "1.8", "2.7", "3.6", "4.5"]),
        (1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.0031, ["0.0000", "0.0007", "0.0014", "0.0021", "0.0028", "0.0035"]),
        (0.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (15.0, ["0", "3", "6", "9", "12", "15"]),
        (61_000.0, ["0", "13,000", "26,000", "39,000", "52,000", "65,000"]),
    ],
)
def test_each_grid_line_has_its_own_label(largest: float, labels: list[str]) -> None:
    chart = drawn(one=[0.0, 0.0, largest])
    assert [text.text for text in chart.iter(f"{SVG}text") if text.get("text-anchor") == "end"] == labels
    (line,) = (line.get("points", "").split() for line in chart.iter(f"{SVG}polyline"))
    assert (float(line[-1].split(",")[1]) < 120) == (largest > 0), "the largest value must be at the top"


def test_labels_of_close_lines_do_not_overlap() -> None:
    chart = drawn(one=[1, 1, 100.0], two=[1, 1, 100.5], three=[1, 1, 101.0])
    heights = sorted(
        float(text.get("y", "")) for text in chart.iter(f"{SVG}text") if text.text in {"one", "two", "three"}
    )
    assert all(later - earlier >= 15 for earlier, later in itertools.pairwise(heights))


def test_a_line_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        drawn(one=[1, 2])
