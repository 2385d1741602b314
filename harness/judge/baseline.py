"""What a base revision shows as well: RUN/inherited.json, beside the evidence. Findings of it are not blamed.

A finding is inherited if the base shows it on the same targets, in the same suites, and says the same of it: what
comes to another target, what another suite sees, and a server that does not start for another reason are new.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.finding import Finding, Verdict
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.judge.findings import Judgement

NAME = "inherited.json"


class BaseRevision(Record, frozen=True):
    """The revision that a checkout is compared with."""

    commit: str
    """Its full name."""
    subject: str
    """The first line of its message."""
    why: str
    """How it was chosen."""

    def __str__(self) -> str:
        return f"{self.commit[:12]} '{self.subject}' ({self.why})"


class Appearance(Record, frozen=True):
    """A way in which a finding is seen, without what differs from run to run."""

    target: str
    suite: str
    title: str
    """What is said of it; numbers as `#`, files without their folders."""
    test: str = ""
    """The test, where the finding's identity alone says too little: many tests may end in one function's assertion."""


class Baseline(Record, frozen=True):
    """A base revision's findings and troubles, in the cells that were asked."""

    base: BaseRevision
    findings: dict[str, list[str]]
    """Identity -> the targets that show it."""
    untold: dict[str, str]
    """TARGET/SUITE -> why nothing can be said of the base there: what is found in such a cell counts as new."""
    ways: dict[str, list[Appearance]] = msgspec.field(default_factory=dict)
    """Identity -> how they are seen."""


def of_judgement(base: BaseRevision, judgement: Judgement) -> Baseline:
    """What a run of the base came to. What was seen in cells of which nothing can be said does not count."""
    untold = {
        f"{cell.target}/{cell.suite}": cell.reason for cell in judgement.cells if cell.verdict == Verdict.UNKNOWN.name
    }
    found = [_told(finding, untold) for finding in [*judgement.findings, *judgement.warnings]]
    return Baseline(
        base=base,
        findings={finding.id: finding.targets for finding in found if finding.targets},
        untold=untold,
        ways={finding.id: _ways(finding) for finding in found if finding.targets},
    )


def _told(finding: Finding, untold: Mapping[str, str]) -> Finding:
    """The same without what was seen in such cells alone."""
    witnesses = [one for one in finding.witnesses if not one.cells or not set(one.cells) <= set(untold)]
    seen = {one.target for one in witnesses}
    targets = [target for target in finding.targets if target in seen]
    return msgspec.structs.replace(finding, targets=targets, witnesses=witnesses)


def _ways(finding: Finding) -> list[Appearance]:
    """Each once. What an audit sees has the test that came first, which need not be the same; so has no test."""
    told = [(witness, occasion) for witness in finding.witnesses for occasion in witness.occasions]
    ways = (
        Appearance(
            target=witness.target,
            suite=witness.suite,
            title=_without_chance(occasion.title),
            test=occasion.test.partition("[")[0] if finding.kind == "assertion" else "",
        )
        for witness, occasion in told
    )
    return list(dict.fromkeys(ways))


def _without_chance(title: str) -> str:
    """A title without what a log's line begins with, numbers, and the folders of files."""
    plain = re.sub(r"\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ ", "", title)
    return re.sub(r"0x[0-9a-f]+|\d+", "#", re.sub(r"/\S*/", "", plain))


def write(folder: Path, inherited: Baseline) -> None:
    """Put it into a run folder, or the cache."""
    (folder / NAME).write_bytes(json_codec.pretty(inherited))


def read(folder: Path) -> Baseline | None:
    """What a folder has of it; None for nothing. Raises UsageError for what is damaged."""
    path = folder / NAME
    try:
        return json_codec.decode(path.read_bytes(), Baseline)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise UsageError("what the base shows is damaged", where=str(path), because=str(error)) from error


def reason(inherited: Baseline, finding: Finding) -> str:
    """Why a finding is none of the change's; empty for one that the base does not show in all of its ways."""
    here, old = _ways(finding), inherited.ways.get(finding.id, [])
    return f"also in BASE {inherited.base.commit[:12]}" if here and set(here) <= set(old) else ""


def remarks(inherited: Baseline, findings: list[Finding]) -> list[str]:
    """What a reader should know of the comparison: what spread to other targets, what could not be compared."""
    said = []
    for finding in findings:
        old = inherited.findings.get(finding.id, [])
        new = [target for target in finding.targets if target not in old]
        if old and new:
            said.append(f"{finding.id} is new on {', '.join(new)}; BASE shows it on {', '.join(old)}")
        elif old and not reason(inherited, finding):
            said.append(f"{finding.id} is in BASE as well, but it is not seen there in all the ways that it is here")
    for cell, why in inherited.untold.items():
        said.append(f"BASE could not be judged on {cell}, so that what is found there counts as new: {why}")
    return said
