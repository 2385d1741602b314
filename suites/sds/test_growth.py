"""Strings grow and shrink across header sizes. The bytes move by the difference of the sizes, but do not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

GROWTH = {
    f"around-{limit}": [(limit + near, more) for near in (-2, -1, 0, 1) for more in (1, 2, 3)]
    for limit in (31, 44, 255, 65535)
} | {"far": [(0, 32), (1, 256), (31, 225), (31, 65505), (44, 65536), (200, 56), (255, 65281), (256, 65280)]}
"""(Length, number of added bytes): around the greatest length of a header or an encoding, and across several."""

every_growth = pytest.mark.parametrize("growth", GROWTH)


@every_growth
def test_append_keeps_what_was_there(both: PairedServers, growth: str) -> None:
    for length, more in GROWTH[growth]:
        text, added = both.some_bytes(length), both.some_bytes(more)
        requests = [["SET", "k", text], ["APPEND", "k", added], ["STRLEN", "k"], ["GET", "k"]]
        both.expect(requests, [length + more, length + more, text + added], f"{length} and {more} bytes")


@every_growth
def test_setrange_beyond_the_end_fills_the_gap_with_zeros(both: PairedServers, growth: str) -> None:
    for length, more in GROWTH[growth]:
        text, last = both.some_bytes(length), both.some_bytes(1)
        grown = text + b"\0" * (more - 1) + last
        requests: list[list[Any]] = [["SET", "k", text], ["SETRANGE", "k", len(grown) - 1, last], ["GET", "k"]]
        both.expect(requests, [len(grown), grown], f"{length} bytes, then one {more} bytes further")


@pytest.mark.parametrize("length", [31, 32, 45, 255, 256, 65535, 65536])
def test_setrange_inside_changes_those_bytes_alone(both: PairedServers, length: int) -> None:
    text = both.some_bytes(length)
    both.ask([["SET", "k", text]])
    for size in (1, 2, 4, 8, 16, 31):
        for offset in {0, 1, 2, 3, 5, 7, length - size}:
            piece = both.some_bytes(size)
            text = (text[:offset] + piece + text[offset + size :])[:length]
            requests = [["SETRANGE", "k", offset, piece[: length - offset]], ["GET", "k"]]
            both.expect(requests, [length, text], f"{size} bytes at {offset} of {length}")


def test_a_string_built_byte_by_byte_passes_every_short_header(both: PairedServers) -> None:
    text = both.some_bytes(300)
    requests: list[list[Any]] = [["DEL", "k"]]
    expected: list[bytes | int] = []
    for number in range(len(text)):
        requests += [["APPEND", "k", text[number : number + 1]], ["GETRANGE", "k", 0, -1]]
        expected += [number + 1, text[: number + 1]]
    both.expect(requests, expected, "byte by byte")


def test_a_string_that_doubles_passes_every_header(both: PairedServers) -> None:
    """Free space grows with the string, so its header can be larger than its length requires."""
    text = b""
    both.ask([["DEL", "k"]])
    while len(text) < 200_000 * both.effort:
        piece = both.some_bytes(len(text) + 3)
        text += piece
        both.expect([["APPEND", "k", piece], ["GETRANGE", "k", -16, -1]], [len(text), text[-16:]], f"{len(text)} bytes")
    both.expect([["GET", "k"]], [text], "at the end")


@pytest.mark.parametrize("length", [32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 40_000, 65_535, 65_536, 100_000])
def test_a_large_argument_gives_back_the_room_it_was_read_with(both: PairedServers, length: int) -> None:
    """The argument reuses the query buffer's string. Storing it trims the free space, and with it the header."""
    text, more = both.some_bytes(length), both.some_bytes(7)
    requests: list[list[Any]] = [["SET", "k", text], ["GET", "k"], ["APPEND", "k", more], ["GET", "k"]]
    both.expect(requests, [text, length + 7, text + more], f"{length} bytes")
    requests = [["RPUSH", "l", text], ["LINDEX", "l", 0], ["HSET", "h", text[:100], text], ["HGET", "h", text[:100]]]
    both.expect([["DEL", "l", "h"], *requests], [1, text, 1, text], f"{length} bytes")


def test_shorter_and_longer_values_take_turns_under_one_key(both: PairedServers) -> None:
    lengths = [0, 65536, 31, 256, 1, 65535, 32, 255, 44, 70000, 45, 0]
    texts = [both.some_bytes(length) for length in lengths]
    requests = [request for text in texts for request in (["SET", "k", text], ["GET", "k"])]
    expected = [answer for text in texts for answer in (b"OK", text)]
    both.expect(requests, expected, f"{lengths} bytes")


def test_setrange_with_nothing_makes_no_key(both: PairedServers) -> None:
    requests = [["DEL", "k"], ["SETRANGE", "k", 65536, ""], ["EXISTS", "k"], ["APPEND", "k", ""], ["STRLEN", "k"]]
    both.expect(requests, [0, 0, 0, 0], "nothing")
