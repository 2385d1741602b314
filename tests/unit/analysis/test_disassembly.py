"""Stored fault records are decoded into instructions and accesses. Unknown ones stay unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.disassembly import access_of, disassemble, instruction_text
from harness.core.finding import Access
from harness.isa.architecture import InstructionSet
from harness.record import fault_log
from tests.support import fakes
from tests.support.fakes import write

if TYPE_CHECKING:
    from pathlib import Path

THUMB = "30000000"
"""CPSR with the T bit, little-endian."""


ARM_STATE = "10000000"


def registers(cpsr: str) -> list[str]:
    return [*["00000000"] * 25, cpsr]


# Machine, CPSR, bytes in memory order, text. The objdump of binutils agrees with the texts.
INSTRUCTIONS = [
    ("arm", ARM_STATE, "001093e5", "ldr r1, [r3]"),
    ("arm", ARM_STATE, "b010d3e1", "ldrh r1, [r3]"),
    ("arm", ARM_STATE, "d000c1e1", "ldrd r0, r1, [r1]"),
    ("arm", ARM_STATE, "0f0093e8", "ldm r3, {r0, r1, r2, r3}"),
    ("arm", ARM_STATE, "0f002de9", "push {r0, r1, r2, r3}"),
    ("arm", ARM_STATE, "000a93ed", "vldr s0, [r3]"),
    ("arm", ARM_STATE, "000b93ed", "vldr d0, [r3]"),
    ("arm", ARM_STATE, "9f0f93e1", "ldrex r0, [r3]"),
    ("arm", ARM_STATE, "910f81e1", "strex r0, r1, [r1]"),
    ("arm", ARM_STATE, "9f0fb3e1", "ldrexd r0, r1, [r3]"),
    ("arm", ARM_STATE, "920001e1", "swp r0, r2, [r1]"),
    # A condition is not a size: ldrhi and ldrhs begin like ldrh.
    ("arm", ARM_STATE, "00109385", "ldrhi r1, [r3]"),
    ("arm", ARM_STATE, "00109325", "ldrhs r1, [r3]"),
    ("arm", ARM_STATE, "b010d381", "ldrhhi r1, [r3]"),
    ("arm", THUMB, "1968", "ldr r1, [r3]"),
    ("arm", THUMB, "1988", "ldrh r1, [r3]"),
    ("arm", THUMB, "d3f80010", "ldr.w r1, [r3]"),
    ("arm", THUMB, "d3e90001", "ldrd r0, r1, [r3]"),
    ("arm", THUMB, "93e80f00", "ldm.w r3, {r0, r1, r2, r3}"),
    ("arm", THUMB, "53e8001f", "ldrex r1, [r3]"),
    ("aarch64", "", "20004079", "ldrh w0, [x1]"),
    ("aarch64", "", "207c5f48", "ldxrh w0, [x1]"),
    ("aarch64", "", "207c5f88", "ldxr w0, [x1]"),
    ("aarch64", "", "207c5fc8", "ldxr x0, [x1]"),
    ("aarch64", "", "20fcdf88", "ldar w0, [x1]"),
    ("aarch64", "", "20fcdfc8", "ldar x0, [x1]"),
    ("aarch64", "", "20fc9fc8", "stlr x0, [x1]"),
    ("aarch64", "", "200080b9", "ldrsw x0, [x1]"),
    ("aarch64", "", "200040f9", "ldr x0, [x1]"),
    ("aarch64", "", "200040bd", "ldr s0, [x1]"),
    ("aarch64", "", "2000c03d", "ldr q0, [x1]"),
    ("sparc64", "", "d2104000", "lduh [%g1], %o1"),
    ("sparc64", "", "d2304000", "sth %o1, [%g1]"),
    ("sparc64", "", "d2004000", "ld [%g1], %o1"),
    ("sparc64", "", "d2204000", "st %o1, [%g1]"),
    ("sparc64", "", "d2584000", "ldx [%g1], %o1"),
    ("sparc64", "", "c1184000", "ldd [%g1], %f0"),
    ("sparc32plus", "", "d2004000", "ld [%g1], %o1"),
    ("sparc64", "", "d3e01008", "cas [%g0], %o0, %o1"),
    ("sparc64", "", "d3f01008", "casx [%g0], %o0, %o1"),
    ("sparc64", "", "d2784000", "swap [%g1], %o1"),
    ("mips", "", "8ca90000", "lw $t1, ($a1)"),
    ("mipsel", "", "0000a98c", "lw $t1, ($a1)"),
    ("mips64", "", "dc430008", "ld $v1, 8($v0)"),
    ("mips64el", "", "080043dc", "ld $v1, 8($v0)"),
    ("ppc", "", "c8010008", "lfd f0, 8(r1)"),
    ("ppc64", "", "e9210008", "ld r9, 8(r1)"),
    ("ppc64le", "", "080021e9", "ld r9, 8(r1)"),
    ("riscv64", "", "1c41", "c.lw a5, 0(a0)"),
    ("riscv64", "", "83b20500", "ld t0, 0(a1)"),
    ("s390x", "", "e31020000004", "lg %r1, 0(%r2)"),
    ("m68k", "", "2010", "move.l (a0), d0"),
    # SPARC V9 manual, A.27 and A.54: op 3, op3 0x03 and 0x07; GCC writes them for 32-bit programs.
    ("sparc32plus", "", "d0184000", "ldd [%g1], %o0"),
    ("sparc32plus", "", "d0384000", "std %o0, [%g1]"),
]


@pytest.mark.parametrize(("machine", "cpsr", "code", "text"), INSTRUCTIONS, ids=[i[3] for i in INSTRUCTIONS])
def test_an_instruction_is_named(machine: str, cpsr: str, code: str, text: str) -> None:
    record = fakes.fault(instruction=code.ljust(32, "0"), registers=registers(cpsr))
    assert text == disassemble(record, machine)


@pytest.mark.parametrize(
    ("machine", "cpsr", "code"),
    [
        ("arm", ARM_STATE, "4a58b791"),
        ("aarch64", "", "d2346522"),
        ("sparc64", "", "df6af1d8"),
        ("xtensa", "", "00112233"),
    ],
)
def test_bytes_that_are_not_an_instruction_are_shown_without_a_guess(machine: str, cpsr: str, code: str) -> None:
    record = fakes.fault(instruction=code, registers=registers(cpsr))
    assert f".inst {code}" == disassemble(record, machine)


def test_instructions_that_only_llvm_decodes_are_passed_to_it_as_numbers(tmp_path: Path) -> None:
    llvm = tmp_path / "llvm-mc"
    instructions = InstructionSet(numbers=(str(llvm), "--disassemble"))
    code = bytes.fromhex("8404c0288404c028")
    absent = InstructionSet(numbers=(str(tmp_path / "none"),))
    assert instruction_text(code, 0, absent) == ".inst 8404c028", "without LLVM, the instruction must not be guessed"
    # The output of llvm-mc 19 for the bytes of `ld.d $a0, $a0, 1`, and for others.
    write(
        llvm,
        """#!/bin/sh
