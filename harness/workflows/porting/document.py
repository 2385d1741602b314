"""A porting report as a value: `plumb port --json` prints it, and RUN/port.json stores it."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.core.model import BuildSettings, Record
from harness.judge.verdict import CellVerdict  # noqa: TC001 - msgspec reads the annotations when it decodes

FILE = "port.json"

Rank = Literal["build", "start", "fault", "value", "strict", "note"]
"""The order of fixes: the server does not build; does not start; dies in the default workload; answers wrongly; is
not portable C although this target accepts it; is worth knowing."""
BLOCKERS: tuple[Rank, ...] = ("build", "start", "fault", "value")


class Step(Record, frozen=True):
    """One of the steps on the way to a running server."""

    name: Literal["configure", "compile", "link", "start"]
    result: Literal["ok", "mended", "failed", "none"]
    """mended: only with the project's additions. none: the step does not apply."""
    detail: str
    lines: list[str] = msgspec.field(default_factory=list)
    """`FILE:LINE  TEXT  MESSAGE` of each of the compiler's errors."""


class Hint(Record, frozen=True):
    """A compiler warning, which may or may not indicate a fault."""

    warning: str
    """The warning's option without `-W`."""
    file: str
    line: int
    text: str
    origin: str
    seen: bool = False
    """The audit recorded a misaligned access on this line."""
    source: str = ""
    """The line itself."""


class Assumption(Record, frozen=True):
    """A line of a makefile that depends on the machine it runs on."""

    kind: Literal["system", "machine", "warnings are errors", "Solaris"]
    file: str
    line: int
    text: str


class Region(Record, frozen=True):
    """Lines between preprocessor conditionals that test for a system, a machine, its alignment or its byte order."""

    topic: Literal["Solaris", "alignment", "byte order", "machine"]
    file: str
    first: int
    last: int
    condition: str
    compiled: bool
    """Whether the preprocessor kept any of the lines on this target."""
    excerpt: str
    """The first line with code."""


class Xmemalign(Record, frozen=True):
    """The effect of one of Solaris' -xmemalign policies on the misaligned source lines that the audit recorded."""

    policy: str
    acts_as: str
    """The policy that takes effect in programs of this width."""
    default: bool
    """The default of Sun's compiler."""
    apart: int
    """Number of harmless source lines: compiled as smaller accesses, or emulated by default."""
    repaired: int
    signal: int
    unsure: int = 0
    """How many of all these lines would fare worse at misaligned addresses other than the recorded ones."""


class TargetPort(Record, frozen=True):
    """The results for one target."""

    target: str
    title: str
    machine: str
    """The output of `uname -m` on the target."""
    alignment: str
    steps: list[Step]
    hints: list[Hint]
    assumptions: list[Assumption]
    regions: list[Region]
    xmemalign: list[Xmemalign]
    """Empty for targets without a Solaris counterpart."""


class PortingItem(Record, frozen=True):
    """One task or observation."""

    rank: Rank
    title: str
    targets: list[str]
    place: str = ""
    """FILE:LINE in the tree."""
    source: str = ""
    """The text of that line."""
    detail: list[str] = msgspec.field(default_factory=list)
    remedy: str = ""
    finding: str = ""
    """The identity of the finding in the run's findings.json, if there is one."""
    replay: str = ""


class PortReport(Record, frozen=True):
    """The complete report."""

    schema: int
    verdict: Literal["PASS", "FAIL", "UNKNOWN"]
    """FAIL: there are blockers. UNKNOWN: there are none, but a canary failed or a cell has no result."""
    server: str
    seed: int
    run: str
    optimisation: str
    settings: BuildSettings
    """What a distribution adds to the builds."""
    items: list[PortingItem]
    """The most urgent item first."""
    targets: list[TargetPort]
    cells: list[CellVerdict]
    stages: dict[str, float]
