"""A real kernel finds what the user tier finds, in the same places, and the tiers agree on each access."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.analysis import disassembly
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.isa import access_table, rules
from harness.plan.catalog import Catalog
from harness.record import cell_events, event_log, fault_log, kernel_faults
from harness.run import canary
from harness.workflows.mutation_testing import mutations
from tests.end_to_end.servers.test_upstream_suite import planted_tree
from tests.end_to_end.support.machines import REQUIRED, beyond, runner, sampled
from tests.end_to_end.support.plumb_runs import PLUMB, document, processes_of, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

COMPARE_AND_SWAP = mutations.Edit(
    file="src/bitops.c",
    anchor="    while((unsigned long)p & 3 && count) {",
    replacement="""    uint32_t expected = 0;
    if (count >= 4) __atomic_compare_exchange_n((uint32_t*)p, &expected, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    while((unsigned long)p & 3 && count) {""",
)
"""BITCOUNT compares and swaps a word at any address without a change. Machines that allow misaligned plain accesses
refuse this too."""


def on_kernel(finding: dict[str, Any]) -> list[dict[str, Any]]:
    """The witnesses of a finding that come from a real kernel."""
    return [witness for witness in finding["witnesses"] if witness["kernel"]]


@pytest.mark.slow(
    instead="test_redis_3_2_6_dies_on_a_real_kernel_where_it_dies_under_the_user_tier; tests/unit/plan/test_plan.py"
)
def test_on_a_real_kernel_suites_that_need_host_processes_are_skipped_and_others_find_nothing_new(
    tmp_path: Path,
) -> None:
    """`limits` starts a sentinel from its file, and expects replies that only ARMv5 gives."""
    words = ["--target", "armv5-kernel", "--suite", "network", "--suite", "limits", "--seed", 1]
    finished = run("check", "--tier", "kernel", *words, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.PASS, "PASS"), finished.stdout[-3000:]
    cells = {cell["suite"]: cell for cell in read["cells"]}
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        "canary": "PASS",
        "limits": "PASS",
        "network": "SKIP",
    }
    assert "processes of the host" in cells["network"]["reason"]
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("user", "signal"), [("armv5", "SIGBUS, si_code BUS_ADRALN (1)"), beyond("mips", "SIGBUS, si_code SI_KERNEL (128)")]
)
def test_redis_3_2_6_dies_on_a_real_kernel_where_it_dies_under_the_user_tier(
    user: str, signal: str, tmp_path: Path
) -> None:
    real = f"{user}-kernel"
    words = ["--target", real, "--target", user, "--suite", "bitops", "--server", "redis-3.2.6"]
    words += [f"--test={name}" for name in ("moved_the_string", "range_at_every", "numbers_are")]
    finished = run("check", "--tier", "kernel", *words, "--seed", 1, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    found = {finding["id"]: finding for finding in read["findings"]}
    for name in ("alignment-bitopCommand-load", "alignment-redisBitpos-load", "alignment-dictGenHashFunction-load"):
        places: dict[str, set[tuple[str, int]]] = {}
        for witness in found[name]["witnesses"]:
            if witness["detector"] == "signal":
                places.setdefault(witness["target"], set()).add((witness["file"], witness["line"]))
        assert places[user] == places[real], f"{name}: {places}"
        assert {witness["access"] for witness in found[name]["witnesses"]} != {""}
        signals = {witness["kernel"].partition(", si_addr")[0] for witness in on_kernel(found[name])}
        assert signals == {signal}
    recorded = event_log.read_events(tmp_path / "run" / real / "bitops" / "events.jsonl")
    counted = kernel_faults.counted(recorded)
    faults = sum(len(on_kernel(finding)) for finding in found.values())
    if user == "mips":
        # The kernel counts its fixups, and makes none when they are off.
        assert counted is None
        assert real not in read["kernel_counters"]
    else:
        assert counted is not None
        assert counted.user >= faults > 0
        # In mode 4 the kernel repairs nothing.
        assert counted == cell_events.Counters(user=counted.user, skipped=0, half=0, word=0, dword=0, multi=0)
        assert read["kernel_counters"][real]["user"] == counted.user
    assert {cell["verdict"] for cell in read["cells"] if cell["suite"] == "canary"} == {"PASS"}
    assert processes_of(tmp_path) == []
    reproducer = tmp_path / "run" / "reproducers" / "alignment-redisBitpos-load.json"
    again: dict[str, Any] = json.loads(reproducer.read_text("utf-8"))
    again["target"] = real
    reproducer.write_text(json.dumps(again), "utf-8")
    assert run("replay", reproducer, "--trust", program=PLUMB).returncode == ExitCode.FINDINGS


def call_chains(finding: dict[str, Any]) -> dict[str, set[tuple[str, ...]]]:
    """Target -> the call chains (functions and lines) of a finding's faults there, innermost first."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for witness in finding["witnesses"]:
        if witness["detector"] == "signal":
            chain = (f"{frame['function']} {frame['file']}:{frame['line']}" for frame in witness["backtrace"])
            found.setdefault(witness["target"], set()).add(tuple(chain))
    return found


@pytest.mark.slow(
    instead="the other tests of test_kernel_tier.py: redis-3.2.6 dies on Versatile as under the user tier"
)
@pytest.mark.parametrize(
    ("user", "signal"),
    [
        beyond("riscv64", "SIGBUS, si_code BUS_ADRALN (1)"),
        beyond("s390x", "SIGILL, si_code ILL_ILLOPN (2)"),
        beyond("powerpc", "SIGBUS, si_code BUS_ADRALN (1)"),
        beyond("powerpc64le", "SIGBUS, si_code BUS_ADRALN (1)"),
        beyond("aarch64", "SIGBUS, si_code BUS_ADRALN (1)"),
    ],
)
def test_a_misaligned_compare_and_swap_kills_on_a_real_kernel_where_it_kills_under_the_user_tier(
    user: str, signal: str, tmp_path: Path
) -> None:
    """redis-3.2.6 does not die on these machines, because they make its plain accesses at any address."""
    real = f"{user}-kernel"
    words = ["--target", real, "--target", user, "--suite", "bitops", "--server", planted_tree(COMPARE_AND_SWAP)]
    words += ["--test=moved_the_string", "--seed", 1, "--json", "--run", tmp_path / "run"]
    finished = run("check", "--tier", "kernel", *words)
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    # On RISC-V the user tier also finds the release's own BITOP, which the firmware repairs in the kernel tier.
    (finding,) = (one for one in read["findings"] if real in one["targets"])
    assert finding["kind"] == "alignment"
    chains = call_chains(finding)
    assert chains[user] == chains[real], chains
    # On AArch64 a function of libgcc compares and swaps.
    assert all(any(frame.startswith("redisPopcount src/bitops.c:") for frame in chain[:2]) for chain in chains[real])
    assert {witness["kernel"].partition(", si_addr")[0] for witness in on_kernel(finding)} == {signal}
    assert "" not in {witness["access"] for witness in finding["witnesses"]}
    assert {cell["verdict"] for cell in read["cells"] if cell["suite"] == "canary"} == {"PASS"}
    assert processes_of(tmp_path) == []


@pytest.mark.slow(
    instead="test_a_real_kernel_does_what_the_model_prescribes and test_the_emulator_does_what_is_prescribed"
)
def test_both_tiers_agree_on_every_access_of_armv5_in_every_mode() -> None:
    """They include the historic case: summing doubles through a misaligned pointer (VLDR) is fatal even in mode 2."""
    finished = run("compare-tiers", "--target", "armv5-kernel", "--json")
    rows = json.loads(finished.stdout)
    strange = [row for row in rows if row["user"] != row["kernel"] and not row["reason"]]
    assert (finished.returncode, strange) == (ExitCode.PASS, [])
    target = Catalog().targets["armv5-kernel"]
    assert {row["access"] for row in rows} == {one.name for one in access_table.plain_accesses(target)}
    historic = [row for row in rows if (row["policy"], row["access"]) == ("linux-arm-2", "vldr-double")]
    dying = [row for row in historic if 2 in row["offsets"]]
    assert [(row["user"], row["kernel"]) for row in dying] == [("signal", "signal")]
    # Only modes 0 and 1 differ, because QEMU's processor differs from the real one.
    assert {row["policy"] for row in rows if row["reason"]} == {"linux-arm-0", "linux-arm-1"}


@pytest.mark.slow(instead="test_a_real_kernel_does_what_the_model_prescribes, for the kernel of ARMv5")
@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        beyond("riscv64-kernel", {"at-pc"}),
        beyond("mips-kernel", {"unaddressed"}),
        *(beyond(f"{machine}-kernel", set()) for machine in ("aarch64", "s390x", "powerpc", "powerpc64le")),
    ],
)
def test_other_kernels_differ_in_what_their_signal_tells_alone(name: str, outcomes: set[str]) -> None:
    finished = run("compare-tiers", "--target", name, "--json")
    rows = json.loads(finished.stdout)
    assert finished.returncode == ExitCode.PASS, finished.stdout[-2000:]
    different = [row for row in rows if row["user"] != row["kernel"]]
    assert {(row["user"], row["kernel"]) for row in different} == {("signal", one) for one in outcomes}
    assert {row["policy"] for row in rows} == {
        policy.name for policy in rules.settings(Catalog().policies, Catalog().targets[name])
    }


