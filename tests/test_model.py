"""The model's few rules: how deadlines grow with a target's slowdown."""

from __future__ import annotations

import pytest

from tests import fakes


@pytest.mark.parametrize(("slowdown", "expected"), [(1, 10), (3, 10), (4, 40 / 3), (15, 50), (30, 100)])
def test_a_short_tasks_deadline_grows_only_beyond_its_margin(slowdown: float, expected: float) -> None:
    assert fakes.target(slowdown=slowdown).deadline_seconds(10.0) == pytest.approx(expected)
