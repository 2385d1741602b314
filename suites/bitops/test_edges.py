"""Edge cases of the bit commands: ranges in bits, numbers, missing keys, requested overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import bit_model
from suites._shared.paired_servers import EDGE_LENGTHS, LENGTHS_BY_HEADER

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

WIDTHS = [1, 5, 8, 16, 31, 32, 33, 63, 64]


@pytest.fixture
def ranges_in_bits(both: PairedServers) -> None:
    """Skip the test if BITCOUNT and BITPOS do not support them."""
    answer = both.ask([["SET", "k", "x"], ["BITCOUNT", "k", 0, 0, "BIT"]])[1]
    if not isinstance(answer, int):
        pytest.skip("ranges can be in bits only since Redis 7.0")


@pytest.mark.usefixtures("ranges_in_bits")
def test_bitcount_and_bitpos_of_ranges_in_bits(both: PairedServers) -> None:
    for length in EDGE_LENGTHS[1:]:
        text = both.some_bytes(length)
        bits = [bit_model.getbit(text, at) for at in range(8 * length)]
        requests: list[list[Any]] = [["SET", "k", text]]
        expected: list[Any] = [b"OK"]
        for _ in range(12):
            first, last = sorted(both.random.randrange(8 * length) for _ in range(2))
            chosen = bits[first : last + 1]
            requests.append(["BITCOUNT", "k", first, last - 8 * length, "BIT"])
            expected.append(sum(chosen))
            for bit in (0, 1):
                requests.append(["BITPOS", "k", bit, first, last, "BIT"])
                expected.append(first + chosen.index(bit) if bit in chosen else -1)
        both.expect(requests, expected, f"{length} bytes")


@pytest.mark.parametrize("command", ["BITCOUNT", "BITPOS"])
def test_a_range_at_every_offset_in_the_query_buffer(both: PairedServers, command: str) -> None:
    for lengths in LENGTHS_BY_HEADER.values():
        text = both.some_bytes(lengths[-1])
        both.ask([["SET", "k", text]])
        if command == "BITCOUNT":
            both.expect_at_every_offset(
                ["BITCOUNT", "k", 1, -2], bit_model.bitcount(text, 1, -2), f"{lengths[-1]} bytes"
            )
        else:
            both.expect_at_every_offset(["BITPOS", "k", 1, 3], bit_model.bitpos(text, 1, 3), f"{lengths[-1]} bytes")


@pytest.mark.parametrize("operation", ["AND", "OR", "XOR"])
def test_bitop_of_strings_with_every_header(both: PairedServers, operation: str) -> None:
    """The bytes of such strings begin 1, 3, 5 and 9 bytes after an aligned address."""
    texts = {f"source:{name}": both.some_bytes(lengths[-1]) for name, lengths in LENGTHS_BY_HEADER.items()}
    both.ask([["SET", name, text] for name, text in texts.items()])
    names = list(texts)
    for turn in range(len(names)):
        chosen = names[turn:] + names[:turn]
        for count in (2, 3, 4):
            result = bit_model.bitop(operation, [texts[name] for name in chosen[:count]])
            requests = [["BITOP", operation, "target", *chosen[:count]], ["GET", "target"]]
            both.expect(requests, [len(result), result], f"{operation} of {chosen[:count]}")


def test_bitop_of_keys_that_are_not_there_and_of_the_target_itself(both: PairedServers) -> None:
    for length in (1, 8, 31, 32, 33, 64, 129, 256):
        text = both.some_bytes(length)
        requests: list[list[Any]] = [["DEL", "none", "target"], ["SET", "k", text], ["RPUSH", "target", "a list"]]
        requests += [["BITOP", "AND", "target", "k", "none"], ["GET", "target"]]
        requests += [["BITOP", "OR", "target", "none", "k"], ["GET", "target"]]
        requests += [["BITOP", "NOT", "k", "k"], ["GET", "k"], ["BITOP", "XOR", "k", "k", "k"], ["GET", "k"]]
        requests += [["BITOP", "OR", "target", "none"], ["EXISTS", "target"]]
        zeros = b"\0" * length
        expected = [length, zeros, length, text, length, bit_model.bitop("NOT", [text]), length, zeros, 0, 0]
        both.expect(requests, expected, f"{length} bytes")


def test_numbers_are_strings_of_their_digits(both: PairedServers) -> None:
    """A server stores a number as an integer, and converts it to a string for each command."""
    for number in (0, 7, -1, 9999, 10000, 2**31 - 1, -(2**31), 2**63 - 1):
        text = b"%d" % number
        requests: list[list[Any]] = [["SET", "k", number], ["BITCOUNT", "k"], ["BITPOS", "k", 1], ["GETBIT", "k", 3]]
        requests += [
            ["BITOP", "NOT", "target", "k"],
            ["GET", "target"],
            ["SETBIT", "k", 8 * len(text), 1],
            ["GET", "k"],
        ]
        expected: list[Any] = [
            b"OK",
            bit_model.bitcount(text),
            bit_model.bitpos(text, 1),
            bit_model.getbit(text, 3),
            len(text),
        ]
        expected += [bit_model.bitop("NOT", [text]), 0, text + b"\x80"]
        both.expect(requests, expected, f"{number}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_overflow_saturates_or_fails_as_asked(both: PairedServers, width: int, signed: bool) -> None:
    if not both.has("BITFIELD"):
        pytest.skip("the server has no BITFIELD (it came with Redis 3.2)")
    if not signed and width == 64:
        pytest.skip("64 unsigned bits do not exist: a RESP integer is signed")
    lowest, highest = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    kind, offset = f"{'i' if signed else 'u'}{width}", f"#{both.random.randrange(3)}"
    for start, step in ((highest, 1), (lowest, -1), (highest - 1, 5), (highest, -1), (lowest, 1)):
        if not lowest <= start <= highest:
            continue
        exact = start + step
        saturated = min(max(exact, lowest), highest)
        requests: list[list[Any]] = [["DEL", "k"], ["BITFIELD", "k", "SET", kind, offset, start]]
        requests.append(["BITFIELD", "k", "OVERFLOW", "FAIL", "INCRBY", kind, offset, step, "GET", kind, offset])
        fails = exact != saturated
        requests.append(["BITFIELD", "k", "SET", kind, offset, start, "OVERFLOW", "SAT", "INCRBY", kind, offset, step])
        failed = [None, start] if fails else [exact, exact]
        stored = start if fails else exact
        both.expect(requests, [[0], failed, [stored, saturated]], f"{start} and {step} more")
