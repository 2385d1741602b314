"""The release's own tests that a target cannot pass, each with its reason: differences.toml."""

from __future__ import annotations

import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import read_toml

if TYPE_CHECKING:
    from harness.core.target_model import Target

FOLDER = Path(__file__).parent


class ListedTest(Record, frozen=True):
    """Tests that fail on a target for a reason other than a bug of the server."""

    tests: list[str]
    """Globs for `FILE::TEST`. In a name, `?` may stand for a character that a glob would interpret."""
    reason: str
    because_of: Literal[
        "emulation", "allocator", "compiler", "libc", "word-size", "byte-order", "floating-point", "speed"
    ]
    """The property on which the test depends, and in which the target differs."""
    targets: list[str] = msgspec.field(default_factory=lambda: ["*"])
    """Globs of targets. `32-bit` and `big-endian` are all targets of that width or byte order."""
    families: list[str] = msgspec.field(default_factory=lambda: ["redis", "valkey"])
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    """The first release without the difference; empty: all have it."""
    sometimes: bool = False
    """Whether the test may also pass, because it depends on timing."""

    def covers(self, test: str, target: Target, family: str, version: tuple[int, ...]) -> bool:
        """Whether the entry covers a test on a target and release. An entry excuses a failure, so it names the releases
        in which that was examined: what the server can do excuses nothing.
        """
        names = {*target.aliases, target.variant_of}
        if self.because_of == "emulation":
            # What a user-mode emulator cannot do, a kernel can.
            names.discard(target.userland)
        return (
            family in self.families
            and version >= self.since
            and (not self.until or version < self.until)
            and any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self.targets)
            and any(fnmatch.fnmatchcase(test, glob) for glob in self.tests)
        )


class DifferenceTable(Record, frozen=True):
    """differences.toml."""

    differences: list[ListedTest]


@cache
def table() -> DifferenceTable:
    """The tests that may fail."""
    return read_toml(FOLDER / "differences.toml", DifferenceTable)


def listed(test: str, target: Target, family: str, version: tuple[int, ...]) -> ListedTest | None:
    """The entry of a test; None if it must pass."""
    found = (one for one in table().differences if one.covers(test, target, family, version))
    return next(found, None)
