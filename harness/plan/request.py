"""The request for a run: its plan, and how to build and run every cell.

An option that some commands have is a field of `CheckSettings`, which a request inherits.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it converts

import msgspec

from harness.core.model import (
    Allocator,
    BuildSettings,
    CompilerWarnings,
    Everywhere,
    Flavour,
    GuestEnvironment,
    MemoryOrder,
    Record,
    Tier,
    Transport,
)
from harness.plan.plan import Plan  # noqa: TC001 - msgspec reads the annotations when it converts


class CheckSettings(Record, frozen=True, kw_only=True):
    """What to check, and how strictly. Each command that runs suites has options for some of these settings."""

    server: str
    tier: Tier
    policy: str
    fail_fast: bool = False
    """A cell ends with its first failed test, and no audit follows."""
    tests: list[str] = msgspec.field(default_factory=list)
    """Parts of names, or globs, of the tests to run; empty for every test."""
    limit_seconds: float | None = None
    """How long open-ended suites run; None for the tier's own limit."""
    limit_count: int | None = None
    """How many examples open-ended suites try; None for the tier's own number."""
    mixed: bool = False
    """Whether servers of the release's own tests that talk to each other alternate between the plan's targets."""
    target_clients: bool = False
    """Whether redis-cli and redis-benchmark in the release's own tests run on the target instead of the host."""
    warnings: CompilerWarnings = "note"
    """How to treat a compiler warning that occurs only on a target."""
    everywhere: Everywhere = "note"
    """How to treat a finding that the native build shows as well."""
    settings: BuildSettings = BuildSettings()
    """What a distribution adds to the builds for targets."""
    learns: bool = False
    """Whether open-ended suites reuse what earlier runs learned and add to it. A seed alone then repeats nothing."""
    corpora: Path | None = None
    """The folder in which they store it, with one subfolder for each server and target; None: in the cache."""
    profiled: bool = False
    """Whether each cell's process records where it spends its processor time."""


class Request(CheckSettings, frozen=True, kw_only=True):
    """A run, as the user's options describe it."""

    plan: Plan
    """Its cells. The plan is made once, with the request, and everything later reads it here."""
    optimisation: str
    emulator: Flavour
    jobs: int
    seed: int
    install: bool
    known: Path
    run: Path
    allocator: Allocator = "libc"
    environment: GuestEnvironment = "usual"
    memory_order: MemoryOrder = "usual"
    io: Transport = "unix"
    """How the suites' clients reach the servers."""
    needs_native: bool = False
    """Whether the run stops immediately if the tree does not compile natively."""
    covered: bool = False
    """Whether each test's executed code is recorded. The target's servers then run under the plugin that records it."""
