"""Tests may be left out of a cell whose servers all run its own target."""

from __future__ import annotations

from pathlib import Path
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


def test_programs_beside_the_server_are_those_that_a_targets_own_cells_run() -> None:
    """Of an edited line of the client, the cells that run the client say whether it was executed."""
    targets = {
        name: SimpleNamespace(
            target=CATALOG.targets[name],
            machine=None,
            runner=SimpleNamespace(reports_edges=True),
            with_tls=SimpleNamespace(server_binary=Path(f"/{name}/tls/redis-server")),
            programs=Path(f"/{name}/programs"),
            build=SimpleNamespace(server_binary=Path(f"/{name}/redis-server")),
        )
        for name in ("armv5", "sparc64")
    }
    suites = ("bitops", "tls", next(name for name, suite in CATALOG.suites.items() if suite.plain_programs))
    cells = [Cell(target=target, server="redis-7.0.15", suite=suite) for target in targets for suite in suites]
    run: Any = SimpleNamespace(
        bench=SimpleNamespace(catalog=CATALOG),
        request=SimpleNamespace(plan=SimpleNamespace(cells=cells, targets=list(targets)), environment="usual"),
        prepared=SimpleNamespace(targets=targets, tree=SimpleNamespace(family="redis")),
        suite=lambda one: CATALOG.suites[one.suite],
    )
    codes: Any = SimpleNamespace(lines_in=lambda program: [program] if program.name == "redis-cli" else [])
    noted = NotedCells(run, codes)
    for target in targets:
        own = {cell.suite: cell for cell in cells if cell.target == target}
        assert noted.other_programs(target) == {
            own["tls"]: [Path(f"/{target}/tls/redis-server")],
            own[suites[2]]: [Path(f"/{target}/programs/redis-cli")],
        }
