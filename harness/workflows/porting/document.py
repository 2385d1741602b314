"""A porting report as a value: what `plumb port --json` prints, and RUN/port.json holds."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.core.model import Record
from harness.judge.verdict import CellVerdict  # noqa: TC001 - msgspec reads the annotations when it decodes

FILE = "port.json"

Rank = Literal["build", "start", "fault", "value", "strict", "note"]
"""What to fix first: it does not build; does not start; dies in the default workload; answers wrongly; is not portable
C though this target does it; is worth knowing."""
BLOCKERS: tuple[Rank, ...] = ("build", "start", "fault", "value")


class Step(Record, frozen=True):
    """One of the steps on the way to a running server."""

    name: Literal["configure", "compile", "link", "start"]
    result: Literal["ok", "mended", "failed", "none"]
    """mended: not as the tree is, but with our help. none: there is nothing to do."""
    detail: str


class Hint(Record, frozen=True):
    """A warning of the compiler: what may be a fault, and what may not."""

    warning: str
    """Its option without `-W`."""
    file: str
    line: int
    text: str
    origin: str
    seen: bool = False
    """The audit saw a misaligned access in this very line."""


class Assumption(Record, frozen=True):
    """A line of a makefile that depends on the machine it runs on."""

    kind: Literal["system", "machine", "warnings are errors", "Solaris"]
    file: str
    line: int
    text: str


class Region(Record, frozen=True):
    """Lines between preprocessor conditionals that ask for a system, a machine, its alignment or its byte order."""

    topic: Literal["Solaris", "alignment", "byte order", "machine"]
    file: str
    first: int
    last: int
    condition: str
    compiled: bool
    """Whether the preprocessor let any of them through on this target."""
    excerpt: str
    """The first line with code."""


class Xmemalign(Record, frozen=True):
    """What one of Solaris' -xmemalign policies makes of the misaligned source lines that the audit saw."""

    policy: str
    acts_as: str
    """The policy that it is in programs of this width."""
    default: bool
    """What Sun's compiler takes when it is told nothing."""
    apart: int
    """Source lines that are well: compiled as smaller accesses, or emulated without being asked for."""
    repaired: int
    signal: int
    unsure: int = 0
    """Of all these, how many would be worse off at other misaligned addresses than the audit noted."""


class TargetPort(Record, frozen=True):
    """What is known of one target."""

    target: str
    title: str
    machine: str
    """What `uname -m` says there."""
    alignment: str
    steps: list[Step]
    hints: list[Hint]
    assumptions: list[Assumption]
    regions: list[Region]
    xmemalign: list[Xmemalign]
    """Empty where there was no Solaris."""


class PortingItem(Record, frozen=True):
    """One thing to do, or to know."""

    rank: Rank
    title: str
    targets: list[str]
    place: str = ""
    """FILE:LINE in the tree."""
    detail: list[str] = msgspec.field(default_factory=list)
    remedy: str = ""
    finding: str = ""
    """Identity in the run's findings.json, if it is one of those."""
    replay: str = ""


class PortReport(Record, frozen=True):
    """The document."""

    schema: int
    verdict: Literal["PASS", "FAIL", "UNKNOWN"]
    """FAIL: there are blockers. UNKNOWN: there are none, but canaries did not behave, or cells have no result."""
    server: str
    seed: int
    run: str
    optimisation: str
    items: list[PortingItem]
    """What to fix first, first."""
    targets: list[TargetPort]
    cells: list[CellVerdict]
    stages: dict[str, float]
