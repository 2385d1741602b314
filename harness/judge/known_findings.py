"""The known list: findings that are expected for now. Each has a reason and a last day; none is forgotten silently.

A finding is known if each occasion on which any of its witnesses saw it fits an entry: where one does not, it is news.
"""

from __future__ import annotations

import datetime  # noqa: TC003 - msgspec reads the annotations when it decodes
import fnmatch
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.core.target_model import Endianness  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.core.finding import Finding, Occasion, Witness
    from harness.core.target_model import Target

DEFAULT = ROOT / "ci" / "known.toml"


class KnownFinding(Record, frozen=True):
    """One entry."""

    id: str
    """The finding's id; globs allowed."""
    server: str
    """Server name; globs allowed."""
    reason: str
    expires: datetime.date
    """The last day on which the entry counts."""
    targets: list[str] = msgspec.field(default_factory=lambda: ["*"])
    """Target names; globs allowed. None: all."""
    width_bits: Literal[32, 64] | None = None
    """Only those of them with words so long. None: any."""
    endianness: Endianness | None = None
    """Only those of them with this order of bytes, `little` or `big`. None: either."""
    suite: str = ""
    """The only suite that may show it; a run without that suite is not told that it was not seen. Empty: any."""
    test: str = "*"
    """The test that shows it; globs allowed, `?` for a bracket."""
    command: str = "*"
    """What the client had asked for; globs allowed."""
    said: str = "*"
    """All that a failed test said, for other findings the title that reports have; globs allowed."""
    via: list[str] = msgspec.field(default_factory=list)
    """Functions that are all on the stack, wherever; globs allowed."""
    seldom: bool = False
    """Whether chance shows it, or not every tier does: no run is told that it was not seen."""


class KnownList(Record, frozen=True):
    """A known-findings file."""

    findings: list[KnownFinding]


def load_known(path: Path, machines: Mapping[str, Target]) -> KnownList:
    """Read a known-findings file; its entries' targets are those of the machines, by name, that are meant.

    Raises UsageError when it is not valid.
    """
    read = read_toml(path, KnownList)
    return KnownList(
        findings=[
            msgspec.structs.replace(
                entry, targets=[name for name, machine in machines.items() if _means(entry, name, machine)]
            )
            for entry in read.findings
        ]
    )


def _means(entry: KnownFinding, name: str, machine: Target) -> bool:
    return (
        any(fnmatch.fnmatch(name, pattern) for pattern in entry.targets)
        and entry.width_bits in {None, machine.width_bits}
        and entry.endianness in {None, machine.endianness}
    )


def match(known: KnownList, finding: Finding, server: str, today: datetime.date) -> list[KnownFinding]:
    """The unexpired entries that cover a finding, each some of its occasions and together all; none if they do not."""
    used: list[KnownFinding] = []
    for witness in finding.witnesses:
        for occasion in witness.occasions:
            fitting = [
                entry
                for entry in known.findings
                if entry.expires >= today and _fits(entry, finding.id, server, witness, occasion)
            ]
            if not fitting:
                return []
            used += fitting[:1]
        if not witness.occasions:
            return []
    return [entry for number, entry in enumerate(used) if entry not in used[:number]]


def _fits(entry: KnownFinding, identity: str, server: str, witness: Witness, occasion: Occasion) -> bool:
    return (
        fnmatch.fnmatchcase(identity, entry.id)
        and fnmatch.fnmatchcase(server, entry.server)
        and witness.target in entry.targets
        and entry.suite in {"", witness.suite}
        and fnmatch.fnmatchcase(occasion.test, entry.test)
        and fnmatch.fnmatchcase(occasion.command, entry.command)
        and fnmatch.fnmatchcase(occasion.said or occasion.title, entry.said)
        and all(fnmatch.filter(occasion.functions, function) for function in entry.via)
    )


def remarks(
    known: KnownList,
    found: Sequence[Finding],
    server: str,
    targets: Sequence[str],
    today: datetime.date,
    *,
    suites: Sequence[str] = (),
    part: bool = False,
) -> list[str]:
    """What a reader should mend in the list: expired entries, and entries for this run that matched nothing.

    What `part` of the tests does not show says nothing of an entry.
    """
    said = []
    for entry in known.findings:
        concerned = fnmatch.fnmatchcase(server, entry.server) and not set(entry.targets).isdisjoint(targets)
        if concerned and entry.expires < today:
            said.append(f"known finding {entry.id} ({entry.server}) expired on {entry.expires}: {entry.reason}")
            continue
        due = concerned and not part and not entry.seldom and entry.suite in {"", *suites}
        if due and not any(_seen(entry, finding, server) for finding in found):
            said.append(f"known finding {entry.id} ({entry.server}) was not seen in this run")
    return said


def _seen(entry: KnownFinding, finding: Finding, server: str) -> bool:
    return any(
        _fits(entry, finding.id, server, witness, occasion)
        for witness in finding.witnesses
        for occasion in witness.occasions
    )
