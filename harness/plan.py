"""Which cells a request means, and why others are left out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.load import select, target_groups
from harness.model import Cell, Noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.load import Catalog


class Plan(Noun, frozen=True):
    """What will run, in order: by target, canary first."""

    cells: list[Cell]
    targets: list[str]
    suites: list[str]


TIERS = {"kernel": 0, "quick": 0, "full": 1, "thorough": 2}
"""Tier -> how much it runs. The kernel tier runs what the quick one does, on other machines."""


def make_plan(
    catalog: Catalog, *, targets: Sequence[str], server: str, suites: Sequence[str], tier: str = "quick"
) -> Plan:
    """Expand globs and groups; no suites are those of the tier. The canary is always in: without it nothing counts.

    Raises UsageError and NothingSelectedError as harness.load.select does.
    """
    chosen_targets = select("target", targets, catalog.targets, target_groups(catalog.targets))
    unasked = [name for name, suite in catalog.suites.items() if TIERS[suite.tier] <= TIERS[tier]]
    chosen = select("suite", suites or unasked, catalog.suites)
    chosen_suites = ["canary", *(name for name in chosen if name != "canary")]
    cells = [Cell(target=target, server=server, suite=suite) for target in chosen_targets for suite in chosen_suites]
    return Plan(cells=cells, targets=chosen_targets, suites=chosen_suites)
