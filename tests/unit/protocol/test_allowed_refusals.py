"""A server with a 32-bit `long` may refuse exactly the numbers in harness/protocol/refusals.toml, with those errors."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from harness.protocol import allowed_refusals
from harness.protocol.allowed_refusals import Release
from harness.protocol.command_stream import command
from suites.width import requests

REDIS = Release("redis", (7, 0, 15))
OUT = "ERR value is out of range"
NO_INTEGER = "ERR value is not an integer or out of range"
WIDE = 1 << 32


Words = tuple[str | int, ...]


def is_refusal(words: Words, says: str, *, release: Release = REDIS, native: str | None = None, bits: int = 32) -> bool:
    return allowed_refusals.refused(command(*words), says, native, release, bits) is not None


def test_an_index_that_does_not_fit_a_long_may_be_refused() -> None:
    assert is_refusal(("LINDEX", "l", WIDE), OUT)
    assert is_refusal(("lrange", "l", 0, -WIDE), OUT)
    assert is_refusal(("ZRANGEBYSCORE", "z", 0, 1, "limit", 1, WIDE), OUT)


@pytest.mark.parametrize(
    "words",
    [
        ("HINCRBY", "h", "f", WIDE),
        ("INCRBY", "n", WIDE),
        ("XRANGE", "s", WIDE, WIDE),
        ("ZADD", "z", WIDE, "m"),
        ("SET", "k", "v", "EXAT", WIDE),
        ("CONFIG", "SET", "maxmemory", WIDE),
        ("LINDEX", "l", (1 << 31) - 1),
        ("LINDEX", "l", -(1 << 31)),
        ("LINDEX", str(WIDE), 0),
        ("LINDEX", "l"),
        ("LPUSH", "l", WIDE),
        ("ZRANGEBYSCORE", "z", WIDE, WIDE, "LIMIT", 0, 1),
        ("ZRANGEBYSCORE", "z", 0, 1, "LIMIT", WIDE - WIDE, 1, WIDE),
    ],
)
def test_no_other_command_and_no_other_number_may_be_refused(words: Words) -> None:
    assert not is_refusal(words, OUT)
    assert not is_refusal(words, NO_INTEGER)


def test_a_number_may_be_refused_only_with_the_listed_error_and_on_32_bits() -> None:
    assert not is_refusal(("LINDEX", "l", WIDE), NO_INTEGER)
    assert not is_refusal(("LINDEX", "l", WIDE), OUT, bits=64)
    assert allowed_refusals.refused(command("LINDEX", "l", WIDE), None, None, REDIS, 32) is None


def test_each_release_parses_numbers_in_its_own_way() -> None:
    for version, may in (((6, 2, 14), True), ((7,), False), ((8, 0, 6), False)):
        assert is_refusal(("BITCOUNT", "k", 0, WIDE), OUT, release=Release("redis", version)) == may
    assert not is_refusal(("BITCOUNT", "k", 0, WIDE), OUT, release=Release("valkey", (9, 1, 2)))
    assert is_refusal(("LINDEX", "l", WIDE), OUT, release=Release("valkey", (9, 1, 2)))


def test_a_number_refused_on_both_must_be_refused_on_64_bits() -> None:
    assert is_refusal(("SELECT", WIDE), OUT, native="ERR value is out of range, value must between")
    assert not is_refusal(("SELECT", WIDE), OUT)


def test_a_commands_own_limit_applies() -> None:
    between = f"{OUT}, value must between -2147483647 and 2147483647"
    assert is_refusal(("SRANDMEMBER", "s", -(1 << 31)), between)
    assert not is_refusal(("SRANDMEMBER", "s", 1 - (1 << 31)), between)
    assert not is_refusal(("SRANDMEMBER", "s", -(1 << 31)), OUT)


def test_the_program_determines_the_family() -> None:
    assert allowed_refusals.release_of(Path("x/valkey-server"), (9,)) == ("valkey", (9,))


def test_the_width_suite_requests_every_listed_refusal() -> None:
    """The suite fails for a listed refusal that no longer occurs, so an entry cannot hide a later bug."""
    sent = [command(*one) for some in requests.groups().values() for one in some]
    sent += [command("LSET", "l", index, "x") for index in requests.SIGNED]  # LSET has a separate test
    never = []
    for one in allowed_refusals.listed():
        family, first = ("redis", one.redis[0]) if one.redis else ("valkey", one.valkey[0])
        release = Release(family, tuple(map(int, first.split("."))))
        for name, place in itertools.product(one.commands, one.at):
            here = msgspec.structs.replace(one, commands=[name], at=[place])
            if not any(here.applies_to(request, release) for request in sent):
                never.append(f"{name} at {place}: {one.says}")
        assert len(one.source) > 20 or one.source == "the same"
    assert never == []
