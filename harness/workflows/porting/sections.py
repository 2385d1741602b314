"""Content that port.html and port.md share: headings, sentences, and lists common to several targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.model import Record

if TYPE_CHECKING:
    from harness.workflows.porting.document import Assumption, Hint, PortReport, Rank, Region, Xmemalign

RANK_TITLES: dict[Rank, str] = {
    "build": "It does not build",
    "start": "It does not start",
    "fault": "It dies in the default workload",
    "value": "It answers wrongly",
    "strict": "It is not portable C, though this target does it",
    "note": "Worth knowing",
}
SENTENCES = {
    "PASS": "Nothing blocks this port.",
    "FAIL": "Fix the first item, and run the report again.",
    "UNKNOWN": "Nothing known blocks this port, but not everything could be tried.",
}
RESULTS = {"ok": "✓ yes", "mended": "~ with help", "failed": "✗ no", "none": "– nothing to do"}
SOLARIS = "Solaris"
ANY_POLICY = "The audit saw no misaligned access in the tree: any policy will do."


TELLING = {
    "address-of-packed-member",
    "cast-align",
    "cast-align=strict",
    "format",
    "implicit-function-declaration",
    "incompatible-pointer-types",
    "int-to-pointer-cast",
    "overflow",
    "pointer-to-int-cast",
    "shift-count-overflow",
    "type-limits",
}
"""Warnings that depend on the machine's alignment or width, listed before those that any machine gives."""


class HintGroup(Record, frozen=True):
    """One warning in one file, on any number of targets."""

    warning: str
    file: str
    origin: str
    lines: list[int]
    seen: list[int]
    """The lines at which the audit recorded a misaligned access."""
    text: str
    """The compiler's text for the first line."""


class RegionRow(Record, frozen=True):
    """A part of the source, and the targets that did not compile it."""

    region: Region
    targets: list[str]


def hint_groups(report: PortReport) -> list[HintGroup]:
    """The server's own files before bundled code; in each, warnings that the audit confirms first, then by count."""
    by_file: dict[tuple[str, str, str], list[Hint]] = {}
    for port in report.targets:
        for one in port.hints:
            by_file.setdefault((one.warning, one.file, one.origin), []).append(one)
    groups = [
        HintGroup(
            warning=warning,
            file=file,
            origin=origin,
            lines=sorted({one.line for one in hints}),
            seen=sorted({one.line for one in hints if one.seen}),
            text=hints[0].text,
        )
        for (warning, file, origin), hints in by_file.items()
    ]
    return sorted(
        groups,
        key=lambda one: (one.origin != "server", not one.seen, one.warning not in TELLING, -len(one.lines), one.file),
    )


def region_groups(report: PortReport) -> dict[str, list[RegionRow]]:
    """Topic -> code that was not compiled, and for Solaris also compiled code that Solaris would not compile."""
    rows: dict[tuple[bool, str, str, int], tuple[Region, list[str]]] = {}
    for port in report.targets:
        for one in port.regions:
            rows.setdefault((one.compiled, one.topic, one.file, one.first), (one, []))[1].append(port.target)
    grouped: dict[str, list[RegionRow]] = {}
    for region, targets in rows.values():
        grouped.setdefault(_heading(region), []).append(RegionRow(region=region, targets=targets))
    order = [SOLARIS, HERE_ALONE, "alignment", "byte order", "machine"]
    return {name: grouped[name] for name in order if name in grouped}


HERE_ALONE = "compiled here, but not on Solaris"


def _heading(region: Region) -> str:
    return HERE_ALONE if region.compiled else region.topic


def assumptions(report: PortReport, *kinds: str) -> list[Assumption]:
    """Lines of makefiles, which are the same for every target."""
    return [one for one in report.targets[0].assumptions if one.kind in kinds] if report.targets else []


def rows_of_solaris(report: PortReport) -> dict[str, list[Xmemalign]]:
    """Target with a Solaris counterpart -> its -xmemalign policies; an empty list if no access was misaligned."""
    return {
        port.target: port.xmemalign if any(row.apart + row.repaired + row.signal for row in port.xmemalign) else []
        for port in report.targets
        if port.xmemalign
    }


def lines_text(lines: list[int], most: int = 12) -> str:
    """`12, 40, 41 and 7 more`."""
    shown = ", ".join(map(str, lines[:most]))
    return shown + (f" and {len(lines) - most} more" if len(lines) > most else "")
