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


def make_plan(catalog: Catalog, *, targets: Sequence[str], server: str, suites: Sequence[str]) -> Plan:
    """Expand globs and groups. The canary suite is always in: without it no result counts.

    Raises UsageError and NothingSelectedError as harness.load.select does.
    """
    chosen_targets = select("target", targets, catalog.targets, target_groups(catalog.targets))
    chosen = select("suite", suites, catalog.suites)
    chosen_suites = ["canary", *(name for name in chosen if name != "canary")]
    cells = [Cell(target=target, server=server, suite=suite) for target in chosen_targets for suite in chosen_suites]
    return Plan(cells=cells, targets=chosen_targets, suites=chosen_suites)
