"""The model's rules: deadlines grow with a target's slowdown, and a suite needs certain servers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.core.model import Suite
from tests.support import fakes


@pytest.mark.parametrize(("slowdown", "expected"), [(1, 10), (3, 10), (4, 40 / 3), (15, 50), (30, 100)])
def test_a_short_tasks_deadline_grows_only_beyond_its_margin(slowdown: float, expected: float) -> None:
    assert fakes.target(slowdown=slowdown).deadline_seconds(10.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("since", "family", "why"),
    [
        ((), "", ""),
        ((7, 0), "redis", ""),
        ((7, 0, 16), "redis", "what it tests came with release 7.0.16"),
        ((), "valkey", "only Valkey has what it tests"),
    ],
)
def test_a_suite_gives_the_reason_why_a_server_lacks_its_features(
    since: tuple[int, ...], family: str, why: str
) -> None:
    suite = Suite(name="one", title="", path=Path(), needs_server=True)
    suite = msgspec.structs.replace(suite, since=since, family=family)
    assert suite.absent_from(fakes.opened(Path())) == why
