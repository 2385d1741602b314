"""The misaligned sites of an audit, by source line, fatal ones first: the lines that a porter must change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import place_in_file

if TYPE_CHECKING:
    from harness.core.finding import Fate, Finding, Witness
    from harness.record.cell_events import Counters

FATES: dict[Fate, str] = {
    "kill": "kills even with the kernel's fixup on",
    "fixup": "SIGBUS, or a kernel's fixup repairs it",
    "rotated": "the same, and with neither it loads a rotated word",
    "hardware": "hardware does it",
    "": "",
}
"""The fates of a misaligned access, worst first."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A source line with misaligned accesses, and their fate on each target."""

    finding: Finding
    function: str
    """The function of the line: a finding may have several."""
    place: str
    witnesses: list[Witness]

    @property
    def count(self) -> int:
        """The number of accesses on all targets together."""
        return sum(one.count for one in self.witnesses)

    @property
    def shapes(self) -> list[str]:
        """`load 4` of `load of 4 bytes at 1 mod 4`, each once."""
        return list(dict.fromkeys(_short(one.access) for one in self.witnesses))

    def count_on(self, target: str) -> int:
        """The number of accesses on one target."""
        return sum(one.count for one in self.witnesses if one.target == target)

    def fates_on(self, target: str) -> list[Fate]:
        """The fates on one target, each once."""
        return list(dict.fromkeys(one.fate for one in self.witnesses if one.target == target))


def sites(findings: list[Finding]) -> list[Site]:
    """Every source line with misaligned accesses in an audit: fatal ones first, then by count."""
    by_place: dict[tuple[str, str], list[tuple[Finding, Witness]]] = {}
    for finding in findings:
        for witness in finding.witnesses:
            if witness.detector == "audit":
                place = place_in_file(witness.file, witness.line)
                function = witness.backtrace[0].function if witness.backtrace else finding.function
                by_place.setdefault((function, place), []).append((finding, witness))
    found = [
        Site(finding=pairs[0][0], function=function, place=place, witnesses=[witness for _, witness in pairs])
        for (function, place), pairs in by_place.items()
    ]
    order = list(FATES)
    return sorted(found, key=lambda site: (min(order.index(one.fate) for one in site.witnesses), -site.count))


def targets_of(listed: list[Site]) -> list[str]:
    """The targets of the sites. A test's own servers may have run on a target without a cell."""
    return list(dict.fromkeys(one.target for site in listed for one in site.witnesses))


def _short(access: str) -> str:
    return access.partition(" bytes at ")[0].replace(" of ", " ")


def counters_text(counters: Counters) -> str:
    """The counters as text, with the names of /proc/cpu/alignment."""
    return "  ".join(f"{name}: {number}" for name, number in named_counters(counters).items())


def named_counters(counters: Counters) -> dict[str, int]:
    """The kernel's name of each counter -> its value, in the kernel's order."""
    return {
        "User": counters.user,
        "Skipped": counters.skipped,
        "Half": counters.half,
        "Word": counters.word,
        "DWord": counters.dword,
        "Multi": counters.multi,
    }
