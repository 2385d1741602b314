"""Keys, fields and members with every size of header. Servers choose special headers for these strings.

Some of them contain more than a string. Valkey 8 puts a key, and its expiry, into one block with the value's object,
and Valkey 9 a hash's field with its value; bits of the header (auxiliary bits) describe the content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.paired_servers import LENGTHS_BY_HEADER

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

every_header = pytest.mark.parametrize("lengths", LENGTHS_BY_HEADER.values(), ids=LENGTHS_BY_HEADER)

VALUE_LENGTHS = [0, 1, 12, 31, 32, 43, 44, 45, 64, 65, 127, 128, 256]
FAR_FUTURE = 33_000_000_000_000
"""The year 3015 in milliseconds: the time needs more than 32 bits, in seconds too."""


@every_header
def test_a_key_is_found_wherever_it_lies_in_the_query_buffer(both: PairedServers, lengths: list[int]) -> None:
    for length in lengths:
        key = both.some_bytes(length)
        what = f"key of {length} bytes"
        both.expect_at_every_offset(["SET", key, "value"], b"OK", what)
        both.expect_at_every_offset(["GET", key], b"value", what)
        both.expect([["DBSIZE"], ["TYPE", key], ["KEYS", "*"], ["DEL", key]], [1, b"string", [key], 1], what)


@every_header
def test_a_key_with_expiry_keeps_its_value(both: PairedServers, lengths: list[int]) -> None:
    for length, size in _with_sizes(lengths):
        key, other, text = both.some_bytes(length), both.some_bytes(length + 1), both.some_bytes(size)
        requests: list[list[Any]] = [
            ["SET", key, text],
            ["PEXPIREAT", key, FAR_FUTURE],
            ["GET", key],
            ["APPEND", key, "x"],
            ["RENAME", key, other],
            ["GET", other],
            ["PERSIST", other],
            ["GET", other],
            ["PTTL", other],
            ["DEL", other, key],
        ]
        longer = text + b"x"
        expected = [b"OK", 1, text, size + 1, b"OK", longer, 1, longer, -1, 1]
        both.expect(requests, expected, f"key of {length}, value of {size} bytes")


@every_header
def test_a_field_of_a_hash_table_keeps_its_value_as_it_grows_and_shrinks(
    both: PairedServers, lengths: list[int]
) -> None:
    for length in lengths:
        field, sizes = both.some_bytes(length), _sizes_beside(length)
        texts = [both.some_bytes(size) for size in (*sizes, *reversed(sizes[:-1]))]
        requests: list[list[Any]] = [["DEL", "h"], _MAKE_A_TABLE, ["HSETNX", "h", field, texts[0]]]
        expected: list[Any] = [1]
        for text in texts:
            requests += [["HSET", "h", field, text], ["HGET", "h", field]]
            expected += [0, text]
        requests += [["HSET", "h", field, 2**40], ["HINCRBY", "h", field, 1], ["HLEN", "h"], ["HDEL", "h", field]]
        both.expect(requests, [*expected, 0, 2**40 + 1, 2, 1], f"field of {length} bytes")


@every_header
def test_a_field_with_expiry_keeps_its_value(both: PairedServers, lengths: list[int]) -> None:
    if not both.has("HPEXPIREAT"):
        pytest.skip("fields do not expire here (they do from Redis 7.4 and Valkey 9.0 on)")
    for length, size in _with_sizes(lengths):
        field, text, other = both.some_bytes(length), both.some_bytes(size), both.some_bytes(size)
        one = ["FIELDS", 1, field]
        requests: list[list[Any]] = [
            ["DEL", "h"],
            _MAKE_A_TABLE,
            ["HSET", "h", field, text],
            ["HPEXPIREAT", "h", FAR_FUTURE, *one],
            ["HGET", "h", field],
            ["HPEXPIRETIME", "h", *one],
            ["HPERSIST", "h", *one],
            ["HGET", "h", field],
            ["HSET", "h", field, other],
            ["HGET", "h", field],
        ]
        expected = [1, [1], text, [FAR_FUTURE], [1], text, 0, other]
        both.expect(requests, expected, f"field of {length}, value of {size} bytes")


_MAKE_A_TABLE = ["HSET", "h", "another", "x" * 65]
"""A value of more than 64 bytes (hash-max-listpack-value) makes the hash a table from the start."""


def _sizes_beside(length: int) -> list[int]:
    """Lengths of values for a key or field of that length: all of them if the two share a block, otherwise a few."""
    return VALUE_LENGTHS if length <= 129 else [0, 12, 44, 128, 256]


def _with_sizes(lengths: list[int]) -> list[tuple[int, int]]:
    return [(length, size) for length in lengths for size in _sizes_beside(length)]


@every_header
def test_members_of_every_type_are_found_and_come_back_whole(both: PairedServers, lengths: list[int]) -> None:
    for length in lengths:
        member, other = both.some_bytes(length), b"another of " + both.some_bytes(length)
        requests: list[list[Any]] = [
            ["DEL", "s", "z", "l"],
            ["SADD", "s", member, other],
            ["SISMEMBER", "s", member],
            ["SREM", "s", other],
            ["SMEMBERS", "s"],
            ["ZADD", "z", 1.5, member, 2, other],
            ["ZINCRBY", "z", 1, member],
            ["ZRANK", "z", member],
            ["ZRANGE", "z", 0, -1],
            ["RPUSH", "l", member, other, member],
            ["LINDEX", "l", 1],
            ["LREM", "l", 0, member],
            ["LRANGE", "l", 0, -1],
            ["RPOPLPUSH", "l", "l"],
        ]
        expected: list[Any] = [2, 1, 1, [member], 2, b"2.5", 1, [other, member], 3, other, 2, [other], other]
        both.expect(requests, expected, f"members of {length} bytes")
