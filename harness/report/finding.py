"""A finding in the words that the report's formats share: how bad, where in the tree, seen by what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from harness.analysis.detectors import registry

if TYPE_CHECKING:
    from harness.core.finding import Finding, Frame, Witness

Level = Literal["error", "warning", "note"]
_ORDER: tuple[Level, ...] = ("error", "warning", "note")


def level_of(finding: Finding) -> Level:
    """error: it dies or answers wrongly somewhere; warning: somewhere a kernel must help, or C does not define it.

    note: hardware does it everywhere it was seen, or the known list has it. The words are SARIF's and GitHub's.
    """
    if finding.known:
        return "note"
    return min((_level(finding.kind, witness) for witness in finding.witnesses), key=_ORDER.index, default="error")


def _level(kind: str, witness: Witness) -> Level:
    if witness.detector == "audit":
        # An audit's access succeeded: what it comes to elsewhere is its fate.
        return "note" if witness.fate == "hardware" else "warning" if witness.fate == "fixup" else "error"
    detector = registry.DETECTORS.get(witness.detector)
    undefined = detector is not None and kind.startswith(detector.undefined_kinds)
    return "warning" if undefined or kind == "warning" else "error"


def frame_in_tree(finding: Finding) -> Frame | None:
    """The innermost frame that lies in the server's tree, where a reader can change something; None without one.

    A fault inside libc is shown where the server, or what it bundles, called it. Of several places it is the finding's
    own, if that is one of them.
    """
    own = (finding.file, finding.line)
    for witness in sorted(finding.witnesses, key=lambda one: (one.file, one.line) != own):
        for frame in witness.backtrace:
            if is_in_tree(frame):
                return frame
    return None


def is_in_tree(frame: Frame) -> bool:
    """Whether it is a line of the server's tree: its own code or what it bundles."""
    return frame.line > 0 and (frame.origin == "server" or frame.origin.startswith("bundled/"))


def place_of(witness: Witness) -> str:
    """`FILE:LINE`, or the test where there is no place in the code."""
    return f"{witness.file}:{witness.line}" if witness.file else witness.test


def seen_by(witness: Witness) -> str:
    """What saw it, where it was not the kernel's rule; what has no place in the code tells that by its kind."""
    if not witness.file or witness.detector == "signal":
        return ""
    return f"[{witness.detector} {witness.count}×, {witness.fate}]" if witness.fate else f"[{witness.detector}]"


def in_cell(finding: Finding, target: str, suite: str) -> bool:
    """Whether a cell showed it."""
    return any(one.target == target and one.suite == suite for one in finding.witnesses)
