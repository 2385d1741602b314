"""Every access of the target, at every offset, does what CPU, kernel and policy prescribe, and is logged if it must be.

The accesses are data (harness/isa/accesses/*.toml), and so are the rules (targets/*.toml and
harness/plan/policies/*.toml). If an access behaves differently, the target's results are UNKNOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.isa import rules
from harness.run import canary
from harness.run.canary import CanaryResult

if TYPE_CHECKING:
    from harness.run.canary import CanaryCase, CanaryRunner
    from harness.run.cell_spec import CellSpec
    from harness.run.session.cell_session import CellSession


@pytest.fixture(scope="session")
def performed(cell: CellSpec, perform: CanaryRunner, tmp_path_factory: pytest.TempPathFactory) -> CanaryResult:
    """Every access of the target, made once."""
    assert cell.canary is not None
    if cell.runner.target.emulator.is_elsewhere:
        return CanaryResult(outcomes=canary.perform_all(perform, cell.runner.target), reports={})
    return canary.performed(cell.canary, cell.runner, tmp_path_factory.mktemp("canary") / "faults.jsonl", cell.triple)


@pytest.fixture(scope="session")
def deaths(cell: CellSpec, perform: CanaryRunner) -> dict[str, str]:
    """For each access, how a process without a signal handler ended after making it."""
    return canary.deaths(perform, canary.cases(cell.runner))


def test_canary(
    performed: CanaryResult,
    deaths: dict[str, str],
    cell: CellSpec,
    cell_run: CellSession,
    canary_case: CanaryCase,
) -> None:
    if cell.runner.target.emulator.is_board:
        cell_run.current.note = canary.in_words(canary.cases(cell.runner), performed.outcomes, cell.runner)
    wrong = canary.disagreements(canary_case, performed, cell.runner)
    where = f"{canary_case.access.name} on {cell.runner.target.name}, policy {cell.runner.policy.name}"
    assert not wrong, f"{where}: {'; '.join(wrong)}"
    if "signal" in canary_case.prescribed:
        # Without a signal handler, the same access must kill the process.
        offset = canary_case.prescribed.index("signal")
        due, end = rules.signal_of(cell.runner.target).name, deaths[canary_case.access.name]
        assert end == due, f"{where}: at {offset}, a process without a handler must end with {due}, got: {end}"