@pytest.mark.parametrize("name", sampled(*REQUIRED, "mips", "riscv64", "s390x", "powerpc", "powerpc64le"))
def test_an_instructions_decoded_access_is_the_access_that_the_emulator_recorded(name: str, tmp_path: Path) -> None:
    """The kernel tier knows only the instruction. The user tier also has the emulator's record."""
    catalog = Catalog()
    emulated = runner(name, rules.AUDIT)
    tools = catalog.toolchain_of(emulated.target)
    program = canary.compile_canary(Cache.default(), emulated.target, tools)
    log = tmp_path / "faults.jsonl"
    canary.performed(program, emulated, log, tools.triple)
    records = [fault for fault in fault_log.read_faults(log) if fault.event == "access"]
    assert len(records) > 8
    for record in records:
        text = disassembly.disassemble(record, emulated.target.emulator.qemu)
        classified = disassembly.classify(text, emulated.target.emulator.qemu)
        assert classified[:2] == (record.access, record.access_class), text
        # QEMU may access a pair of registers at once; the required alignment is the same.
        assert classified[2] in {record.access_bytes, 4}, text
        if name == "riscv64":
            # The kernel reports the instruction's address. The data address follows from the registers.
            untold = msgspec.structs.replace(record, access_class="", address=record.pc)
            assert disassembly.access_of(untold, "riscv64") == disassembly.access_of(record), text