if [ "$1 $(cat "$2")" = "--disassemble 0x84 0x04 0xc0 0x28" ]; then
    printf '\\t.text\\n\\tld.d\\t$a0, $a0, 1\\n'
else
    printf '\\t.text\\n%s:1:1: warning: invalid instruction encoding\\n0xff 0xff\\n^\\n' "$2"
fi
""",
        mode=0o755,
    )
    assert instruction_text(code, 0, instructions) == "ld.d $a0, $a0, 1"
    assert instruction_text(b"\xff" * 4, 0, instructions) == ".inst ffffffff"


def test_an_access_without_a_known_size_is_reported_as_such() -> None:
    record = fakes.fault(address=0x100D, access_bytes=0)
    assert str(access_of(record)) == "load of unknown size at 13 mod 16"
    # From a kernel, of an instruction that makes no access: add r0, r0, r1
    unread = fakes.fault(address=0x100D, instruction="010080e0", access="", access_class="", access_bytes=0)
    assert access_of(unread, "arm") == Access(direction="", access_class="", size_bytes=0, modulo=13)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        # lr.w t0, (a0); amoswap.d t1, t0, (a0); sw t0, -5(a0); c.ld a5, 8(a0)
        ("af220510", "load of 4 bytes at 2 mod 4"),
        ("2f335508", "store of 8 bytes at 2 mod 8"),
        ("a32d55fe", "store of 4 bytes at 1 mod 4"),
        ("1c65", "load of 8 bytes at 2 mod 8"),
    ],
)
def test_where_a_kernel_reports_the_instructions_address_the_registers_give_that_of_the_data(
    instruction: str, expected: str
) -> None:
    values = [0] * 33
    values[10] = 0x1002
    pc = 0x2000
    record = fakes.fault(
        instruction=instruction,
        address=pc,
        pc=pc,
        access="",
        access_class="",
        access_bytes=0,
        registers=[value.to_bytes(8, "little").hex() for value in values],
    )
    assert str(access_of(record, "riscv64")) == expected


@pytest.mark.parametrize(
    ("machine", "instruction", "misaligned", "expected"),
    [
        # lw $v0, 4($a0)
        ("mips", "8c820004", 0x1003, "load of 4 bytes at 3 mod 4"),
        # csg %r2, %r1, 0(%r5); lpq %r2, 0(%r3)
        ("s390x", "eb2150000030", 0x1004, "store of 8 bytes at 4 mod 8"),
        ("s390x", "e3203000008f", 0x1008, "load of 16 bytes at 8 mod 16"),
    ],
)
def test_where_a_kernel_reports_no_address_the_registers_give_it(
    machine: str, instruction: str, misaligned: int, expected: str
) -> None:
    record = fakes.fault(instruction=instruction, address=0, access="", access_class="", access_bytes=0)
    found = msgspec.structs.replace(record, misaligned_address=misaligned)
    assert str(access_of(found, machine)) == expected


def test_an_access_is_described_in_words() -> None:
    record = fakes.fault(address=0x1003, access="store")
    assert str(access_of(record)) == "store of 4 bytes at 3 mod 4"


@given(
    machine=st.sampled_from(["arm", "aarch64", "sparc64", "sparc32plus"]),
    code=st.binary(min_size=0, max_size=16),
    thumb=st.booleans(),
)
def test_disassembly_handles_any_bytes(machine: str, code: bytes, *, thumb: bool) -> None:
    record = fakes.fault(instruction=code.hex(), registers=registers(THUMB if thumb else ARM_STATE))
    assert disassemble(record, machine)


Machine = Literal["arm", "sparc32plus"]


@pytest.mark.parametrize(("machine", "text"), [("arm", "ldr r1, [r3]"), ("sparc32plus", "ld [%g1], %o1")])
def test_a_record_of_a_real_emulator_is_read(machine: Machine, text: str) -> None:
    (record,) = fault_log.read_faults(fakes.DATA / "stacks" / f"{machine}.jsonl")
    assert (record.signal, record.code, record.access, record.handled) == (fakes.SIGBUS, fakes.ADRALN, "load", False)
    assert text == disassemble(record, machine)
    assert str(access_of(record)) == "load of 4 bytes at 1 mod 4"
