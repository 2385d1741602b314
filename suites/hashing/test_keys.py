"""Servers find a key of every length at every offset, and do not confuse it with another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.paired_servers import OFFSETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suites._shared.paired_servers import PairedServers

LENGTHS = range(65)
"""Up to eight words, with every possible remainder: hash functions read 4, 8 or 16 bytes at a time."""
GROUPS = {"0-16": LENGTHS[:17], "17-32": LENGTHS[17:33], "33-48": LENGTHS[33:49], "49-64": LENGTHS[49:]}

every_length = pytest.mark.parametrize("lengths", [*GROUPS.values(), [255, 256, 1000]], ids=[*GROUPS, "long"])


@every_length
def test_a_key_stored_at_any_offset_is_found_at_every_other(both: PairedServers, lengths: Sequence[int]) -> None:
    for length in lengths:
        key = both.some_bytes(length)
        shift = both.random.randrange(OFFSETS)
        both.expect([["ECHO", "x" * shift], ["SET", key, length]], [b"OK"], f"key of {length} bytes")
        both.expect_at_every_offset(
            ["GET", key], b"%d" % length, f"key of {length} bytes, stored after {shift} other bytes"
        )
    both.expect([["DBSIZE"]], [len(lengths)], "each key once")


@every_length
def test_a_key_that_differs_in_one_bit_is_another_key(both: PairedServers, lengths: Sequence[int]) -> None:
    for length in lengths:
        key = both.some_bytes(length)
        both.ask([["FLUSHALL"], ["SET", key, "value"]])
        others = [changed(key, both.random.randrange(8 * length)) for _ in range(length and 24)]
        requests = [["EXISTS", other] for other in (*others, key[:-1], key + b"\0", b"\0" + key) if other != key]
        both.expect([*requests, ["EXISTS", key]], [*([0] * len(requests)), 1], f"beside a key of {length} bytes")


def changed(text: bytes, bit: int) -> bytes:
    """The text with one bit inverted."""
    whole = int.from_bytes(text) ^ 1 << bit
    return whole.to_bytes(len(text))


@every_length
def test_fields_and_members_are_found_at_every_offset(both: PairedServers, lengths: Sequence[int]) -> None:
    """The elements are in tables from the start, because an element of more than 64 bytes forces this encoding."""
    both.ask([["HSET", "h", "table", "x" * 65], ["SADD", "s", "x" * 65], ["ZADD", "z", 0, "x" * 65]])
    for number, length in enumerate(lengths, start=1):
        member = both.some_bytes(length)
        requests: list[list[Any]] = [
            ["HSET", "h", member, length],
            ["SADD", "s", member],
            ["ZADD", "z", length, member],
        ]
        both.expect(requests, [1, 1, 1], f"member of {length} bytes")
        both.expect_at_every_offset(["HGET", "h", member], b"%d" % length, f"field of {length} bytes")
        both.expect_at_every_offset(["SISMEMBER", "s", member], 1, f"member of {length} bytes")
        both.expect_at_every_offset(["ZSCORE", "z", member], b"%d" % length, f"member of {length} bytes")
        both.expect([["HLEN", "h"], ["SCARD", "s"], ["ZCARD", "z"]], [number + 1] * 3, "each element once")


def test_keys_that_share_long_prefixes_are_told_apart(both: PairedServers) -> None:
    """The keys differ in the last bytes, in each of the last two words, or only in length."""
    prefix = both.some_bytes(40)
    names = [prefix[:cut] + bytes(tail) for cut in range(24, 41) for tail in ([0], [0, 0], [1], [255], [0, 1], [128])]
    requests: list[list[Any]] = [["SET", name, number] for number, name in enumerate(names)]
    stored = {name: str(number).encode() for number, name in enumerate(names)}
    both.ask(requests)
    both.expect([["GET", name] for name in names], [stored[name] for name in names], "shared prefixes")
    both.expect([["DBSIZE"]], [len(stored)], "each key once")


def test_keys_of_words_that_swap_are_told_apart(both: PairedServers) -> None:
    """The same words in another order, and the same bytes reversed: a byte-order bug confuses them."""
    word = bytes(range(1, 9))
    names = [word, word[::-1], word[4:] + word[:4], word[:4][::-1] + word[4:][::-1], word * 2, word + word[::-1]]
    names += [word[::-1] + word, word[:7], word[:7][::-1], word[:3], word[:3][::-1], word[:2], word[:2][::-1]]
    both.ask([["SET", name, number] for number, name in enumerate(names)])
    for number, name in enumerate(names):
        both.expect_at_every_offset(["GET", name], b"%d" % number, f"key {name.hex()}")
