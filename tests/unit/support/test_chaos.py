"""The campaigns of chaos: what they compare, and how they go on after an interruption."""

from __future__ import annotations

import copy
import random
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import psutil  # type: ignore[import-untyped]
import pytest

from tests.chaos import faults, rounds
from tests.chaos.__main__ import Ledger
from tests.chaos.repetition import differences, said_by

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT: dict[str, Any] = {
    "verdict": "FAIL",
    "cells": [{"target": "armv5", "suite": "life", "verdict": "FAIL", "passed": 7, "failed": 1, "skipped": 2}],
    "findings": [
        {"id": "a", "targets": ["armv5"], "scope": "machine", "known": "", "witnesses": [{"test": "life/test_it"}]}
    ],
}


def test_equal_checks_do_not_differ() -> None:
    assert differences(said_by(DOCUMENT), said_by(copy.deepcopy(DOCUMENT))) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda one: one.update(verdict="PASS"), "verdict PASS instead of FAIL"),
        (lambda one: one["cells"][0].update(passed=6), "armv5/life"),
        (lambda one: one["cells"][0].update(skipped=3), "armv5/life"),
        (lambda one: one["findings"][0].update(scope="everywhere"), "a: "),
        (lambda one: one["findings"][0].update(witnesses=[{"test": "life/test_other"}]), "a: "),
        (lambda one: one["findings"].clear(), "a: None"),
    ],
)
def test_each_difference_between_two_checks_is_named(change: Any, named: str) -> None:
    other = copy.deepcopy(DOCUMENT)
    change(other)
    (found,) = differences(said_by(DOCUMENT), said_by(other))
    assert named in found


def test_each_kind_of_fault_has_its_turn_and_a_seed_has_its_order() -> None:
    kinds = list(faults.LIVE)
    orders = [[rounds.in_turn(kinds, seed, number) for number in range(2 * len(kinds))] for seed in (1, 1, 2)]
    assert Counter(orders[0]) == dict.fromkeys(kinds, 2)
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("fault", ["cell's process killed", "cell's process told to end"])
def test_a_victim_that_ends_while_it_is_looked_for_ends_no_campaign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    with subprocess.Popen(["sleep", "60"]) as ended:
        found = psutil.Process(ended.pid)
        ended.kill()
    monkeypatch.setattr(faults, "processes_of", lambda *_, **__: [found])
    faults.LIVE[fault](ended, tmp_path, random.Random(1))


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", 1)
    ledger.add(what="live", number=1, fault="guest killed", code=6, lies=())
    again = Ledger(tmp_path / "ledger", 1)
    assert again.left("live", 3) == [0, 2]
    assert again.left("other", 2) == [0, 1]
    with pytest.raises(click.UsageError, match="another seed"):
        Ledger(tmp_path / "ledger", 2)
