"""A flame graph as one SVG file without scripts: bars hang below the bar that they are part of, as wide as their share.

It draws a tree of figures of any kind. A bar's text is truncated to its width, and the pointer shows all of it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from markupsafe import escape

from harness.core.untrusted_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WIDTH, ROW, TEXT_WIDTH = 1400.0, 17, 6.4
"""In pixels: the picture's width, a bar's height, and a letter's width."""
LEAST_WIDTH = 0.7
"""Narrower bars, and all below them, are omitted: they would be invisible."""
_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1b1b1b;pointer-events:none}"
    "rect{stroke:#fff;stroke-width:.5}"
)


class Part:
    """A figure and its parts. The remainder belongs to the figure itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.own = 0.0
        self.parts: dict[str, Part] = {}

    @property
    def total(self) -> float:
        """Its own and that of all its parts."""
        return self.own + sum(part.total for part in self.parts.values())

    @property
    def depth(self) -> int:
        """How many rows it takes."""
        return 1 + max((part.depth for part in self.parts.values()), default=0)

    def add(self, names: Iterable[str], amount: float) -> None:
        """Add an amount to the part at the end of a path of names."""
        part = self
        for name in names:
            part = part.parts.setdefault(name, Part(name))
        part.own += max(0.0, amount)

    def add_shares(self, shares: Mapping[tuple[str, ...], float], total: float) -> None:
        """Add a total, of which the parts at the ends of these paths take their shares; the rest belongs to the total
        itself.

        Shares that exceed the total are reduced, because two clocks measured them.
        """
        known = sum(shares.values())
        scale = min(1.0, total / known) if known else 0.0
        for names, amount in shares.items():
            self.add(names, amount * scale)
        self.own += max(0.0, total - known)


def svg(root: Part, *, title: str, unit: str) -> str:
    """The picture of a tree, its root first; `unit` follows every figure."""
    whole = root.total or 1.0
    height = root.depth * ROW + 26
    bars = "".join(_bars(root, 0.0, 0, WIDTH / whole, whole, unit))
    head = f'<rect width="{WIDTH:.0f}" height="{height}" fill="#fff"/><text x="4" y="15">{_text(title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" role="img">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style>"
        f"{head}{bars}</svg>\n"
    )


def _bars(part: Part, left: float, row: int, scale: float, whole: float, unit: str) -> Iterator[str]:
    width = part.total * scale
    if width < LEAST_WIDTH:
        return
    label = f"{part.name}: {part.total:.1f} {unit}, {100 * part.total / whole:.1f} %"
    letters = int((width - 4) / TEXT_WIDTH)
    text = part.name if len(part.name) <= letters else f"{part.name[: letters - 1]}…"
    top = 22 + row * ROW
    yield f'<g><title>{_text(label)}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW}" '
    yield f'fill="{_colour(part.name)}"/>'
    if letters > 2:
        yield f'<text x="{left + 3:.1f}" y="{top + 12}">{_text(text)}</text>'
    yield "</g>"
    for child in sorted(part.parts.values(), key=lambda each: -each.total):
        yield from _bars(child, left, row + 1, scale, whole, unit)
        left += child.total * scale


def _colour(name: str) -> str:
    """A pale colour that a name always has."""
    return f"hsl({zlib.crc32(name.encode()) % 360} 60% 78%)"


def _text(text: str) -> str:
    return str(escape(visible(text)))
