"""The rules of CPUs and kernels agree with their documentation, which docs/explanation.md cites."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.core.finding import Access
from harness.core.target_model import EmulatorSpec
from harness.isa.rules import (
    CLASSES,
    applies,
    audit_name,
    audited,
    fate,
    forbidden,
    policy_for,
    prescribed,
    recorded_policies,
    shown,
    signal_of,
)
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from harness.core.target_model import AccessClass, Direction

CATALOG = Catalog()
UNIT: dict[AccessClass, int] = {"half": 2, "word": 4, "dword": 8, "multi": 4, "vfp": 8, "float": 4, "double": 8}


def access(kind: AccessClass, modulo: int, *, direction: Direction = "load", size: int = 0) -> Access:
    return Access(direction=direction, access_class=kind, size_bytes=size or UNIT.get(kind, 4), modulo=modulo)


def outcome(target: str, policy: str, kind: AccessClass, modulo: int, *, direction: Direction = "load") -> str:
    machine = CATALOG.targets[target]
    chosen = policy_for(CATALOG.policies, policy, machine)
    return prescribed(machine, chosen, access(kind, modulo, direction=direction))


@pytest.mark.parametrize(
    ("target", "policy", "kind", "modulo", "expected"),
    [
        # Linux arch/arm/mm/alignment.c: mode 2 repairs the instructions that its handlers decode. These exclude VFP.
        ("armv5", "linux-arm-2", "word", 1, "done"),
        ("armv5", "linux-arm-2", "vfp", 2, "signal"),
        ("armv6", "linux-arm-2", "dword", 1, "done"),
        ("armv6", "linux-arm-2", "exclusive", 1, "signal"),
        ("armv5", "linux-arm-4", "word", 1, "signal"),
        ("armv6", "linux-arm-4", "word", 1, "done"),
        ("armv6", "linux-arm-4", "dword", 2, "signal"),
        ("armv6", "linux-arm-4", "dword", 4, "done"),
        # Modes 0 and 1 rotate on ARMv5. From ARMv6 on they are replaced by 2 and 3: safe_usermode().
        ("armv5", "linux-arm-0", "word", 3, "rotated"),
        ("armv5", "linux-arm-0", "multi", 3, "truncated"),
        ("armv6", "linux-arm-0", "multi", 3, "done"),
        ("armv6", "linux-arm-0", "vfp", 2, "signal"),
        # arch/arm64/kernel/compat_alignment.c repairs doubles and multiples. The hardware does the other accesses.
        ("armv7", "linux-arm64-compat", "multi", 1, "done"),
        ("armv7", "linux-arm64-compat", "word", 1, "done"),
        ("armv7", "linux-arm64-compat", "vfp", 2, "signal"),
        ("aarch64", "linux-arm64", "dword", 1, "done"),
        ("aarch64", "linux-arm64", "acquire", 1, "signal"),
        ("sparc64", "linux-sparc", "half", 1, "signal"),
        ("sparc64", "linux-sparc", "double", 4, "done"),
        ("sparc64", "linux-sparc", "double", 2, "signal"),
        ("mips", "linux-mips", "word", 1, "done"),
        ("mips", "linux-mips", "linked", 1, "signal"),
        ("mips", "linux-mips-nofixade", "word", 1, "signal"),
        ("mips64", "linux-mips", "dword", 4, "done"),
        # arch/alpha/kernel/traps.c, do_entUnaUser(): SIGBUS for an access without a case; for all with UAC_SIGBUS.
        ("alpha", "linux-alpha", "double", 4, "done"),
        ("alpha", "linux-alpha", "linked", 2, "signal"),
        ("alpha", "linux-alpha-sigbus", "half", 1, "signal"),
        # arch/parisc/kernel/unaligned.c: "undefined, but lets kill them".
        ("hppa", "linux-parisc", "word", 2, "done"),
        ("hppa", "linux-parisc", "swap", 2, "signal"),
        ("hppa", "linux-parisc-sigbus", "double", 4, "signal"),
        # arch/loongarch/kernel/unaligned.c: SIGBUS for an access without a case in emulate_load_store_insn().
        ("loongarch64", "signal", "word", 2, "signal"),
        ("loongarch64", "linux-loongarch", "double", 4, "done"),
        ("loongarch64", "linux-loongarch", "linked", 2, "signal"),
        ("riscv64", "signal", "word", 2, "signal"),
        ("riscv64", "sbi-riscv", "word", 2, "done"),
        ("riscv64", "sbi-riscv", "cas", 2, "signal"),
        # The 7450 loads integers anywhere, and floating point at words. fix_alignment() repairs all but LARX and STCX.
        ("powerpc", "signal", "word", 1, "done"),
        ("powerpc", "signal", "double", 4, "done"),
        ("powerpc", "signal", "double", 2, "signal"),
        ("powerpc", "linux-powerpc", "double", 2, "done"),
        ("powerpc", "linux-powerpc", "linked", 2, "signal"),
        ("powerpc64", "signal", "double", 2, "done"),
        ("powerpc64", "signal", "linked", 2, "signal"),
        ("s390x", "signal", "dword", 1, "done"),
        ("s390x", "signal", "cas", 2, "signal"),
        ("m68k", "signal", "word", 1, "done"),
        # -xmemalign: i repairs, s does not. With 4, a compiler splits accesses wider than 4 bytes, but never an atomic.
        ("sparc64", "solaris-8i", "dword", 4, "done"),
        ("sparc64", "solaris-8s", "dword", 4, "signal"),
        ("sparc64", "solaris-4s", "dword", 4, "done"),
        ("sparc64", "solaris-4s", "dword", 2, "signal"),
        ("sparc64", "solaris-1s", "word", 1, "done"),
        ("sparc64", "solaris-8i", "cas", 2, "signal"),
        ("sparc64", "solaris-1i", "cas", 2, "signal"),
        ("sparc32plus", "solaris-8s", "double", 4, "signal"),
        ("sparc64", "solaris-8s", "double", 4, "done"),
        ("sparc32plus", "solaris-8f", "word", 2, "done"),
        ("sparc64", "solaris-8f", "word", 2, "signal"),
        ("armv7", "strict", "word", 2, "signal"),
        ("sparc64", "unchecked", "word", 2, "done"),
    ],
)
def test_a_documented_outcome(target: str, policy: str, kind: AccessClass, modulo: int, expected: str) -> None:
    assert expected == outcome(target, policy, kind, modulo)


def test_a_run_records_the_policies_that_tell_an_accesss_fate() -> None:
    machines = [CATALOG.targets[name] for name in ("armv5", "armv6", "sparc64", "mips-kernel")]
    recorded = recorded_policies(CATALOG.policies, "audit-strict", machines)
    assert "strict" in recorded
    assert recorded.items() <= CATALOG.policies.items()
    for machine in machines:
        for kind in ("half", "word", "dword", "multi", "double"):
            one = access(kind, 1)
            assert fate(machine, recorded, one) == fate(machine, CATALOG.policies, one)


def test_only_a_load_is_rotated() -> None:
    """SWP also rotates the value that it loads (ARM DDI 0100I, A4.1.108)."""
    assert outcome("armv5", "ignore", "word", 1, direction="store") == "truncated"
    assert outcome("armv5", "ignore", "swap", 1, direction="load") == "rotated"
    assert outcome("armv5", "ignore", "swap", 1, direction="store") == "truncated"
    assert outcome("armv5", "ignore", "half", 1, direction="load") == "truncated"


@pytest.mark.parametrize(
    ("target", "policy", "kind", "size", "hint", "modulo", "expected"),
    [
        # ARM DDI 0406C, A3.2.1: an address that violates the instruction's `:ALIGN` faults, independently of SCTLR.A.
        ("armv7", "signal", "neon", 8, 16, 8, "signal"),
        ("armv7", "signal", "neon", 8, 32, 16, "signal"),
        ("armv7", "signal", "neon", 8, 32, 0, "done"),
        ("armv7", "linux-arm-2", "neon", 4, 16, 8, "signal"),
        ("armv7", "strict", "neon", 8, 16, 8, "signal"),
        ("armv7", "unchecked", "neon", 8, 16, 8, "done"),
        ("armv7", "signal", "neon", 8, 0, 4, "done"),
        # UltraSPARC IIi User's Manual, 13.5.3: blocks must be at multiples of 64. No compiler splits them.
        ("sparc64", "signal", "double", 8, 64, 32, "signal"),
        ("sparc64", "signal", "double", 8, 64, 0, "done"),
        ("sparc64", "solaris-1s", "double", 8, 64, 8, "signal"),
        ("sparc64", "solaris-8i", "double", 8, 64, 8, "done"),
        # A register of 16 bytes contains pairs or copies: objects of C require 8 at most.
        ("aarch64", "strict", "neon", 16, 0, 8, "done"),
        ("aarch64", "strict", "neon", 16, 0, 4, "signal"),
        # An access through SP: arch/arm64/mm/fault.c, do_sp_pc_abort(). Only an audit continues.
        ("aarch64", "signal", "stack", 16, 0, 8, "signal"),
        ("aarch64", "fixup", "stack", 16, 0, 8, "signal"),
        ("aarch64", "strict", "stack", 16, 0, 8, "signal"),
        ("aarch64", "audit", "stack", 16, 0, 8, "done"),
    ],
)
def test_instructions_with_stricter_alignment(
    target: str, policy: str, kind: AccessClass, size: int, hint: int, modulo: int, expected: str
) -> None:
    machine = CATALOG.targets[target]
    chosen = policy_for(CATALOG.policies, policy, machine)
    one = Access(direction="load", access_class=kind, size_bytes=size, modulo=modulo, hint_bytes=hint)
    assert expected == prescribed(machine, chosen, one)


def test_an_alignment_hint_is_part_of_an_accesss_description_and_fate() -> None:
    one = Access(direction="load", access_class="neon", size_bytes=8, modulo=8, hint_bytes=16)
    assert str(one) == "load of 8 bytes at 8 mod 16"
    assert fate(CATALOG.targets["armv7"], CATALOG.policies, one) == "kill"


@given(
    kind=st.sampled_from(CLASSES),
    size=st.sampled_from([1, 2, 4, 8, 16]),
    factor=st.integers(0, 3),
    target=st.sampled_from(sorted(CATALOG.targets)),
    policy=st.sampled_from(sorted(CATALOG.policies)),
)
def test_a_naturally_aligned_access_succeeds_everywhere(
    kind: AccessClass, size: int, factor: int, target: str, policy: str
) -> None:
    machine = CATALOG.targets[target]
    aligned = access(kind, factor * size % size, size=size)
    if applies(CATALOG.policies[policy], machine):
        assert prescribed(machine, policy_for(CATALOG.policies, policy, machine), aligned) == "done"


@given(
    kind=st.sampled_from(CLASSES),
    modulo=st.integers(0, 7),
    target=st.sampled_from(sorted(CATALOG.targets)),
    policy=st.sampled_from(["signal", "strict"]),
)
def test_an_audit_permits_and_reports_exactly_the_accesses_that_its_policy_forbids(
    kind: AccessClass, modulo: int, target: str, policy: str
) -> None:
    machine, base = CATALOG.targets[target], CATALOG.policies[policy]
    one = access(kind, modulo, size=8)
    assert forbidden(machine, base, one) == forbidden(machine, audited(base), one)
    assert prescribed(machine, audited(base), one) == "done"
    assert audited(base).report


@pytest.mark.parametrize(
    ("target", "kind", "modulo", "expected"),
    [
        ("armv5", "word", 1, "rotated"),
        ("armv5", "dword", 1, "fixup"),
        ("armv5", "vfp", 2, "kill"),
        ("armv6", "word", 1, "hardware"),
        ("armv6", "multi", 1, "fixup"),
        ("armv7", "vfp", 2, "kill"),
        ("sparc64", "word", 2, "kill"),
        ("sparc64-kernel", "word", 2, "kill"),
        ("armv5-kernel", "word", 1, "rotated"),
        ("armv7-on-arm64-kernel", "multi", 1, "fixup"),
        ("riscv64-kernel", "dword", 2, "fixup"),
        ("riscv64-kernel", "cas", 2, "kill"),
        ("mips-kernel", "double", 4, "fixup"),
        ("s390x-kernel", "cas", 2, "kill"),
        ("powerpc-kernel", "double", 2, "fixup"),
        ("powerpc-kernel", "linked", 2, "kill"),
        ("powerpc64le-kernel", "linked", 2, "kill"),
        ("mips", "word", 2, "fixup"),
        ("mipsel", "word", 2, "fixup"),
        ("alpha", "word", 2, "fixup"),
        ("s390x", "cas", 2, "kill"),
        ("m68k", "word", 1, "hardware"),
        ("aarch64", "dword", 1, "hardware"),
        ("aarch64", "exclusive", 1, "kill"),
        ("sparc64", "stack", 1, "kill"),
    ],
)
def test_a_fate(target: str, kind: AccessClass, modulo: int, expected: str) -> None:
    assert expected == fate(CATALOG.targets[target], CATALOG.policies, access(kind, modulo))


def test_a_misaligned_access_is_a_specification_exception_on_s390x_and_a_bus_error_elsewhere() -> None:
    signals = {name: signal_of(target) for name, target in CATALOG.targets.items()}
    assert {signals.pop(name) for name in ("s390x", "s390x-kernel")} == {signal.SIGILL}
    assert set(signals.values()) == {signal.SIGBUS}


def test_a_real_kernel_accepts_only_the_policies_of_its_own_modes() -> None:
    compat = CATALOG.targets["armv7-on-arm64-kernel"]
    assert policy_for(CATALOG.policies, "signal", compat).name == "linux-arm64-compat"
    for name in ("fixup", "linux-arm-2", "strict", "unchecked"):
        with pytest.raises(UsageError, match="does not apply to armv7-on-arm64-kernel"):
            policy_for(CATALOG.policies, name, compat)
    switched = CATALOG.targets["armv6-kernel"]
    assert policy_for(CATALOG.policies, "linux-arm-0", switched).name == "linux-arm-2"
    for name in ("strict", "unchecked", "audit"):
        with pytest.raises(UsageError):
            policy_for(CATALOG.policies, name, switched)


@pytest.mark.parametrize(
    ("asked", "expected", "mode"),
    [
        ("signal", "linux-mips-nofixade", 1),
        ("fixup", "linux-mips", 0),
        ("warn", "linux-mips-show", 2),
        # MIPS has no such mode, and its kernel repairs.
        ("ignore", "linux-mips", 0),
        ("linux-mips-nofixade", "linux-mips-nofixade", 1),
    ],
)
def test_a_kernel_with_other_mode_numbers_gets_its_own_numbers(asked: str, expected: str, mode: int) -> None:
    chosen = policy_for(CATALOG.policies, asked, CATALOG.targets["mips-kernel"])
    assert (chosen.name, chosen.mode) == (expected, mode)
    # Both prescribe the same outcome for every access of the machine.
    user_tier = CATALOG.targets["mips"]
    imitated = policy_for(CATALOG.policies, asked, user_tier)
    for kind in user_tier.demand:
        assert prescribed(user_tier, imitated, access(kind, 1)) == prescribed(user_tier, chosen, access(kind, 1))
    assert chosen.report == imitated.report


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("mips-kernel", "unaddressed"),
        ("riscv64-kernel", "at-pc"),
        *((target, "signal") for target in ("armv5-kernel", "s390x-kernel", "powerpc-kernel", "mips")),
    ],
)
def test_a_real_kernel_sends_its_own_signals(target: str, expected: str) -> None:
    assert shown(CATALOG.targets[target], "signal") == (expected,)
    assert shown(CATALOG.targets[target], "done") == ("done",)


def test_a_board_shows_the_signal_of_its_kernel_or_of_the_emulator_in_its_place() -> None:
    board = msgspec.structs.replace(CATALOG.targets["mips"], emulator=EmulatorSpec(kind="board"))
    assert shown(board, "signal") == ("signal", "unaddressed")
    assert shown(board, "done") == ("done",)


def test_without_a_class_or_a_size_there_is_no_fate() -> None:
    unknown = Access(direction="load", size_bytes=0, modulo=1, access_class="word")
    assert fate(CATALOG.targets["armv5"], CATALOG.policies, unknown) == ""
    unclassed = Access(direction="load", size_bytes=4, modulo=1)
    assert fate(CATALOG.targets["armv5"], CATALOG.policies, unclassed) == ""


def test_a_policy_that_a_target_lacks_is_refused_with_a_list_of_its_policies() -> None:
    with pytest.raises(UsageError) as caught:
        policy_for(CATALOG.policies, "solaris-8s", CATALOG.targets["armv5"])
    assert "solaris-8s does not apply to armv5" in str(caught.value)
    assert "linux-arm-2" in str(caught.value)
    assert "linux-mips" not in str(caught.value)


def test_a_policy_under_which_no_program_can_run_is_refused_with_the_reason_and_can_be_audited() -> None:
    m68k = CATALOG.targets["m68k"]
    with pytest.raises(UsageError) as caught:
        policy_for(CATALOG.policies, "strict", m68k)
    assert "its ABI aligns int and long to 2 bytes" in str(caught.value)
    assert "plumb audit --policy strict --target m68k" in str(caught.value)
    assert not applies(CATALOG.policies["strict"], m68k)
    assert policy_for(CATALOG.policies, audit_name("strict"), m68k).report
    for policy in CATALOG.policies.values():
        assert set(policy.unusable) <= set(CATALOG.targets)


def test_an_unknown_policy_is_refused() -> None:
    for name in ("lenient", "audit-lenient"):
        with pytest.raises(UsageError, match="unknown policy 'lenient'"):
            policy_for(CATALOG.policies, name, CATALOG.targets["armv5"])


def test_the_native_target_is_the_same_under_every_policy() -> None:
    for name in ("strict", "audit", "audit-strict", "signal"):
        assert policy_for(CATALOG.policies, name, CATALOG.targets["native"]).name == "signal"
