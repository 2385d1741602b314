"""Reads 32-bit ARM's tables for exceptions, which Debian's C library has where it has no call-frame information.

Exception Handling ABI for the Arm Architecture (EHABI32), 6 and 10. A table describes a function as it is at its calls:
code that is still entering or leaving a function has another stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_ENTRY_BYTES = 8
_CANNOT_UNWIND = 1
_INLINE = 1 << 31
_STACK, _LINK, _COUNTER = 13, 14, 15
_FINISH = 0xB0


def caller_at(
    order: Literal["little", "big"],
    index: bytes,
    at: int,
    address: int,
    read: Callable[[int, int], bytes],
    registers: Mapping[int, int | None],
    word: Callable[[int], int | None],
) -> dict[int, int | None] | None:
    """The registers of the caller of the function around an address; None if the index does not tell.

    `index`: the section .ARM.exidx, which is at the address `at`. `read`: (address, length) -> the object's content.
    `word`: address -> the stack's content there. The caller's program counter is its link register.
    """
    code = instructions(order, index, at, address, read)
    return caller(code, registers, word) if code is not None else None


def instructions(
    order: Literal["little", "big"], index: bytes, at: int, address: int, read: Callable[[int, int], bytes]
) -> bytes | None:
    """The instructions that unwind the function around an address; None if the index says nothing of it."""

    def word(place: int) -> int:
        return int.from_bytes(index[place : place + 4], order)

    low, high = 0, len(index) // _ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        start = _relative(word(middle * _ENTRY_BYTES), at + middle * _ENTRY_BYTES)
        low, high = (middle + 1, high) if start <= address else (low, middle)
    if not low:
        return None
    place = (low - 1) * _ENTRY_BYTES + 4
    content = word(place)
    if content == _CANNOT_UNWIND:
        return None
    if content & _INLINE:
        return content.to_bytes(4, "big")[1:] if content >> 24 == _INLINE >> 24 else None
    table = _relative(content, at + place)
    first = int.from_bytes(read(table, 4), order)
    if first & _INLINE:
        kind, more = first >> 24 & 0xF, first >> 16 & 0xFF
        whole = first.to_bytes(4, "big")
        return whole[1:] if kind == 0 else whole[2:] + _words(order, read(table + 4, 4 * more))
    # The personality routines of GNU's C and C++ are followed by instructions in the same form (GCC, unwind-arm.h).
    more = int.from_bytes(read(table + 4, 4), order)
    return more.to_bytes(4, "big")[1:] + _words(order, read(table + 8, 4 * (more >> 24)))


def _words(order: Literal["little", "big"], content: bytes) -> bytes:
    """The bytes of words, each from its most significant one on."""
    if order == "big":
        return content
    return b"".join(content[place : place + 4][::-1] for place in range(0, len(content), 4))


def _relative(word: int, place: int) -> int:
    """The address that a word of the table names by its distance: 31 bits with a sign (R_ARM_PREL31)."""
    distance = word & 0x7FFFFFFF
    return place + (distance - (1 << 31) if distance & 1 << 30 else distance) & 0xFFFFFFFE


def caller(
    code: bytes, registers: Mapping[int, int | None], word: Callable[[int], int | None]
) -> dict[int, int | None] | None:
    """The registers of a function's caller, by the instructions that unwind it; None if one is not understood."""
    found = dict(registers)
    rest = iter(code)
    for one in rest:
        if one == _FINISH:
            break
        step = _step(one, rest)
        stack = found.get(_STACK if step is None or step.stack_from is None else step.stack_from)
        if step is None or stack is None:
            return None
        stack += step.moved
        for number in step.popped:
            # What is popped into the program counter is the caller's.
            found[_LINK if number == _COUNTER else number] = word(stack)
            stack += 4
        if _STACK not in step.popped:
            found[_STACK] = stack
    return found


class _Step(NamedTuple):
    """What an instruction does."""

    popped: Sequence[int] = ()
    """The core registers that it pops."""
    moved: int = 0
    """How far it moves the stack pointer before that, in bytes."""
    stack_from: int | None = None
    """The register that it takes the stack pointer from."""


def _step(one: int, rest: Iterator[int]) -> _Step | None:
    """An instruction by its first byte; None for one that refuses to unwind, or is not understood."""
    if one < 0x80:
        return _Step(moved=(-1 if one & 0x40 else 1) * ((one & 0x3F) * 4 + 4))
    if one < 0x90:
        mask = (one & 0xF) << 8 | next(rest, 0)
        return _Step([4 + bit for bit in range(12) if mask >> bit & 1]) if mask else None
    if one < 0xA0:
        return _Step(stack_from=one & 0xF)
    if one < _FINISH:
        return _Step([*range(4, 5 + (one & 7)), *([_LINK] if one & 8 else [])])
    if one == 0xB1:
        mask = next(rest, 0)
        return _Step([number for number in range(4) if mask >> number & 1])
    moved = 0x204 + 4 * _number(rest) if one == 0xB2 else _vector_bytes(one, rest)
    return _Step(moved=moved) if moved else None


def _number(rest: Iterator[int]) -> int:
    """A number in base 128, its lowest part first (ULEB128)."""
    value = shift = 0
    for one in rest:
        value |= (one & 0x7F) << shift
        shift += 7
        if not one & 0x80:
            break
    return value


def _vector_bytes(one: int, rest: Iterator[int]) -> int:
    """How far an instruction that pops vector registers moves the stack pointer; 0 for an unknown one."""
    if one == 0xB3:
        return ((next(rest, 0) & 0xF) + 1) * 8 + 4
    if 0xB8 <= one <= 0xBF:
        return ((one & 7) + 1) * 8 + 4
    if one in {0xC8, 0xC9}:
        return ((next(rest, 0) & 0xF) + 1) * 8
    return ((one & 7) + 1) * 8 if 0xD0 <= one <= 0xD7 else 0
