"""Turns a selection of targets and suites into cells, and cells into jobs for several machines. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import CANARY_SUITE, TIERS, Cell, Record, Tier
from harness.plan.name_selection import select

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from harness.plan.catalog import Catalog


class Job(Record, frozen=True):
    """The part of a plan that one of several machines runs."""

    name: str
    targets: list[str]
    suites: list[str]
    """Without the canary suite, which runs in every job."""


class Plan(Record, frozen=True):
    """The cells of a run in their order: by target, with the canary suite first."""

    cells: list[Cell]
    targets: list[str]
    suites: list[str]

    def only(self, suites: Collection[str]) -> Plan:
        """The same plan with only these suites and the canary suite."""
        kept = [name for name in self.suites if name in {CANARY_SUITE, *suites}]
        return Plan(cells=[cell for cell in self.cells if cell.suite in kept], targets=self.targets, suites=kept)

    def on(self, targets: Collection[str]) -> Plan:
        """The same plan with only these targets."""
        kept = [name for name in self.targets if name in targets]
        return Plan(cells=[cell for cell in self.cells if cell.target in kept], targets=kept, suites=self.suites)


def make_plan(
    catalog: Catalog, *, targets: Sequence[str], server: str, suites: Sequence[str], tier: str = "quick"
) -> Plan:
    """Expand globs and groups; without suites, take the tier's. The canary suite always runs.

    No result counts without it.

    Raises UsageError and NothingSelectedError as harness.plan.name_selection.select does.
    """
    chosen_targets = catalog.select_targets(targets)
    of_tier = [name for name, suite in catalog.suites.items() if TIERS[suite.tier] <= TIERS[tier]]
    chosen = select("suite", suites or of_tier, catalog.suites)
    chosen_suites = [catalog.canary, *(name for name in chosen if name != catalog.canary)]
    cells = [Cell(target=target, server=server, suite=suite) for target in chosen_targets for suite in chosen_suites]
    return Plan(cells=cells, targets=chosen_targets, suites=chosen_suites)


TOGETHER = "together"
"""The job whose suites need several targets at once."""


def make_jobs(catalog: Catalog, plan: Plan, tier: str) -> list[Job]:
    """Spread a plan over machines: one job for each target, and one with all targets for the suites that pair them."""
    pairing = [name for name in plan.suites if catalog.suites[name].combines_targets(tier)]
    # A server on another machine cannot be another target's peer.
    peers = [name for name in plan.targets if not catalog.targets[name].emulator.is_elsewhere]
    together = [Job(name=TOGETHER, targets=peers, suites=pairing)] if pairing and len(peers) > 1 else []
    rest = [name for name in plan.suites if name != catalog.canary]
    jobs = []
    for target in plan.targets:
        alone = [name for name in rest if not (together and target in peers and name in pairing)]
        if alone or not together:
            jobs.append(Job(name=target, targets=[target], suites=alone or [catalog.canary]))
    return [*jobs, *together]


class PlannedCells(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a document that `plumb plan --json` printed which joining runs needs."""

    cells: list[Cell]
    tier: Tier | Literal[""] = ""
    """Empty in documents of earlier releases."""
    toolchain: str = ""
    """The same, and so are all further ones."""
    policy: str = ""
    """An audit's own name, as a run records it, if audits are planned."""
    optimisation: str = ""
    allocator: str = ""
    environment: str = ""
    memory_order: str = ""
    io: str = ""
    settings: list[str] | None = None
    """The options of a check that add to the builds for targets, as `BuildSettings.words`; None in documents of earlier
    releases.
    """
    revision: str = ""
    """The commit of the tree, as a run records it; empty if it is not known."""

    @property
    def options(self) -> dict[str, str]:
        """The options of a check that the plan names, without `--`, and their values."""
        names = ("toolchain", "policy", "optimisation", "allocator", "environment", "memory_order", "io")
        return {name.replace("_", "-"): value for name in names if (value := getattr(self, name))}


def read_plan(path: Path) -> PlannedCells:
    """Read a document that `plumb plan --json` printed. Raises UsageError for any other file, and for one without
    cells.
    """
    remedy = "plumb plan --json > FILE"
    try:
        read = json_codec.decode(path.read_bytes(), PlannedCells)
    except msgspec.DecodeError as error:
        raise UsageError("not a plan", where=str(path), because=str(error), remedy=remedy) from error
    if not read.cells:
        raise UsageError("not a plan", where=str(path), because="it has no cells", remedy=remedy)
    return read
