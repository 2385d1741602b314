"""Branches in the bytes of a function lead where the manuals, and binutils' disassemblers, say."""

from __future__ import annotations

import pytest

from harness.isa import registry

ARM, AARCH64, SPARC, X86 = (
    ("arm", "EM_ARM"),
    ("aarch64", "EM_AARCH64"),
    ("sparc", "EM_SPARCV9"),
    ("x86_64", "EM_X86_64"),
)


@pytest.mark.parametrize(
    ("machine", "symbol", "code", "expected"),
    [
        # bl +0x48; b here; beq +8; push {r4, r5, lr}
        (ARM, 0, "100000eb", [(0, 0x48)]),
        (ARM, 0, "00f020e3 feffffea", [(4, 4)]),
        (ARM, 0, "0000000a", [(0, 8)]),
        (ARM, 0, "30402de9", []),
        # ldr r3, [pc, #4]; add r3, pc, r3; bx lr; the distance. The same from before: ldr r3, [pc, #-12].
        (ARM, 0, "04309fe5 03308fe0 1eff2fe1 00010000", [(12, 12 + 0x100)]),
        (ARM, 0, "00010000 0c301fe5 03308fe0", [(0, 16 + 0x100)]),
        # Another register is added, or nothing was loaded.
        (ARM, 0, "04309fe5 02208fe0 1eff2fe1 00010000", []),
        (ARM, 0, "03308fe0 1eff2fe1 1eff2fe1 00010000", []),
        # Thumb: bl +0x18; b.w here; nop; push {r4, lr}
        (ARM, 1, "00f00af8", [(0, 0x18)]),
        (ARM, 1, "00bf fff7febf", [(2, 2)]),
        (ARM, 1, "00bf 10b5", []),
        # ldr r0, [pc, #0]; add r0, pc; the distance, whose lowest bit tells Thumb. ldr.w r8, [pc, #4]; add r8, pc.
        (ARM, 1, "0048 7844 21000000", [(4, 6 + 0x20)]),
        (ARM, 1, "dff80480 f844 00bf 21000000", [(8, 8 + 0x20)]),
        (ARM, 1, "21000000 5ff80880 f844", [(0, 12 + 0x20)]),
        # bl +16; b -4
        (AARCH64, 0, "04000094 ffffff17", [(0, 16), (4, 0)]),
        # A call of +16, a branch of +8, and a nop.
        (SPARC, 0, "40000004 10680002 01000000", [(0, 16), (4, 12)]),
        # call 5; jne 0; lea 1(%rip),%rdi; mov %rsp,%rbp
        (X86, 0, "e800000000", [(1, 5)]),
        (X86, 0, "0f85faffffff", [(2, 0)]),
        (X86, 0, "488d3d01000000", [(3, 8)]),
        (X86, 0, "4889e5", []),
    ],
)
def test_a_branch_leads_where_its_distance_says(
    machine: tuple[str, str], symbol: int, code: str, expected: list[tuple[int, int]]
) -> None:
    isa, name = machine
    find = registry.of_isa(isa).branches[name]
    order = ">" if isa == "sparc" else "<"
    found = list(find(bytes.fromhex(code), order, symbol))
    assert [(one.start, one.destination) for one in found] == expected


@pytest.mark.parametrize(
    ("machine", "symbol", "codes"),
    [
        (ARM, 0, ["100000eb", "200000eb"]),
        (ARM, 1, ["00f00af8", "00f010f8"]),
        (ARM, 1, ["0048784421000000", "0048784431000000"]),
        (AARCH64, 0, ["04000094", "08000094"]),
        (X86, 0, ["e800000000", "e811000000"]),
    ],
)
def test_branches_that_differ_by_their_distance_alone_are_alike_without_it(
    machine: tuple[str, str], symbol: int, codes: list[str]
) -> None:
    find = registry.of_isa(machine[0]).branches[machine[1]]
    one, other = (next(iter(find(bytes.fromhex(code), "<", symbol))) for code in codes)
    assert one.without == other.without
    assert one.destination != other.destination
