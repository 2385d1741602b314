"""BITOP, BITCOUNT, BITPOS, SETBIT and GETBIT around the limits of headers and words, against model and native build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import bit_model
from suites._shared.paired_servers import EDGE_LENGTHS, HEADER_LENGTHS

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

LENGTHS = EDGE_LENGTHS + HEADER_LENGTHS
# Keys of several lengths: in old releases a longer key shifts the following bytes in the query buffer.
KEYS = ["k", "key", "a-key-of-32-bytes-so-that-header3", "x" * 45]


@pytest.mark.parametrize("operands", [1, 2, 3, 4, 5, 16, 17])
@pytest.mark.parametrize("operation", ["AND", "OR", "XOR"])
def test_bitop_of_equal_lengths_agrees_with_the_model(both: PairedServers, operation: str, operands: int) -> None:
    for length in LENGTHS:
        texts = [both.some_bytes(length) for _ in range(operands)]
        names = [f"source:{number}" for number in range(operands)]
        stores = [["SET", name, text] for name, text in zip(names, texts, strict=True)]
        requests = [*stores, ["BITOP", operation, "target", *names], ["GET", "target"]]
        result = bit_model.bitop(operation, texts) if length else None
        both.expect(requests, [length, result], f"{operation} of {operands} strings of {length} bytes")


@pytest.mark.parametrize("operation", ["AND", "OR", "XOR"])
def test_bitop_of_different_lengths_pads_with_zeros(both: PairedServers, operation: str) -> None:
    for length in EDGE_LENGTHS[1:]:
        texts = [
            both.some_bytes(length),
            both.some_bytes(both.random.randrange(1, length + 1)),
            both.some_bytes(length + 32),
        ]
        stores = [["SET", key, text] for key, text in zip(KEYS, texts, strict=False)]
        requests = [*stores, ["BITOP", operation, "target", *KEYS[:3]], ["GET", "target"]]
        both.expect(
            requests, [bit_model.bitop(operation, texts)], f"{operation} of {[len(text) for text in texts]} bytes"
        )


def test_bitop_not_agrees_with_the_model(both: PairedServers) -> None:
    for length in LENGTHS[1:]:
        text = both.some_bytes(length)
        requests = [["SET", "k", text], ["BITOP", "NOT", "target", "k"], ["GET", "target"]]
        both.expect(requests, [bit_model.bitop("NOT", [text])], f"NOT of {length} bytes")


@pytest.mark.parametrize("key", KEYS, ids=[f"key-of-{len(key)}-bytes" for key in KEYS])
def test_bitcount_of_every_range_agrees_with_the_model(both: PairedServers, key: str) -> None:
    for length in LENGTHS:
        text = both.some_bytes(length)
        ranges = [
            (0, -1),
            *((start, -1) for start in range(min(length, 17))),
            *((0, -end) for end in range(1, min(length, 17))),
        ]
        requests: list[list[Any]] = [
            ["SET", key, text],
            ["BITCOUNT", key],
            *(["BITCOUNT", key, first, last] for first, last in ranges),
        ]
        expected = [bit_model.bitcount(text), *(bit_model.bitcount(text, first, last) for first, last in ranges)]
        both.expect(requests, expected, f"{length} bytes")


@pytest.mark.parametrize("bit", [0, 1])
@pytest.mark.parametrize("key", KEYS, ids=[f"key-of-{len(key)}-bytes" for key in KEYS])
def test_bitpos_finds_the_one_different_bit(both: PairedServers, key: str, bit: int) -> None:
    for length in LENGTHS:
        text = both.sparse(length, 0x00 if bit else 0xFF)
        starts = range(min(length, 17))
        requests: list[list[Any]] = [["SET", key, text], ["BITPOS", key, bit]]
        requests += [["BITPOS", key, bit, start] for start in starts]
        requests += [["BITPOS", key, bit, start, -2] for start in starts]
        expected = [bit_model.bitpos(text, bit), *(bit_model.bitpos(text, bit, start) for start in starts)]
        expected += [bit_model.bitpos(text, bit, start, -2) for start in starts]
        both.expect(requests, expected, f"bit {bit} in {length} bytes")


@pytest.mark.parametrize("bit", [0, 1])
def test_bitpos_of_a_uniform_string_tells_what_lies_beyond(both: PairedServers, bit: int) -> None:
    for length in LENGTHS[1:]:
        text = bytes([0x00 if bit else 0xFF]) * length
        requests = [["SET", "k", text], ["BITPOS", "k", bit], ["BITPOS", "k", bit, 0, -1]]
        both.expect(requests, [bit_model.bitpos(text, bit), bit_model.bitpos(text, bit, 0, -1)], f"{length} bytes")


def test_setbit_grows_the_string_and_returns_the_old_bit(both: PairedServers) -> None:
    for length in EDGE_LENGTHS:
        text = both.some_bytes(length)
        offsets = [both.random.randrange(length * 8 + 80) for _ in range(12)]
        requests: list[list[Any]] = [["SET", "k", text]]
        expected: list[bytes | int] = [b"OK"]
        for offset in offsets:
            bit = both.random.randrange(2)
            requests += [["SETBIT", "k", offset, bit], ["GETBIT", "k", offset]]
            expected += [bit_model.getbit(text, offset), bit]
            text = bit_model.setbit(text, offset, bit)
        both.expect([*requests, ["GET", "k"]], [*expected, text], f"from {length} bytes")


def test_getbit_reads_every_bit_of_every_short_string(both: PairedServers) -> None:
    for length in EDGE_LENGTHS[:16]:
        text = both.some_bytes(length)
        offsets = range(length * 8 + 9)
        requests: list[list[Any]] = [["SET", "k", text], *(["GETBIT", "k", offset] for offset in offsets)]
        both.expect(requests, [bit_model.getbit(text, offset) for offset in offsets], f"{length} bytes")


def test_bit_commands_after_append_and_setrange_moved_the_string(both: PairedServers) -> None:
    """Growth changes the header, and with it the address of the first byte."""
    for length in (30, 31, 32, 43, 44, 45, 254, 255, 256):
        text, more = both.some_bytes(length), both.some_bytes(3)
        requests = [
            ["SET", "k", text],
            ["APPEND", "k", more],
            ["BITCOUNT", "k", 1, -1],
            ["SETRANGE", "k", length + 5, more],
            ["BITCOUNT", "k"],
            ["BITPOS", "k", 1, 1],
            ["BITOP", "NOT", "target", "k"],
            ["GET", "target"],
        ]
        appended = text + more
        ranged = appended + b"\0\0" + more
        expected = [b"OK", length + 3, bit_model.bitcount(appended, 1, -1), length + 8, bit_model.bitcount(ranged)]
        expected += [bit_model.bitpos(ranged, 1, 1), length + 8, bit_model.bitop("NOT", [ranged])]
        both.expect(requests, expected, f"{length} bytes")
