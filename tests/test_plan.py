"""A plan has the asked cells, the canary before any of its target, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import NothingSelectedError, UsageError
from harness.load import Catalog
from harness.plan import TIERS, Plan, make_plan

CATALOG = Catalog()


def planned(targets: list[str], suites: list[str], *, tier: str = "quick") -> Plan:
    return make_plan(CATALOG, targets=targets, server="redis-7.0.15", suites=suites, tier=tier)


@given(
    targets=st.lists(st.sampled_from(sorted(CATALOG.targets)), min_size=1),
    suites=st.lists(st.sampled_from(sorted(CATALOG.suites)), min_size=1),
)
@settings(deadline=None)
def test_every_cell_is_planned_once_and_each_target_starts_with_its_canary(
    targets: list[str], suites: list[str]
) -> None:
    plan = planned(targets, suites)
    assert {(t, s) for t in targets for s in {"canary", *suites}} == {(c.target, c.suite) for c in plan.cells}
    assert len({cell.identity for cell in plan.cells}) == len(plan.cells)
    for name in set(targets):
        assert next(cell.suite for cell in plan.cells if cell.target == name) == "canary"


def test_asking_for_one_suite_does_not_leave_the_canary_out() -> None:
    assert [cell.identity for cell in planned(["armv5"], ["bitops"]).cells] == [
        "armv5/redis-7.0.15/canary",
        "armv5/redis-7.0.15/bitops",
    ]


def test_the_order_of_the_request_does_not_change_the_plan() -> None:
    assert planned(["sparc64", "armv5"], ["protocol", "bitops"]) == planned(
        ["armv5", "sparc64"], ["bitops", "protocol"]
    )


def test_unknown_words_and_empty_globs_are_told_apart() -> None:
    with pytest.raises(UsageError, match=r"unknown suite 'bitop'.*\n.*did you mean 'bitops'"):
        planned(["armv5"], ["bitop"])
    with pytest.raises(NothingSelectedError, match="no suite matches"):
        planned(["armv5"], ["zzz*"])


def test_a_tier_runs_its_suites_and_those_of_lesser_tiers() -> None:
    by_tier = {tier: set(planned(["armv5"], [], tier=tier).suites) for tier in TIERS}
    assert {"canary", "bitops", "protocol"} <= by_tier["quick"] < by_tier["full"] <= by_tier["thorough"]
    assert by_tier["kernel"] == by_tier["quick"]
    assert by_tier["thorough"] == set(CATALOG.suites)


def test_a_suite_that_is_asked_for_runs_in_any_tier() -> None:
    greater = next(name for name, suite in CATALOG.suites.items() if suite.tier != "quick")
    assert planned(["armv5"], [greater]).suites == ["canary", greater]
