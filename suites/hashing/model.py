"""Computes with Python integers, without machine words, which register of a HyperLogLog counts an element.

Sources: https://redis.io/docs/latest/develop/data-types/probabilistic/hyperloglogs/ describes HyperLogLog's registers
and the sparse string that holds them; the servers' hyperloglog.c specifies the encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites._shared.checksums import murmurhash64a

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 0xADC83B19
_INDEX_BITS = 14
REGISTERS = 1 << _INDEX_BITS
_HEADER_BYTES = 16


def register_of(text: bytes) -> tuple[int, int]:
    """The number of the register that counts an element, and the register's minimum value: the number of trailing zeros
    plus one.
    """
    hashed = murmurhash64a(text, SEED)
    index, rest = hashed % REGISTERS, hashed >> _INDEX_BITS | 1 << 64 - _INDEX_BITS
    return index, (rest & -rest).bit_length()


def registers(stored: bytes) -> dict[int, int]:
    """The nonzero registers of a HyperLogLog in the form that GET returns. Raises ValueError for any other string."""
    if stored[:4] != b"HYLL" or stored[4] not in {0, 1}:
        raise ValueError(f"not a HyperLogLog: {stored[:16]!r}")
    runs = _sparse(stored[_HEADER_BYTES:]) if stored[4] else _dense(stored[_HEADER_BYTES:])
    found, index = {}, 0
    for value, length in runs:
        found.update(dict.fromkeys(range(index, index + length), value) if value else {})
        index += length
    if index != REGISTERS:
        raise ValueError(f"{index} registers instead of {REGISTERS}")
    return found


def _sparse(code: bytes) -> Iterator[tuple[int, int]]:
    """Value and length of each run: 00llllll and 01llllll llllllll are zeros, 1vvvvvll a value. Each stored number is
    one less than the number that it means.
    """
    at = 0
    while at < len(code):
        byte = code[at]
        if byte & 0x80:
            yield (byte >> 2 & 31) + 1, (byte & 3) + 1
        elif byte & 0x40:
            yield 0, ((byte & 63) << 8 | code[at + 1]) + 1
            at += 1
        else:
            yield 0, byte + 1
        at += 1


def _dense(packed: bytes) -> Iterator[tuple[int, int]]:
    """Six bits for each register, the first register in the lowest bits."""
    whole = int.from_bytes(packed, "little")
    for number in range(REGISTERS):
        yield whole >> 6 * number & 63, 1
