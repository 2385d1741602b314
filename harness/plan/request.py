"""What a run is asked for."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it converts

import msgspec

from harness.core.model import Allocator, CompilerWarnings, Flavour, Record, Tier


class Request(Record, frozen=True):
    """What the user asked for."""

    targets: list[str]
    server: str
    suites: list[str]
    tier: Tier
    policy: str
    optimisation: str
    emulator: Flavour
    jobs: int
    seed: int
    offline: bool
    install: bool
    known: Path
    run: Path
    allocator: Allocator = "libc"
    fail_fast: bool = False
    """A cell ends with its first failed test, and no audit follows."""
    tests: list[str] = msgspec.field(default_factory=list)
    """Parts of names, or globs: of the suites only the tests that one of them fits; none: all."""
    limit_seconds: float | None = None
    """How long suites that can go on for ever should; None: as long as the tier says."""
    limit_count: int | None = None
    """How many examples they should try; None: as many as the tier says."""
    warnings: CompilerWarnings = "note"
    """What becomes of what a compiler warns of on a target alone."""
    learns: bool = False
    """Whether they keep what they learn in the cache, and begin with it: then a seed does not say all."""
