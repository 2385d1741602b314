"""A machine's clocks and counters are converted to the cost of an access, of a fixup, and of a server."""

from __future__ import annotations

from types import SimpleNamespace

import hiredis
import msgspec
import pytest

from harness.core.errors import InfrastructureError
from harness.core.strict_toml import ROOT
from harness.isa import access_table
from harness.plan.catalog import Catalog
from harness.record.kernel_faults import read_counters
from harness.workflows.measure import fixup_cost_run
from harness.workflows.measure.fixup_cost import (
    AccessCost,
    FixupCost,
    ServerFixupCost,
    access_cost,
    price,
    repaired,
    summary,
    taxed,
)
from tests.support import fakes

CATALOG = Catalog()
LDM = next(one for one in access_table.of_target(CATALOG.targets["armv5-kernel"]).accesses if one.name == "ldm")
COUNTERS = """User:		{user}
System:		0 (0x0)
Skipped:	0
Half:		1
Word:		2
DWord:		0
Multi:		{multi}
User faults:	2 (fixup)
"""


def cost(nanoseconds: list[int], fixups: dict[str, int] | None) -> AccessCost:
    return access_cost("armv5-kernel", LDM, 1, "kernel", nanoseconds=nanoseconds, count=100, rounds=2, fixups=fixups)


LDM_COST = cost([750, 950, 1550, 23750], {"multi": 300})
STM_COST = msgspec.structs.replace(LDM_COST, access="stm", misaligned=240)
ROW = ServerFixupCost(
    target="armv5-kernel",
    server="redis-3.2.6",
    optimisation="O2",
    workload="BITOP",
    build="same",
    instructions=10_000,
    fixups={"multi": 10},
    counted_on="armv5-kernel",
)
UNCOUNTED = msgspec.structs.replace(ROW, target="armv7-on-arm64-kernel", fixups=None, counted_on="")


def test_the_cost_of_an_access_is_the_difference_from_an_empty_call() -> None:
    assert (LDM_COST.aligned, LDM_COST.copied, LDM_COST.misaligned) == (2, 8, 230)
    assert (LDM_COST.fixup, LDM_COST.times_aligned) == (228, 229)
    assert (LDM_COST.made, LDM_COST.fixups) == (300, 300)


def test_a_clock_of_a_microsecond_is_fine_enough_for_single_instructions() -> None:
    # The clock is read twice for each term of the difference, and each reading is up to a microsecond early.
    assert 2 * 1000 / fixup_cost_run.COUNT < 0.5


@pytest.mark.parametrize("fixups", [{}, {"multi": 299}, {"word": 300}, {"multi": 300, "skipped": 1}])
def test_a_kernel_that_repaired_a_different_number_of_accesses_is_an_error(fixups: dict[str, int]) -> None:
    with pytest.raises(InfrastructureError, match="of 300 accesses ldm"):
        cost([750, 950, 1550, 23750], fixups)


def test_a_kernel_without_counters_is_accepted() -> None:
    assert cost([750, 950, 1550, 23750], None).fixups is None


def test_the_kernels_counters_are_read_by_class_and_unchanged_ones_are_omitted() -> None:
    before, after = (read_counters(COUNTERS.format(user=user, multi=multi)) for user, multi in ((3, 0), (15, 12)))
    assert repaired(before, after) == {"multi": 12}
    assert repaired(after, after) == {}


def test_a_class_costs_the_mean_of_its_repaired_accesses_on_that_target() -> None:
    free = msgspec.structs.replace(LDM_COST, repairer="processor", misaligned=2)
    elsewhere = msgspec.structs.replace(LDM_COST, target="armv6-kernel", misaligned=1000)
    costs = [LDM_COST, STM_COST, free, elsewhere]
    assert price("armv5-kernel", "multi", costs) == 233
    assert price("armv5-kernel", "word", costs) == 0


def test_a_servers_cost_is_the_sum_over_classes() -> None:
    half = msgspec.structs.replace(LDM_COST, access_class="half", misaligned=102)
    row = msgspec.structs.replace(ROW, fixups={"multi": 10, "half": 3})
    paid = taxed(row, [row], [LDM_COST, STM_COST, half])
    assert (paid.tax, paid.share) == (2330 + 300, 0.263)


def test_a_server_without_fixups_has_no_cost() -> None:
    row = msgspec.structs.replace(ROW, fixups={})
    assert (taxed(row, [row], [LDM_COST]).tax, taxed(row, [row], []).share) == (0, 0)


