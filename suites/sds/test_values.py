"""Values with every size of header, sent at every offset in the query buffer, come back complete. So do their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.protocol.allowed_differences import excused
from harness.protocol.command_stream import command
from suites._shared.paired_servers import LENGTHS_BY_HEADER, differing

if TYPE_CHECKING:
    from harness.protocol.allowed_refusals import Release
    from harness.run.cell_spec import CellSpec
    from suites._shared.paired_servers import PairedServers

EMBSTR_LIMITS = [38, 39, 40, 43, 44, 45, 46]
"""The limit is 39 up to 3.0, whose header has 8 bytes, and 44 since 3.2 (OBJ_ENCODING_EMBSTR_SIZE_LIMIT).
Valkey 8.1 also counts the key: with a key of one byte the limit is 40, and 44 on 32-bit machines."""


@pytest.mark.parametrize("header", LENGTHS_BY_HEADER)
def test_a_value_is_stored_wherever_it_lies_in_the_query_buffer(both: PairedServers, header: str) -> None:
    for length in LENGTHS_BY_HEADER[header]:
        text = both.some_bytes(length)
        both.expect_at_every_offset(["SET", "k", text], b"OK", f"{length} bytes")
        both.expect([["STRLEN", "k"], ["GET", "k"]], [length, text], f"{length} bytes")
        both.expect_at_every_offset(["GETSET", "k", text], text, f"{length} bytes")


@pytest.mark.parametrize("header", LENGTHS_BY_HEADER)
def test_every_part_of_a_value_begins_where_it_was_asked_for(both: PairedServers, header: str) -> None:
    """GETRANGE makes a new string, whose length may need another header."""
    for length in LENGTHS_BY_HEADER[header]:
        text = both.some_bytes(length)
        ends = sorted({min(length, near) for near in (0, 1, 30, 31, 32, 44, 45, 254, 255, 256, 65534, 65535, length)})
        ranges = [(first, last) for first in (0, 1, 2, 3, 7) for last in ends]
        # Reversed ranges from the end are omitted, because releases differ in which end they clamp first.
        ranges += [(-last - 1, -1 - first) for first in (0, 1, 5) for last in ends if last >= first]
        requests: list[list[Any]] = [["SET", "k", text], *(["GETRANGE", "k", first, last] for first, last in ranges)]
        both.expect(requests, [part_of(text, first, last) for first, last in ranges], f"{length} bytes")


def part_of(text: bytes, first: int, last: int) -> bytes:
    """GETRANGE: both ends are included, negative ones count from the end, and ends out of range are clamped."""
    start = max(0, first + len(text)) if first < 0 else first
    end = max(0, last + len(text)) if last < 0 else last
    return text[start : end + 1] if start <= end else b""


def test_a_value_at_the_embedded_strings_limit_is_encoded_as_the_native_build_does(
    both: PairedServers, cell: CellSpec, release: Release
) -> None:
    asked = command("OBJECT", "ENCODING", "k")
    for length in EMBSTR_LIMITS:
        text = both.some_bytes(length)
        both.expect_at_every_offset(["SET", "k", text], b"OK", f"{length} bytes")
        guest, native = (server.command(*asked.words) for server in (both.guest, both.oracle))
        assert {guest, native} <= {b"embstr", b"raw"}
        if guest != native and not excused(asked, guest, native, cell.runner.target, release):
            raise differing(asked.words, guest, native, both.target, f"{length} bytes")
        requests = [["APPEND", "k", "x"], ["OBJECT", "ENCODING", "k"], ["GET", "k"]]
        both.expect(requests, [b"raw", text + b"x"], f"{length} bytes and one")


def test_numbers_come_back_as_they_were_sent(both: PairedServers) -> None:
    """A server stores a number as a `long` if it fits the target's, whose length may differ from the native build's."""
    for width in range(1, 22):
        for number in ("9" * width, "-" + "9" * width, "1" + "0" * (width - 1), "0" + "1" * width):
            both.expect_at_every_offset(["SET", "k", number], b"OK", number)
            both.expect([["GET", "k"], ["STRLEN", "k"]], [number.encode(), len(number)], number)
            both.expect([["APPEND", "k", "x"], ["GET", "k"]], [len(number) + 1, f"{number}x".encode()], number)


def test_counters_at_the_limits_of_32_and_64_bits(both: PairedServers) -> None:
    edges = [2**31 - 1, 2**31, 2**32 - 1, 2**32, -(2**31), -(2**31) - 1, 2**53, 2**63 - 2, -(2**63) + 1, 9999, 10000]
    for edge in edges:
        requests = [["SET", "k", edge], ["INCRBY", "k", 1], ["GET", "k"], ["DECRBY", "k", 2], ["GET", "k"]]
        expected = [edge + 1, str(edge + 1).encode(), edge - 1, str(edge - 1).encode()]
        both.expect(requests, expected, f"from {edge}")


def test_numbers_beyond_64_bits_are_refused_as_counters(both: PairedServers) -> None:
    for number in (2**63, -(2**63) - 1, 2**64, "9" * 40):
        after = both.ask([["SET", "k", number], ["INCR", "k"], ["GET", "k"]])
        assert isinstance(after[1], bytes), f"INCR of {number}: {after[1]!r}"
        assert after[1].startswith(b"error:"), f"INCR of {number}: {after[1]!r}"
        assert after[2] == str(number).encode()
