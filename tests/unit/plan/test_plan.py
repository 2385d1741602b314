"""A plan has the requested cells, the canary before the other cells of its target, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import json_codec
from harness.core.errors import NothingSelectedError, UsageError
from harness.core.model import TIERS
from harness.plan.catalog import Catalog
from harness.plan.plan import Job, Plan, make_jobs, make_plan, read_plan

if TYPE_CHECKING:
    from pathlib import Path

CATALOG = Catalog()


def planned(targets: list[str], suites: list[str], *, tier: str = "quick") -> Plan:
    return make_plan(CATALOG, targets=targets, server="redis-7.0.15", suites=suites, tier=tier)


def jobs(targets: list[str], suites: list[str], *, tier: str = "quick") -> list[Job]:
    return make_jobs(CATALOG, planned(targets, suites, tier=tier), tier)


@given(
    targets=st.lists(st.sampled_from(sorted(CATALOG.targets)), min_size=1),
    suites=st.lists(st.sampled_from(sorted(CATALOG.suites)), min_size=1),
)
def test_every_cell_is_planned_once_and_each_target_starts_with_its_canary(
    targets: list[str], suites: list[str]
) -> None:
    plan = planned(targets, suites)
    assert {(t, s) for t in targets for s in {"canary", *suites}} == {(c.target, c.suite) for c in plan.cells}
    assert len({cell.identity for cell in plan.cells}) == len(plan.cells)
    for name in set(targets):
        assert next(cell.suite for cell in plan.cells if cell.target == name) == "canary"


def test_requesting_one_suite_does_not_omit_the_canary() -> None:
    assert [cell.identity for cell in planned(["armv5"], ["bitops"]).cells] == [
        "armv5/redis-7.0.15/canary",
        "armv5/redis-7.0.15/bitops",
    ]


def test_the_order_of_the_request_does_not_change_the_plan() -> None:
    assert planned(["sparc64", "armv5"], ["protocol", "bitops"]) == planned(
        ["armv5", "sparc64"], ["bitops", "protocol"]
    )


def test_unknown_words_and_empty_globs_have_different_errors() -> None:
    with pytest.raises(UsageError, match=r"unknown suite 'bitop'.*\n.*did you mean 'bitops'"):
        planned(["armv5"], ["bitop"])
    with pytest.raises(NothingSelectedError, match="no suite matches"):
        planned(["armv5"], ["zzz*"])


def test_a_tier_runs_its_suites_and_those_of_lesser_tiers() -> None:
    by_tier = {tier: set(planned(["armv5"], [], tier=tier).suites) for tier in TIERS}
    assert {"canary", "bitops", "protocol"} <= by_tier["quick"] < by_tier["full"] <= by_tier["thorough"]
    assert by_tier["kernel"] == by_tier["quick"]
    assert by_tier["thorough"] == set(CATALOG.suites)


def test_a_requested_suite_runs_in_any_tier() -> None:
    greater = next(name for name, suite in CATALOG.suites.items() if suite.tier != "quick")
    assert planned(["armv5"], [greater]).suites == ["canary", greater]


@given(
    targets=st.lists(st.sampled_from(sorted(CATALOG.targets)), min_size=1),
    suites=st.lists(st.sampled_from(sorted(CATALOG.suites)), min_size=1),
    tier=st.sampled_from(sorted(TIERS)),
)
def test_the_jobs_together_run_every_planned_cell_once_and_pairs_in_one_job(
    targets: list[str], suites: list[str], tier: str
) -> None:
    plan = planned(targets, suites, tier=tier)
    spread = make_jobs(CATALOG, plan, tier)
    done = [(target, suite) for job in spread for target in job.targets for suite in job.suites if suite != "canary"]
    assert sorted(done) == sorted((c.target, c.suite) for c in plan.cells if c.suite != "canary")
    assert {cell.target for cell in plan.cells} == {target for job in spread for target in job.targets}
    assert len({job.name for job in spread}) == len(spread)
    peers = [name for name in plan.targets if not CATALOG.targets[name].emulator.has_kernel]
    for job in spread:
        assert job.suites
        least = [CATALOG.suites[suite].multi_target_tier for suite in job.suites]
        if any(one and TIERS[one] <= TIERS[tier] for one in least) and job.targets[0] in peers:
            assert job.targets == peers


def test_the_suites_that_pair_targets_are_those_whose_tests_use_others() -> None:
    # In suites/conftest.py, a writer is another target from the full tier on, and a companion always is.
    least = {"writer": "full", "companion": "quick"}
    asking: dict[str, str] = {}
    for name, suite in CATALOG.suites.items():
        text = "".join(file.read_text("utf-8") for file in suite.path.glob("*.py"))
        for word in re.findall(r"def test_\w+\([^)]*\b(writer|companion): ", text):
            asking[name] = least[word]
    assert {
        name: suite.multi_target_tier for name, suite in CATALOG.suites.items() if suite.multi_target_tier
    } == asking


def test_a_suite_that_pairs_nothing_in_a_tier_runs_with_the_others() -> None:
    assert [job.name for job in jobs(["armv5", "armv6"], ["persistence"])] == ["armv5", "armv6"]
    assert [job.name for job in jobs(["armv5", "armv6"], ["persistence"], tier="full")] == ["together"]
    assert [job.name for job in jobs(["armv5"], ["persistence"], tier="full")] == ["armv5"]


def test_a_part_of_a_plan_is_the_plan_of_that_part_and_keeps_the_canary() -> None:
    whole = planned(["armv5", "sparc64"], ["bitops", "protocol"])
    assert whole.only(["protocol"]) == planned(["armv5", "sparc64"], ["protocol"])
    assert whole.only([]) == planned(["armv5", "sparc64"], ["canary"])


def test_a_plan_is_read_back_and_anything_else_is_refused(tmp_path: Path) -> None:
    plan = planned(["armv5"], ["bitops"])
    (tmp_path / "plan").write_bytes(json_codec.pretty(plan))
    read = read_plan(tmp_path / "plan")
    assert (read.cells, read.tier, read.toolchain, read.settings) == (plan.cells, "", "", None)
    # A plan without cells would demand nothing.
    for wrong in (b"{}", b"", b'{"cells": []}', b'{"cells": [{"target": "armv5"}]}'):
        (tmp_path / "plan").write_bytes(wrong)
        with pytest.raises(UsageError, match="not a plan"):
            read_plan(tmp_path / "plan")
