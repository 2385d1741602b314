"""A finding in the terms that the report's formats share: its level, its place in the tree, its detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis.detectors import registry
from harness.core.finding import Verdict, place_in_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.finding import Finding, Frame, Suspect, ValueComparison, Witness
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict

Level = Literal["error", "warning", "note"]
_ORDER: tuple[Level, ...] = ("error", "warning", "note")
SUSPECTS_ARE = (
    "Functions, ranked by how closely their execution correlates with the wrong result. None of them need be at fault: "
    "a function that always runs together with the faulty one ranks as high."
)
"""The introduction of suspects in reports."""
VALUES_ARE = (
    "Arguments and return values of the ranked functions for the same commands, in chronological order, on the target "
    "and in the native build of the same source. This is a comparison: none of the functions need be at fault."
)
"""The introduction of a comparison of values in reports."""
SHOWN_SUSPECTS = 5
"""How many suspects are shown for a finding in a list of findings."""
_ALLOCATION = "src/zmalloc.c"
"""The server's wrappers of its C library's allocator."""


def level_of(finding: Finding) -> Level:
    """The level of a finding, in the terms of SARIF and GitHub.

    error: the server crashes or replies wrongly on some target. warning: some kernel must repair the access, or C does
    not define it. note: hardware performs the access on every target that shows it, or the known list has it.
    """
    if finding.known:
        return "note"
    return min((_level(finding.kind, witness) for witness in finding.witnesses), key=_ORDER.index, default="error")


def _level(kind: str, witness: Witness) -> Level:
    if witness.detector == "audit":
        # An audited access succeeded. Its fate says what happens under the target's own kernel.
        return "note" if witness.fate == "hardware" else "warning" if witness.fate == "fixup" else "error"
    detector = registry.DETECTORS.get(witness.detector)
    undefined = detector is not None and kind.startswith(detector.undefined_kinds)
    return "warning" if undefined or kind == "warning" else "error"


def frame_in_tree(finding: Finding) -> Frame | None:
    """The innermost frame in the server's tree, which a reader can change; None if there is none.

    For a fault inside libc this is the call from the server or its bundled libraries; inside libc's allocator, which
    stumbles over what others overwrote, the call of the server's wrapper. If there are several places, the finding's
    own takes precedence. For a wrong result it is the function that the result points to.
    """
    own = (finding.file, finding.line)
    for witness in sorted(finding.witnesses, key=lambda one: (one.file, one.line) != own):
        below = False
        for frame in witness.backtrace:
            below = below or frame.origin == "libc"
            if is_in_tree(frame) and not (below and frame.file == _ALLOCATION):
                return frame
    return finding.implicated


def is_in_tree(frame: Frame) -> bool:
    """Whether a frame is a line of the server's tree: its own code or a bundled library."""
    return frame.line > 0 and (frame.origin == "server" or frame.origin.startswith("bundled/"))


def suspect_lines(suspects: Sequence[Suspect]) -> list[str]:
    """A line for each suspect: its rank, function, place, score and what was counted."""
    return [
        f"{rank:2}. {one.function} ({place_in_file(one.file, one.line)})  score {one.score:.2f}: {one.why}"
        for rank, one in enumerate(suspects, 1)
    ]


def seen_early(finding: Finding) -> list[str]:
    """Sentences on the stores that another thread saw in another order; those of the most direct witness first."""
    return list(dict.fromkeys(text for witness in finding.witnesses for text in witness.overtakes))


def named_order(finding: Finding) -> str:
    """The first of these sentences in one line, with a label; empty without any."""
    return next((f"memory order: {text}" for text in seen_early(finding)), "")


USUALLY_DIFFERS = "these values also differ for similar commands with right replies, and no other value does"


def comparison_rows(comparison: ValueComparison | None) -> list[tuple[str, str]]:
    """Where the values of two machines diverge, as labels and texts; nothing without a comparison."""
    if comparison is None:
        return []
    place = comparison.place
    there = f"{place.function} ({place_in_file(place.file, place.line)})" if place else ""
    # A function that was not examined may have made the call.
    within = comparison.within if place is None or comparison.within != place.function else ""
    where = ", within ".join(filter(None, [there, within]))
    return [
        ("last equal", comparison.last_equal or "nothing"),
        ("first different", f"{comparison.first_different}: {'; '.join(comparison.differences)}"),
        *([("place", where)] if where else []),
        *([("unlikely", USUALLY_DIFFERS)] if comparison.usual else []),
    ]


