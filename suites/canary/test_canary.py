"""Every access of the target, at every offset, does what CPU, kernel and policy prescribe, and is logged if it must be.

The accesses are data (accesses/*.toml), and so are the rules (targets/*.toml, harness/policies/*.toml). An access that
does not behave makes the target's results UNKNOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import canary
from harness.load import Catalog

if TYPE_CHECKING:
    from pathlib import Path

    from harness.canary import CanaryCase, Reported
    from harness.cell import CellSpec


class Performed:
    """One run of the canary program: outcomes, and what the emulator logged."""

    def __init__(self, cell: CellSpec, folder: Path) -> None:
        assert cell.canary is not None
        log = folder / "faults.jsonl"
        target = cell.runner.target
        self.outcomes = canary.perform_all(cell.canary, cell.runner, log)
        self.reports: dict[str, list[Reported]] = {}
        if cell.runner.policy.report:
            self.reports = canary.reports(cell.canary, log, Catalog().toolchain_of(target).triple)


@pytest.fixture(scope="session")
def performed(cell: CellSpec, tmp_path_factory: pytest.TempPathFactory) -> Performed:
    """Every access of the target, made once."""
    return Performed(cell, tmp_path_factory.mktemp("canary"))


def test_canary(performed: Performed, cell: CellSpec, canary_case: CanaryCase) -> None:
    access = canary_case.access
    pairs = zip(canary_case.prescribed, performed.outcomes[access.name], strict=True)
    wrong = [
        f"at {offset} {actual} where {expected} is prescribed"
        for offset, (expected, actual) in enumerate(pairs)
        if actual != expected
    ]
    where = f"{access.name} on {cell.runner.target.name}, policy {cell.runner.policy.name}"
    assert not wrong, f"{where}: {'; '.join(wrong)}"
    if not cell.runner.records_faults:
        return
    expected = sum(canary_case.reported)
    reports = performed.reports.get(canary.function_of(access), [])
    seen = [one for one in reports if one.access_class == access.access_class]
    assert max((one.count for one in seen), default=0) == expected, f"{where}: {expected} to be reported, got {reports}"
    if expected:
        assert seen[0].offset == canary_case.reported.index(True), f"{where}: the first was reported as {seen[0]}"
    if expected and "signal" not in canary_case.prescribed:
        # Of a loop of load and store the load comes first, and where it raises a signal the store never comes.
        assert access.direction in {one.direction for one in seen}, f"{where}: reported as {seen}"


def test_a_forbidden_access_ends_the_process(cell: CellSpec, fatal_case: CanaryCase) -> None:
    assert cell.canary is not None
    offset = fatal_case.prescribed.index("signal")
    assert canary.dies(cell.canary, cell.runner, fatal_case.access, offset), f"{fatal_case.access.name}@{offset} lived"
