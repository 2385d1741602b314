"""Which cells a request means, and why others are left out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import Cell, Record
from harness.plan.catalog import select

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.plan.catalog import Catalog


class Job(Record, frozen=True):
    """What one machine of several does, where a plan is spread over machines."""

    name: str
    targets: list[str]
    suites: list[str]
    """Without the canary, which runs in every job."""


class Plan(Record, frozen=True):
    """What will run, in order: by target, canary first."""

    cells: list[Cell]
    targets: list[str]
    suites: list[str]
    jobs: list[Job]


TIERS = {"kernel": 0, "quick": 0, "full": 1, "thorough": 2}
"""Tier -> how much it runs. The kernel tier runs what the quick one does, on other machines."""


def make_plan(
    catalog: Catalog, *, targets: Sequence[str], server: str, suites: Sequence[str], tier: str = "quick"
) -> Plan:
    """Expand globs and groups; no suites are those of the tier. The canary is always in: without it nothing counts.

    Raises UsageError and NothingSelectedError as harness.plan.catalog.select does.
    """
    chosen_targets = catalog.select_targets(targets)
    unasked = [name for name, suite in catalog.suites.items() if TIERS[suite.tier] <= TIERS[tier]]
    chosen = select("suite", suites or unasked, catalog.suites)
    chosen_suites = [catalog.canary, *(name for name in chosen if name != catalog.canary)]
    cells = [Cell(target=target, server=server, suite=suite) for target in chosen_targets for suite in chosen_suites]
    jobs = _jobs(catalog, chosen_targets, chosen_suites, TIERS[tier])
    return Plan(cells=cells, targets=chosen_targets, suites=chosen_suites, jobs=jobs)


TOGETHER = "together"
"""The job whose suites bring targets together."""


def _jobs(catalog: Catalog, targets: list[str], suites: list[str], tier: int) -> list[Job]:
    """A job a target; and one of all of them for the suites that pair targets, where there are two to pair."""
    pairing = [name for name in suites if (least := catalog.suites[name].multi_target_tier) and TIERS[least] <= tier]
    # A machine of the kernel tier is nobody's peer.
    peers = [name for name in targets if not catalog.targets[name].emulator.has_kernel]
    together = [Job(name=TOGETHER, targets=peers, suites=pairing)] if pairing and len(peers) > 1 else []
    rest = [name for name in suites if name != catalog.canary]
    jobs = []
    for target in targets:
        alone = [name for name in rest if not (together and target in peers and name in pairing)]
        if alone or not together:
            jobs.append(Job(name=target, targets=[target], suites=alone or [catalog.canary]))
    return [*jobs, *together]


def read_plan(path: Path) -> list[Cell]:
    """The cells of what `plumb plan --json` printed. Raises UsageError for anything else."""
    try:
        return json_codec.convert(json_codec.decode(path.read_bytes(), dict[str, Any])["cells"], list[Cell])
    except (KeyError, msgspec.DecodeError) as error:
        raise UsageError(
            "not a plan", where=str(path), because=str(error), remedy="plumb plan --json > FILE"
        ) from error
