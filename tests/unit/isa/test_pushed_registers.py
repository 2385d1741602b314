"""What ARM code without an unwind table has pushed, and which of its addresses follow a call."""

from __future__ import annotations

import pytest

from harness.isa import registry
from harness.isa.architecture import CallFrames, PushedRegisters

PUSH = 0xE92D4030  # push {r4, r5, lr}
DOWN = 0xE24DD008  # sub sp, sp, #8
UP = 0xE28DD008  # add sp, sp, #8
POP = 0xE8BD8030  # pop {r4, r5, pc}
POP_LINK = 0xE8BD4030  # pop {r4, r5, lr}
RETURN = 0xE12FFF1E  # bx lr
PUSH_ONE = 0xE52D4004  # push {r4}, which is str r4, [sp, #-4]!
POP_ONE = 0xE49D4004  # pop {r4}, which is ldr r4, [sp], #4
LOAD = 0xE4DE3001  # ldrb r3, [lr], #1
BRANCH = 0x0A000010  # beq
MOVE_STACK = 0xE1A0D00B  # mov sp, fp
CALL = 0xEB000010  # bl
FRAME = 0xE28DB008  # add fp, sp, #8
MOVE_BY_REGISTER = 0xE04DD003  # sub sp, sp, r3
CHANGE_FRAME = 0xE3A0B000  # mov fp, #0
TAIL_CALL = 0xEA000010  # b
CONSTANT = 0xFFFFFAF8  # no instruction


def frames(machine: str = "arm") -> CallFrames:
    """How the callers of a machine are found."""
    variant = registry.variant(machine)
    assert variant is not None
    assert isinstance(variant.unwinding, CallFrames)
    return variant.unwinding


def pushed(*words: int, machine: str = "arm") -> PushedRegisters | None:
    """What these instructions have pushed. Instructions of BE8 are little-endian too."""
    by_code = frames(machine).pushed
    assert by_code is not None
    return by_code(b"".join(word.to_bytes(4, "little") for word in words), ["00000000"] * 26)


WHOLE = PushedRegisters(20, {4: 8, 5: 12, 14: 16})


@pytest.mark.parametrize("machine", ["arm", "armeb"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), PushedRegisters(0, {})),
        ((LOAD,), PushedRegisters(0, {})),
        ((PUSH, DOWN, LOAD), WHOLE),
        ((PUSH, DOWN, BRANCH, UP, POP, LOAD), WHOLE),
        ((PUSH, DOWN, BRANCH, UP, POP_LINK, RETURN, LOAD), WHOLE),
        ((PUSH_ONE, LOAD), PushedRegisters(4, {4: 0})),
        ((PUSH_ONE, LOAD, POP_ONE, LOAD), PushedRegisters(0, {})),
        ((PUSH, MOVE_STACK), None),
        ((PUSH & 0x0FFFFFFF, LOAD), None),
        ((PUSH, DOWN, POP & 0x0FFFFFFF, LOAD), WHOLE),
        ((PUSH, POP_LINK, UP), None),
        ((PUSH, DOWN, BRANCH, UP, POP_LINK, TAIL_CALL, LOAD), WHOLE),
        ((PUSH, DOWN, BRANCH, UP, POP_LINK, LOAD), PushedRegisters(0, {})),
        ((PUSH, DOWN, CONSTANT, LOAD), WHOLE),
        ((PUSH, FRAME, MOVE_BY_REGISTER, LOAD), PushedRegisters(4, {4: -8, 5: -4, 14: 0}, 11)),
        ((PUSH, FRAME, MOVE_BY_REGISTER, CHANGE_FRAME), None),
    ],
    ids=[
        "entry",
        "leaf",
        "frame",
        "after a return",
        "after bx lr",
        "one",
        "popped",
        "not understood",
        "conditional",
        "conditional return",
        "too much",
        "after a call in place of a return",
        "popped without a return",
        "constant",
        "frame pointer",
        "lost frame pointer",
    ],
)
def test_the_stack_at_an_address_follows_from_the_code_before_it(
    machine: str, words: tuple[int, ...], expected: PushedRegisters | None
) -> None:
    assert pushed(*words, machine=machine) == expected


@pytest.mark.parametrize(
    ("address", "code", "expected"),
    [
        (0x1000, CALL.to_bytes(4, "little"), True),
        (0x1000, (0xE12FFF33).to_bytes(4, "little"), True),  # blx r3
        (0x1000, LOAD.to_bytes(4, "little"), False),
        (0x1001, bytes.fromhex("00f00af8"), True),  # bl
        (0x1001, bytes.fromhex("00bf9847"), True),  # nop; blx r3
        (0x1001, bytes.fromhex("00bf00bf"), False),  # nop; nop
    ],
    ids=["bl", "blx", "load", "thumb bl", "thumb blx", "thumb nop"],
)
def test_a_return_address_follows_a_call(address: int, code: bytes, *, expected: bool) -> None:
    assert frames().follows_call(address, code) is expected


@pytest.mark.parametrize(
    ("code", "thumb", "expected"),
    [
        ([LOAD, PUSH, DOWN, PUSH_ONE, LOAD], False, 4),
        ([LOAD, 0xE52DE004, LOAD], False, 4),  # push {lr}
        ([LOAD, PUSH_ONE], False, None),
        ([0xB510BF00, 0xBF00BF00], True, 2),  # nop; push {r4, lr}; nop; nop
        ([0xBF00BF00, 0x47F0E92D, 0xBF00BF00], True, 4),  # nop; nop; push.w {r4-sl, lr}
        ([0xB410BF00], True, None),  # nop; push {r4}
    ],
    ids=["nearest", "one register", "none", "thumb", "thumb 32", "thumb none"],
)
def test_a_function_without_a_symbol_begins_where_the_link_register_is_pushed(
    code: list[int], *, thumb: bool, expected: int | None
) -> None:
    entry = frames().entry
    assert entry is not None
    state = [*[""] * 25, "20000000" if thumb else "00000000"]
    assert entry(b"".join(word.to_bytes(4, "little") for word in code), state) == expected


@pytest.mark.parametrize("machine", ["arm", "armeb"])
@pytest.mark.parametrize(("symbol", "length"), [(0x1000, 4), (0x1001, 2)], ids=["arm", "thumb"])
def test_the_lowest_bit_of_a_functions_symbol_tells_its_instruction_set(machine: str, symbol: int, length: int) -> None:
    variant = registry.variant(machine)
    assert variant is not None
    assert variant.state_registers is not None
    assert variant.state_instructions is not None
    found = variant.state_instructions(variant.state_registers(symbol))
    assert found.instruction_bytes == (4 if length == 4 else 0)
    assert found.symbol_flag_bits == symbol & 1
