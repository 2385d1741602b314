"""A few seeded rounds of chaos. `python -m tests.chaos` runs for hours (docs/RELIABILITY.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.rounds import Chaos, live_rounds, other_rounds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


@pytest.mark.slow(instead="tests/unit/judge/test_integrity.py; test_ends.py")
@pytest.mark.parametrize(("seed", "live", "others", "changes"), [(1, 2, 1, 200), (2, 60, 40, 20_000)])
def test_no_wrong_result_is_accepted_after_a_fault(
    tmp_path: Path, seed: int, live: int, others: int, changes: int
) -> None:
    chaos = Chaos(tmp_path, seed=seed)
    rounds = [*live_rounds(chaos, range(live)), *other_rounds(chaos, range(others))]
    assert [each for _, each in rounds if each.lies] == []
    assert [(change, wrong) for change, wrong in chaos.changes(changes) if wrong] == []
    assert chaos.damaged_entries() == []
