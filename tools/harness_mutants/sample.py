"""The sample: so many mutants of each package, drawn with a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tools.harness_mutants.operators import compiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tools.harness_mutants.operators import Mutant

PACKAGES = {
    "judge": 75,
    "record": 60,
    "run": 75,
    "protocol": 45,
    "isa": 55,
    "core": 25,
    "analysis": 20,
    "build": 20,
    "workflows": 25,
    "report": 15,
    "plan": 10,
    "cli": 10,
}
"""Package -> how many of its mutants a sample has: most where a fault can make a verdict wrong."""
CRITICAL = ("judge", "record", "run", "protocol", "isa")
"""The packages of which no mutant that `ci/test --all` kills may survive `ci/test`."""


def draw(
    mutants: Sequence[Mutant], root: Path, seed: int, sizes: Mapping[str, int] = PACKAGES, skip: int = 0
) -> list[Mutant]:
    """A sample, package by package. `skip`: how many of each package are passed over, for a second sample.

    Each draw first takes an operator, then one of its places: the numbers in tables would fill it otherwise. A line is
    drawn once.
    """
    drawn = []
    for package, size in sizes.items():
        # One package's sources change no other package's draw.
        chance = random.Random(f"{seed}:{package}")
        left: dict[str, list[Mutant]] = {}
        for one in mutants:
            if one.package == package:
                left.setdefault(one.operator, []).append(one)
        for each in left.values():
            chance.shuffle(each)
        lines: set[tuple[str, int]] = set()
        found: list[Mutant] = []
        while left and len(found) < skip + size:
            operator = chance.choice(sorted(left))
            one = left[operator].pop()
            if not left[operator]:
                del left[operator]
            if (one.file, one.line) not in lines and compiles(one.apply((root / one.file).read_bytes())):
                lines.add((one.file, one.line))
                found.append(one)
        drawn += found[skip:]
    return drawn
