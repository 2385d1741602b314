"""Tests may be left out of a cell whose servers all run its own target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.model import Cell
from harness.plan.catalog import Catalog
from harness.workflows.preparation.reach.noted_cells import NotedCells

if TYPE_CHECKING:
    from collections.abc import Sequence

CATALOG = Catalog()


def is_alone(suite: str, targets: Sequence[str], tier: str) -> bool:
    cell = Cell(target=targets[0], server="redis-7.0.15", suite=suite)
    run: Any = SimpleNamespace(
        bench=SimpleNamespace(catalog=CATALOG),
        request=SimpleNamespace(plan=SimpleNamespace(cells=[], targets=targets), tier=tier),
        suite=lambda one: CATALOG.suites[one.suite],
        compares=lambda _: True,
    )
    codes: Any = SimpleNamespace(native="code")
    return NotedCells(run, codes).is_alone(cell)


@pytest.mark.parametrize(
    ("suite", "targets", "tier", "expected"),
    [
        ("persistence", ["armv5", "sparc64"], "quick", True),
        ("persistence", ["armv5", "sparc64"], "full", False),
        ("persistence", ["armv5"], "full", True),
        ("replication", ["armv5", "sparc64"], "quick", False),
        ("limits", ["armv5", "sparc64"], "quick", False),
        ("limits", ["armv5"], "quick", True),
        ("tls", ["armv5"], "quick", False),
    ],
)
def test_a_cell_is_alone_if_its_tests_combine_no_targets(
    suite: str, targets: list[str], tier: str, *, expected: bool
) -> None:
    assert is_alone(suite, targets, tier) == expected
