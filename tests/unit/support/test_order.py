"""tests/support/order.py: what runs in one process, and what begins first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from tests.support import order
from tests.support.order import unit_of
from tests.support.waits import COLLECTION, TimedTest

if TYPE_CHECKING:
    from pathlib import Path

SHARING = ['@pytest.fixture(scope="module")', "@cache", "@functools.cache", "    @cache", "@lru_cache(maxsize=1)"]


def times(test: str, real: float) -> TimedTest:
    return TimedTest(test=test, outcome="passed", started=0, real=real, own=0, children=0, running=0)


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of end-to-end tests."""
    monkeypatch.setattr(order, "ROOT", tmp_path)
    order.shares.cache_clear()
    folder = tmp_path / "tests" / "end_to_end" / "run"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("line", SHARING)
def test_end_to_end_tests_that_share_something_stay_together(tests: Path, line: str) -> None:
    (tests / "test_a.py").write_text(f"import pytest\n\n{line}\ndef shared(): ...\n", "utf-8")
    assert unit_of("tests/end_to_end/run/test_a.py::test_one[x::y]") == "tests/end_to_end/run/test_a.py"


def test_end_to_end_tests_that_share_nothing_are_distributed(tests: Path) -> None:
    (tests / "test_a.py").write_text("@pytest.fixture\ndef own(): ...\n", "utf-8")
    assert unit_of("tests/end_to_end/run/test_a.py::test_one[x::y]") == "tests/end_to_end/run/test_a.py::test_one[x::y]"


def test_other_tests_stay_together() -> None:
    assert unit_of("tests/unit/judge/test_a.py::test_one") == "tests/unit/judge/test_a.py"


def test_durations_are_kept_by_unit_and_short_ones_are_not(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    unit = "tests/unit/test_a.py"
    records = [times(f"{unit}::test_one", 61.23), times(f"{unit}::test_two", 61.23), times(COLLECTION, 9)]
    order.write_expected([*records, times("tests/unit/test_b.py::test_one", 1.9)], file)
    assert order.read_expected(file) == {unit: 120.0}


def test_without_the_file_nothing_is_expected(tmp_path: Path) -> None:
    assert order.read_expected(tmp_path / "durations.json") == {}


def test_the_file_names_tests_that_exist() -> None:
    """A moved test's duration would count for nothing."""
    missing = [unit for unit in order.read_expected() if not (ROOT / unit.partition("::")[0]).is_file()]
    assert missing == []
