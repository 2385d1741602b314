"""Draws lines as plain SVG: releases on one axis, a figure on the other, one line a target. No script, no library."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700")
"""Each has enough contrast on white. A line's label has its colour, so readers need not match colours."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 400, 70, 110, 48, 44
_STYLE = "text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600;font-size:16px}.g{stroke:#d1d9e0}"
_LABEL_HEIGHT = 15
_GRID_LINES = 5
_MOST_DIGITS = 12


def line_chart(title: str, names: Sequence[str], lines: Mapping[str, Sequence[float | None]]) -> str:
    """The chart as an SVG document. `lines`: label -> a value for each name, None if there is none.

    The axis begins at zero. A line skips a missing value. Raises ValueError for a line of another length.
    """
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    top = _round_up(max((value for line in lines.values() for value in line if value is not None), default=1.0))

    def x(number: int) -> float:
        return _LEFT + wide * (number / max(1, len(names) - 1))

    def y(value: float) -> float:
        return _TOP + high * (1 - value / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="10" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="28" class="t">{escape(title)}</text>',
    ]
    grid = [top * number / _GRID_LINES for number in range(_GRID_LINES + 1)]
    digits = _digits(grid)
    for value in grid:
        parts += [
            f'<path d="M{_LEFT} {y(value):.1f} H{_LEFT + wide}" class="g"/>',
            f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.{digits}f}</text>',
        ]
    for number, name in enumerate(names):
        parts.append(f'<text x="{x(number):.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{escape(name)}</text>')
    labels = _labels({label: y(_last(line)) for label, line in lines.items()})
    for at, (label, line) in enumerate(lines.items()):
        colour = COLOURS[at % len(COLOURS)]
        points = [(x(i), y(value)) for i, value in zip(range(len(names)), line, strict=True) if value is not None]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in points]
        parts.append(
            f'<text x="{_LEFT + wide + 12}" y="{labels[label]:.1f}" style="fill:{colour}">{escape(label)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _last(line: Sequence[float | None]) -> float:
    return next((value for value in reversed(line) if value is not None), 0.0)


def _labels(wanted: Mapping[str, float]) -> dict[str, float]:
    """Label -> its height, near the wanted one and clear of the other labels."""
    placed: dict[str, float] = {}
    lowest = float("-inf")
    for label in sorted(wanted, key=lambda one: wanted[one]):
        lowest = max(wanted[label] + 4, lowest + _LABEL_HEIGHT)
        placed[label] = lowest
    return placed


def _digits(values: Sequence[float]) -> int:
    """How many digits after the point show these round values as they are."""
    close = max(values) * 1e-9
    return next((digits for digits in range(_MOST_DIGITS) if all(abs(round(v, digits) - v) < close for v in values)), 0)


def _round_up(value: float) -> float:
    """The next number with one digit, or with two that end in 5, so that grid lines have round values."""
    if value <= 0:
        return 1.0
    digit = 10.0 ** math.floor(math.log10(value))
    return next(digit * step / 2 for step in range(2, 22) if digit * step / 2 >= value)
