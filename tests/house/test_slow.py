"""`ci/test` leaves out slow tests alone, and each of these says which test of the same property `ci/test` has.

`ci/test --quick` leaves out costly ones, too.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import process
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.costly

FOLDER = ROOT / "tests" / "end_to_end"


@dataclass(frozen=True)
class Collected:
    """A test with its parameters, as pytest collected it without `--all`."""

    test: str
    selected: bool
    instead: str | None
    """What a slow test's marker says; None for other tests."""
    costly: bool

    @property
    def function(self) -> str:
        """FILE::NAME."""
        return self.test.partition("[")[0]


@functools.cache
def collected(folder: Path = FOLDER, *options: str) -> tuple[Collected, ...]:
    """The tests of a folder, by default the end-to-end tests."""
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.support.collected", *options]
    result = process.run([*pytest, str(folder)], deadline_seconds=300, folder=ROOT)
    found = tuple(Collected(**json.loads(line)) for line in result.text.splitlines() if line.startswith("{"))
    assert found, result.text
    return found


def left_out() -> dict[str, str]:
    """The functions no test of which `ci/test` runs, with what their markers say."""
    tests = defaultdict(list)
    for one in collected():
        tests[one.function].append(one)
    return {
        function: next((one.instead for one in found if one.instead), "")
        for function, found in tests.items()
        if not any(one.selected for one in found)
    }


def test_ci_test_leaves_out_the_slow_tests_and_no_other() -> None:
    slow = {one.test for one in collected() if one.instead is not None}
    assert slow == {one.test for one in collected() if not one.selected}
    assert slow


def test_a_quick_run_leaves_out_the_costly_tests_and_no_other() -> None:
    found = collected(ROOT / "tests" / "unit" / "support", "--quick")
    assert {one.selected for one in found if one.costly} == {False}
    assert {one.selected for one in found if not one.costly} == {True}


def test_what_ci_test_does_not_run_at_all_says_what_it_runs_instead() -> None:
    """A function of which `ci/test` runs some parameters needs no word: the same test runs on fewer machines."""
    assert left_out()
    assert [function for function, instead in left_out().items() if not instead] == [], (
        'write: @pytest.mark.slow(instead="the tests of ci/test with the same property"), or "nothing: " and why'
    )


def test_what_runs_instead_exists_and_is_not_left_out_itself() -> None:
    unit = {path for path in (ROOT / "tests").rglob("test_*.py") if not path.is_relative_to(FOLDER)}
    run = {word for one in collected() if one.selected for word in re.split("::|/", one.function)}
    run |= {str(path.relative_to(ROOT)) for path in unit}
    run |= {name for path in unit for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)}
    for function, instead in left_out().items():
        named = re.findall(r"[\w/]*test_\w+(?:\.py)?", instead)
        assert named or instead.startswith("nothing: "), (
            f"{function}: name a test, or begin with 'nothing: ' and say why"
        )
        assert set(named) <= run, f"{function}: `ci/test` runs none of {sorted(set(named) - run)}"