def test_without_counters_the_count_of_the_same_binary_is_used_with_the_kernels_own_costs() -> None:
    costs = [LDM_COST, msgspec.structs.replace(LDM_COST, target=UNCOUNTED.target, misaligned=402)]
    paid = taxed(UNCOUNTED, [UNCOUNTED, ROW], costs)
    assert (paid.fixups, paid.counted_on, paid.tax) == ({"multi": 10}, "armv5-kernel", 4000)


@pytest.mark.parametrize("change", [{"build": "another"}, {"workload": "SET"}])
def test_the_count_of_another_binary_or_workload_is_not_used(change: dict[str, str]) -> None:
    paid = taxed(UNCOUNTED, [UNCOUNTED, msgspec.structs.replace(ROW, **change)], [LDM_COST])
    assert (paid.fixups, paid.tax) == (None, None)
    assert "not counted | nobody" in summary(FixupCost(accesses=[], fatal={}, servers=[paid]))[-1]


@pytest.mark.parametrize(
    ("target", "name", "expected"),
    [
        ("armv5-kernel", "ldr", (1, "kernel")),
        ("armv5-kernel", "vldr-double", None),
        ("armv6-kernel", "ldr", (1, "processor")),
        ("armv7-kernel", "ldrd", (1, "kernel")),
        ("armv7-kernel", "ldrex", None),
        ("armv7-on-arm64-kernel", "stm", (1, "kernel")),
        ("armv7-on-arm64-kernel", "strh", (1, "processor")),
        ("aarch64-kernel", "ldp", (1, "processor")),
        ("aarch64-kernel", "ldar-x", None),
        ("sparc64-kernel", "ldx", None),
    ],
)
def test_a_misaligned_access_is_attributed_to_processor_firmware_or_kernel(
    target: str, name: str, expected: tuple[int, str] | None
) -> None:
    found = CATALOG.targets[target]
    access = next(one for one in access_table.of_target(found).accesses if one.name == name)
    assert fixup_cost_run.misalignment(found, CATALOG.policies[found.kernel], access) == expected


def test_the_load_program_is_sent_to_the_port_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def run(_machine: object, _target: object, words: list[str]) -> str:
        started.append(words)
        return "17"

    monkeypatch.setattr(fixup_cost_run, "run_inside", run)
    runner = fakes.unemulated(CATALOG.targets["armv5-kernel"])
    guest = SimpleNamespace(port=6381, pid=42, runner=runner)
    machine = SimpleNamespace(write=lambda *_: None)
    assert fixup_cost_run.send_load(guest, machine, b"", b"", 3) == 17  # type: ignore[arg-type]
    assert started == [[fixup_cost_run.LOAD, "6381", "42", "/run/requests", "/run/replies", "3"]]


def test_a_workload_is_whole_batches_with_a_reply_to_each_command() -> None:
    assert fixup_cost_run.COMMANDS % fixup_cost_run.BATCH == 0
    for workload in fixup_cost_run.workloads():
        assert workload.requests.count(b"*") == fixup_cost_run.BATCH, workload.name
        reader = hiredis.Reader()
        reader.feed(workload.replies)
        assert [isinstance(reader.gets(), (bytes, int)) for _ in range(fixup_cost_run.BATCH)] == [
            True
        ] * fixup_cost_run.BATCH
        assert reader.gets() is False, workload.name


def test_the_tables_group_equal_accesses_and_list_fatal_ones() -> None:
    again = msgspec.structs.replace(LDM_COST, access="ldm-again")
    paid = taxed(ROW, [ROW], [LDM_COST])
    lines = summary(
        FixupCost(accesses=[LDM_COST, again, STM_COST], fatal={"armv5-kernel": ["vldr-double"]}, servers=[paid])
    )
    assert "| armv5-kernel | ldm ldm-again | 1 | kernel | 2 | 8 | 230 | 228 | 229 | 28.8 |" in lines
    assert "armv5-kernel: SIGBUS, never fixed up: vldr-double" in lines
    assert "| armv5-kernel | redis-3.2.6 -O2 | BITOP | 10 multi | armv5-kernel | 10,000 | 2,280 | 22.8% |" in lines


def test_the_page_has_the_current_tables() -> None:
    page = (ROOT / "docs" / "TAX.md").read_text("utf-8")
    paid = taxed(ROW, [ROW], [LDM_COST])
    heads = [
        line
        for line in summary(FixupCost(accesses=[LDM_COST], fatal={}, servers=[paid]))
        if line.startswith("| target")
    ]
    assert len(heads) == 2
    for head in heads:
        assert head in page
    for target in CATALOG.targets.values():
        assert not target.emulator.has_kernel or f"{target.name}" in page
