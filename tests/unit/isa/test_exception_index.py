"""ARM's tables for exceptions give the registers of a function's caller."""

from __future__ import annotations

from typing import Literal

import pytest

from harness.isa.exception_index import caller, caller_at, instructions

STACK = {0x1000 + 4 * number: 100 + number for number in range(64)}
REGISTERS: dict[int, int | None] = {4: 4, 7: 0x1010, 13: 0x1000, 14: 14}


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("b0", {}),
        # Nothing is done after the end.
        ("b0 3f", {}),
        ("3f b0", {13: 0x1100}),
        ("41 b0", {13: 0x0FF8}),
        ("97 b0", {13: 0x1010}),
        ("a8 b0", {4: 100, 14: 101, 13: 0x1008}),
        ("a1 b0", {4: 100, 5: 101, 13: 0x1008}),
        ("80 08 b0", {7: 100, 13: 0x1004}),
        ("84 08 b0", {7: 100, 14: 101, 13: 0x1008}),
        # POP {PC}: what the caller's program counter was.
        ("88 00 b0", {14: 100, 13: 0x1004}),
        ("b1 0a b0", {1: 100, 3: 101, 13: 0x1008}),
        ("b2 01 a8", {13: 0x1210, 4: STACK.get(0x1208), 14: STACK.get(0x120C)}),
        # A number in base 128 of two bytes.
        ("b2 80 01", {13: 0x1404}),
        ("b3 81 b0", {13: 0x1014}),
        ("b8 b0", {13: 0x100C}),
        ("b9 b0", {13: 0x1014}),
        ("c9 03 b0", {13: 0x1020}),
        ("d1 a8 b0", {4: 104, 14: 105, 13: 0x1018}),
    ],
)
def test_instructions_give_the_callers_registers(code: str, changed: dict[int, int | None]) -> None:
    assert caller(bytes.fromhex(code), REGISTERS, STACK.get) == REGISTERS | changed


@pytest.mark.parametrize("code", ["80 00", "b4 b0", "c6 00 b0", "95 a8 b0"])
def test_an_instruction_that_refuses_or_is_not_understood_gives_none(code: str) -> None:
    assert caller(bytes.fromhex(code), REGISTERS, STACK.get) is None


def relative(target: int, place: int) -> int:
    return target - place & 0x7FFFFFFF


AT, TABLE = 0x9000, 0x8000
ENTRIES = [
    (0x100, 0x80A8B0B0),
    (0x200, 1),
    (0x300, relative(TABLE, AT + 20)),
    (0x400, relative(TABLE + 16, AT + 28)),
    (0x500, 0x84000000),
]
TABLES = [0x81013F84, 0x08B0B0B0, 0, 0, 0x00001234, 0x01A1B0B0, 0xB0B0B0B0]
"""At TABLE the compact form with a further word, and at TABLE + 16 a personality routine's."""


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (0x0FF, None),
        (0x100, "a8b0b0"),
        (0x1FF, "a8b0b0"),
        (0x2F0, None),
        (0x304, "3f8408b0b0b0"),
        (0x404, "a1b0b0b0b0b0b0"),
        (0x504, None),
    ],
)
@pytest.mark.parametrize("order", ["little", "big"])
def test_the_index_is_searched_for_the_function_around_an_address(
    order: Literal["little", "big"], address: int, expected: str | None
) -> None:
    pairs = [(relative(start, AT + 8 * number), word) for number, (start, word) in enumerate(ENTRIES)]
    index = b"".join(word.to_bytes(4, order) for pair in pairs for word in pair)
    tables = b"".join(word.to_bytes(4, order) for word in TABLES)

    def read(start: int, size: int) -> bytes:
        return tables[start - TABLE : start - TABLE + size]

    found = instructions(order, index, AT, address, read)
    assert (found.hex() if found is not None else None) == expected
    registers = caller_at(order, index, AT, address, read, REGISTERS, STACK.get)
    assert (registers is None) == (expected is None)
