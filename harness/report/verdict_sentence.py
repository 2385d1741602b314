"""The verdict in one sentence, as the last line of a check and the first of its reports say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.finding import Verdict
from harness.core.model import CANARY_SUITE
from harness.judge.baseline import is_inherited
from harness.judge.verdict import is_noted_everywhere, only_canaries_ran
from harness.record import program_launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict


_ONLY_CANARIES = "no tests ran except the canaries"


def unjudged(judgement: Judgement) -> list[str]:
    """Why a run shows nothing about the server although each of its cells has a verdict; empty if it does show it."""
    only_canaries = judgement.verdict == Verdict.UNKNOWN and only_canaries_ran(judgement.cells)
    return [*judgement.unchecked, *([_ONLY_CANARIES] if only_canaries else [])]


def _passed(cells: Sequence[CellVerdict]) -> str:
    """What passed: `12 tests`, or `3 programs` below a command. Canaries test the emulator, and count only alone."""
    tested = [cell for cell in cells if cell.suite != CANARY_SUITE] or cells
    number = sum(cell.passed for cell in tested)
    noun = "program" if {cell.suite for cell in tested} == {program_launch.SUITE} else "test"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(judgement: Judgement) -> str:
    """The meaning of the verdict in this run: `2 new findings, 2 also in the base`."""
    found = judgement.findings
    new = sum(not finding.known for finding in found)
    inherited = sum(is_inherited(finding, judgement.base) for finding in found)
    everywhere = sum(is_noted_everywhere(finding) for finding in found)
    known = len(found) - new - inherited - everywhere
    counts = ((inherited, "also in the base"), (known, "known"), (everywhere, "on every machine"))
    others = [f"{number} {what}" for number, what in counts if number]
    if judgement.verdict == Verdict.FAIL:
        news = (
            f"{new} new finding{'' if new == 1 else 's'}" if new else "tests failed, but the evidence does not show why"
        )
        return ", ".join([news, *others])
    if judgement.verdict == Verdict.UNKNOWN:
        unknown = sum(cell.verdict == Verdict.UNKNOWN for cell in judgement.cells)
        if not unknown and only_canaries_ran(judgement.cells):
            return _ONLY_CANARIES
        is_change = all(one.startswith("NOT CHECKED") for one in judgement.unchecked)
        rest = "a change" if is_change else "the rest of the run"
        what = f"{unknown} of {len(judgement.cells)} cells" if unknown else rest
        return ", ".join([f"{what} could not be judged", *others])
    if judgement.verdict == Verdict.SKIP:
        return "nothing ran"
    targets = len({cell.target for cell in judgement.cells})
    ran = f"{_passed(judgement.cells)} passed on {targets} target{'' if targets == 1 else 's'}"
    if audited := sum(cell.audited for cell in judgement.cells if not cell.passed):
        ran += f", and {audited:,} in audits alone"
    if judgement.left_out:
        ran += f", {judgement.left_out:,} not run because the change cannot reach them"
    if others:
        return f"nothing new; {', '.join(others)}; {ran}"
    # Tests that did not run may have had known findings.
    return f"nothing {'new' if judgement.left_out else 'found'}; {ran}"
