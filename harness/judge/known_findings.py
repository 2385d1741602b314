"""The known list: findings that are expected for now. Each entry has a reason and a last day.

A finding is known if an entry fits each occasion on which any of its witnesses saw it. One occasion that fits no entry
makes the finding new.
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
    """Target names; globs allowed. Without the key: all targets."""
    width_bits: Literal[32, 64] | None = None
    """Restricts the targets to those of this word size. Without the key: any."""
    endianness: Endianness | None = None
    """Restricts the targets to those of this byte order, `little` or `big`. Without the key: either."""
    suite: str = ""
    """The only suite that may show it. A run without that suite does not report the entry as unseen. Empty: any."""
    test: str = "*"
    """The test that shows it; globs allowed, `?` for a bracket."""
    command: str = "*"
    """The client's request; globs allowed."""
    said: str = "*"
    """The whole message of a failed test, or the title of any other finding; globs allowed."""
    via: list[str] = msgspec.field(default_factory=list)
    """Functions that must all be on the stack, in any order; globs allowed."""
    intermittent: bool = False
    """Whether it appears by chance, or not in every tier. No run reports such an entry as unseen."""


class KnownList(Record, frozen=True):
    """A known-findings file."""

    findings: list[KnownFinding]


def load_known(path: Path, machines: Mapping[str, Target]) -> KnownList:
    """Read a known-findings file, and resolve each entry's targets to the names of machines.

    Raises UsageError if the file is invalid.
    """
    listed = read_toml(path, KnownList)
    return KnownList(
        findings=[
            msgspec.structs.replace(
                entry, targets=[name for name, machine in machines.items() if _covers(entry, name, machine)]
            )
            for entry in listed.findings
        ]
    )


def _covers(entry: KnownFinding, name: str, machine: Target) -> bool:
    return (
        any(fnmatch.fnmatch(name, pattern) for pattern in entry.targets)
        and entry.width_bits in {None, machine.width_bits}
        and entry.endianness in {None, machine.endianness}
    )


def match(known: KnownList, finding: Finding, server: str, today: datetime.date) -> list[KnownFinding]:
    """The unexpired entries that together fit all occasions of a finding; empty if one occasion fits none."""
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
        any(fnmatch.fnmatchcase(name, entry.id) for name in (identity, occasion.id) if name)
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
    """Sentences on the list's upkeep: entries that expired, and entries for this run that matched nothing.

    `part`: only some tests ran, so entries that matched nothing are not reported.
    """
    sentences = []
    for entry in known.findings:
        concerned = fnmatch.fnmatchcase(server, entry.server) and not set(entry.targets).isdisjoint(targets)
        if concerned and entry.expires < today:
            sentences.append(f"known finding {entry.id} ({entry.server}) expired on {entry.expires}: {entry.reason}")
            continue
        due = concerned and not part and not entry.intermittent and entry.suite in {"", *suites}
        if due and not any(_matches(entry, finding, server) for finding in found):
            sentences.append(f"known finding {entry.id} ({entry.server}) was not seen in this run")
    return sentences


def _matches(entry: KnownFinding, finding: Finding, server: str) -> bool:
    return any(
        _fits(entry, finding.id, server, witness, occasion)
        for witness in finding.witnesses
        for occasion in witness.occasions
    )
