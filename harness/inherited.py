"""What a base revision shows as well: RUN/inherited.json, beside the evidence. Findings of it are not blamed.

A finding is inherited on the targets where the base shows it too: one that comes to another target is new there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness import codec
from harness.checkout import Base  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.errors import UsageError
from harness.finding import Finding, Verdict
from harness.model import Noun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge import Judgement

NAME = "inherited.json"


class Inherited(Noun, frozen=True):
    """A base revision's findings and troubles, in the cells that were asked."""

    base: Base
    findings: dict[str, list[str]]
    """Identity -> the targets that show it."""
    untold: dict[str, str]
    """TARGET/SUITE -> why nothing can be said of the base there: what is found in such a cell counts as new."""


def of_judgement(base: Base, judgement: Judgement) -> Inherited:
    """What a run of the base came to."""
    return Inherited(
        base=base,
        findings={finding.id: finding.targets for finding in judgement.findings},
        untold={
            f"{cell.target}/{cell.suite}": cell.reason
            for cell in judgement.cells
            if cell.verdict == Verdict.UNKNOWN.name
        },
    )


def write(folder: Path, inherited: Inherited) -> None:
    """Put it into a run folder, or the cache."""
    (folder / NAME).write_bytes(codec.pretty(inherited))


def read(folder: Path) -> Inherited | None:
    """What a folder has of it; None for nothing. Raises UsageError for what is damaged."""
    path = folder / NAME
    try:
        return codec.decode(path.read_bytes(), Inherited)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise UsageError("what the base shows is damaged", where=str(path), because=str(error)) from error


def reason(inherited: Inherited, finding: Finding) -> str:
    """Why a finding is none of the change's; empty for one that the base does not show on all its targets."""
    old = inherited.findings.get(finding.id, [])
    return f"also in BASE {inherited.base.commit[:12]}" if set(finding.targets) <= set(old) else ""


def remarks(inherited: Inherited, findings: list[Finding]) -> list[str]:
    """What a reader should know of the comparison: what spread to other targets, what could not be compared."""
    said = []
    for finding in findings:
        old = inherited.findings.get(finding.id, [])
        new = [target for target in finding.targets if target not in old]
        if old and new:
            said.append(f"{finding.id} is new on {', '.join(new)}; BASE shows it on {', '.join(old)}")
    for cell, why in inherited.untold.items():
        said.append(f"BASE could not be judged on {cell}, so that what is found there counts as new: {why}")
    return said