def comparison_lines(comparison: ValueComparison | None) -> list[str]:
    """The rows, each as a line."""
    return [f"{word}: {text}" for word, text in comparison_rows(comparison)]


def named_comparison(finding: Finding) -> str:
    """The comparison of values in one line, with a label; empty without one."""
    lines = comparison_lines(finding.comparison)
    return f"values compared with the native build's, no function need be at fault, {'; '.join(lines)}" if lines else ""


def named_suspects(finding: Finding) -> str:
    """The first suspects in one line, with a label; empty without any."""
    named = [f"{one.function} ({place_in_file(one.file, one.line)})" for one in finding.suspects[:SHOWN_SUSPECTS]]
    return f"suspects, the closest first, none need be at fault: {', '.join(named)}" if named else ""


def place_of(witness: Witness) -> str:
    """`FILE:LINE`, or the test if there is no place in the code."""
    return place_in_file(witness.file, witness.line) if witness.file else witness.test


def by_place(witnesses: Sequence[Witness]) -> list[Witness]:
    """The witnesses with one for each place in the code on each target: function, line, and kind of instruction.

    A place's witness has the counts and the cells of all that it stands for. A compiler that inlines a function, or
    unrolls a loop, emits one access several times, with other registers; and several suites may show it. Those of a
    failed test are returned as they are, and those of a failed build are one for each target.
    """
    places: dict[tuple[object, ...], list[Witness]] = {}
    for number, one in enumerate(witnesses):
        function = one.backtrace[0].function if one.backtrace else ""
        code = (function, one.file, one.line, _mnemonic(one.instruction), one.detector, one.fate, one.difference)
        places.setdefault((number,) if one.test and not one.file else (one.target, *code), []).append(one)
    return [_together(group) if len(group) > 1 else group[0] for group in places.values()]


def _mnemonic(instruction: str) -> str:
    return instruction.split(maxsplit=1)[0] if instruction else ""


def _together(group: Sequence[Witness]) -> Witness:
    first = group[0]
    others = len({one.instruction for one in group}) - 1
    accesses = dict.fromkeys(one.access for one in group if one.access)
    return msgspec.structs.replace(
        first,
        instruction=f"{first.instruction} (and {others} more like it)" if others else first.instruction,
        access=", ".join(accesses),
        count=sum(one.count for one in group),
        cells=list(dict.fromkeys(cell for one in group for cell in one.cells)),
        occasions=list(dict.fromkeys(occasion for one in group for occasion in one.occasions)),
    )


def reported_by(witness: Witness) -> str:
    """The detector, in brackets, and how often it saw the place, if several times. Empty for a witness without a place,
    since its kind says enough.
    """
    if not witness.file:
        return ""
    times = f"{witness.count}×" if witness.count > 1 else ""
    if witness.detector == "signal":
        return times
    if witness.fate:
        return f"[{witness.detector} {witness.count}×, {witness.fate}]"
    return f"[{witness.detector} {times}]" if times else f"[{witness.detector}]"


def in_cell(finding: Finding, target: str, suite: str) -> bool:
    """Whether a cell showed the finding."""
    return any(one.target == target and one.suite == suite for one in finding.witnesses)


def by_reason(cells: Iterable[CellVerdict], *verdicts: Verdict) -> list[tuple[Verdict, str, str]]:
    """The cells with these verdicts: each verdict and reason once, with the names of its cells between them.

    A tree that does not compile is the reason of every cell of a target.
    """
    names: dict[tuple[Verdict, str], list[str]] = {}
    for cell in cells:
        if cell.verdict in verdicts:
            names.setdefault((cell.verdict, cell.reason), []).append(f"{cell.target}/{cell.suite}")
    return [(verdict, ", ".join(here), reason) for (verdict, reason), here in names.items()]


def unexplained(judgement: Judgement) -> list[CellVerdict]:
    """The cells that say nothing about the server, and those that failed without a new finding."""
    new = [finding for finding in judgement.findings if not finding.known]
    return [
        cell
        for cell in judgement.cells
        if cell.verdict == Verdict.UNKNOWN
        or (cell.verdict == Verdict.FAIL and not any(in_cell(one, cell.target, cell.suite) for one in new))
    ]
