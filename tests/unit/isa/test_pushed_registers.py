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
