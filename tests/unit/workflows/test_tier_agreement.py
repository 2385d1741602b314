"""Agreement between the tiers, and explanations of differences."""

from __future__ import annotations

import msgspec
import pytest

from harness.core.strict_toml import read_toml
from harness.isa import rules
from harness.plan.catalog import Catalog
from harness.workflows.measure.tier_agreement import (
    DIFFERENCES,
    AgreementRow,
    TierDifference,
    TierDifferenceTable,
    explain,
    summary,
    unexplained,
)

CATALOG = Catalog()
ROW = AgreementRow(
    target="armv5-kernel",
    policy="linux-arm-0",
    access="ldr",
    access_class="word",
    offsets=[1, 2, 3],
    user="rotated",
    kernel="done",
    prescribed="rotated",
    reason="QEMU does not rotate",
)


def differing(**change: object) -> AgreementRow:
    return msgspec.structs.replace(ROW, **change)


def test_two_prescribed_outcomes_agree_without_a_reason() -> None:
    row = differing(kernel="rotated", reason="")
    assert row.agrees
    assert unexplained([row]) == []


def test_a_difference_with_a_reason_is_explained_but_not_an_agreement() -> None:
    assert not ROW.agrees
    assert unexplained([ROW]) == []


@pytest.mark.parametrize(
    "row",
    [
        differing(reason=""),
        # Both tiers agree, and both are wrong.
        differing(user="done", reason=""),
        # The model differs from the prescribed outcome. No explanation of the kernel's answer excuses that.
        differing(user="signal"),
    ],
)
def test_an_unexplained_difference_is_reported(row: AgreementRow) -> None:
    assert unexplained([row]) == [row]


@pytest.mark.parametrize(
    ("change", "explained"),
    [
        ({}, True),
        ({"target": "armv6-kernel"}, False),
        ({"policy": "linux-arm-2"}, False),
        ({"kind": "half"}, False),
        ({"user": "signal"}, False),
        ({"kernel": "forever"}, False),
    ],
)
def test_a_reason_explains_only_what_it_names(change: dict[str, str], explained: bool) -> None:
    listed = TierDifference(
        targets=["armv5-*"], policies=["linux-arm-0"], classes=["word"], user=["rotated"], kernel="done", reason="so"
    )
    observed = {"target": "armv5-kernel", "policy": "linux-arm-0", "kind": "word", "user": "rotated", "kernel": "done"}
    assert bool(explain([listed], **{**observed, **change})) is explained  # type: ignore[arg-type]


def test_every_listed_difference_names_an_existing_machine_and_a_reason() -> None:
    systems = {name for name, target in CATALOG.targets.items() if target.emulator.has_kernel}
    for one in read_toml(DIFFERENCES, TierDifferenceTable).differences:
        assert set(one.targets) <= systems
        assert set(one.policies) <= set(CATALOG.policies)
        assert len(one.reason) > 40


def test_a_kernel_with_a_switch_is_tested_in_every_mode_and_any_other_once() -> None:
    modes = [policy.mode for policy in rules.settings(CATALOG.policies, CATALOG.targets["armv6-kernel"])]
    assert modes == [0, 1, 2, 3, 4, 5]
    assert [one.name for one in rules.settings(CATALOG.policies, CATALOG.targets["sparc64-kernel"])] == ["linux-sparc"]


def test_the_table_has_one_line_for_equal_descriptions() -> None:
    lines = summary([ROW, differing(access="ldr-postindexed"), differing(offsets=[0], kernel="rotated")])
    assert len(lines) == 4
    assert "| `ldr ldr-postindexed` | 1,2,3 | rotated | **done** | rotated |" in lines[2]
    assert "| `ldr` | 0 | rotated | rotated | rotated |" in lines[3]
