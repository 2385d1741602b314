"""Servers find commands in any mix of upper and lower case, at every offset in the query buffer, and reject unknown
names.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.paired_servers import OFFSETS, moved_on

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

PREPARATION = [
    ["SET", "k", "value"],
    ["HSET", "h", "f", "1"],
    ["SADD", "s", "m"],
    ["ZADD", "z", "2", "m"],
    ["RPUSH", "l", "a", "b"],
    ["PFADD", "p", "a"],
]
# Name -> its arguments, and the expected reply. The names have three or more letters.
COMMANDS: dict[str, tuple[list[Any], Any]] = {
    "GET": (["k"], b"value"),
    "PING": ([], b"PONG"),
    "ECHO": (["x"], b"x"),
    "TYPE": (["z"], b"zset"),
    "LLEN": (["l"], 2),
    "STRLEN": (["k"], 5),
    "EXISTS": (["k"], 1),
    "ZSCORE": (["z", "m"], b"2"),
    "HEXISTS": (["h", "f"], 1),
    "PFCOUNT": (["p"], 1),
    "GETRANGE": (["k", 1, 2], b"al"),
    "BITCOUNT": (["k", 0, 0], 5),
    "SMEMBERS": (["s"], [b"m"]),
    "SISMEMBER": (["s", "m"], 1),
    "SUNIONSTORE": (["t", "s"], 1),
    "ZRANGEBYLEX": (["z", "-", "+"], [b"m"]),
    "HINCRBYFLOAT": (["h", "g", 0], b"0"),
    "ZREVRANGEBYSCORE": (["z", "+inf", "-inf"], [b"m"]),
}
MIXTURES = 64


def mixtures(both: PairedServers, name: str) -> list[str]:
    """A short name in all mixes of upper and lower case, or a long name in some."""
    if 2 ** len(name) <= MIXTURES * both.effort:
        return ["".join(letters) for letters in product(*((letter, letter.lower()) for letter in name))]
    wanted = range(MIXTURES * both.effort)
    return [name, name.lower(), *("".join(both.random.choice((c, c.lower())) for c in name) for _ in wanted)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_known_in_every_mixture_of_cases_at_every_offset(both: PairedServers, name: str) -> None:
    arguments, expected = COMMANDS[name]
    both.ask([*PREPARATION, ["HDEL", "h", "g"]])
    requests = [[mixture, *arguments] for mixture in mixtures(both, name)]
    assert both.ask(moved_on(requests))[1::2] == [expected] * len(requests)


def test_every_command_of_the_server_is_known_in_a_mixture_of_cases(both: PairedServers) -> None:
    (table,) = both.oracle.pipeline([["COMMAND"]])
    if not isinstance(table, list):
        pytest.skip("the server has no COMMAND (it came with Redis 2.8.13)")
    names = [entry[0].decode() for entry in table if isinstance(entry, list) and isinstance(entry[0], bytes)]
    assert len(names) > 100
    for _ in range(both.effort):
        mixed = ["".join(both.random.choice((c, c.upper())) for c in name) for name in names]
        replies = both.guest.pipeline(moved_on([["COMMAND", "INFO", name] for name in mixed]))[1::2]
        for name, wrote, reply in zip(names, mixed, replies, strict=True):
            known = reply[0] if isinstance(reply, list) else reply
            assert isinstance(known, list), f"COMMAND INFO {wrote}: {reply!r:.200}"
            assert known[0] == name.encode(), f"COMMAND INFO {wrote} describes {known[0]!r}"


@pytest.mark.parametrize(
    "name",
    [b"GE", b"GETT", b"ETG", b"G\xc9T", b"g\xe9t", b"\0GET", b"get ", b"\xe7ET", b"GET" * 30, b"G\x05T"],
)
def test_what_only_resembles_a_command_is_unknown(both: PairedServers, name: bytes) -> None:
    """Bytes above 127 are not letters, whether the target's `char` is signed or unsigned."""
    for reply in both.ask(moved_on([[name, "k"]] * 16))[1::2]:
        assert isinstance(reply, bytes), f"{name!r} answered {reply!r}"
        assert reply.lower().startswith(b"error: err unknown command"), f"{name!r} answered {reply!r}"


def test_what_follows_a_nul_makes_a_name_unknown_or_is_overlooked(both: PairedServers) -> None:
    """Redis hashes the whole name and compares it as a C string (docs/FOUND.md).

    Whether GET followed by a NUL counts as GET therefore depends on the hash function's secret. The secret differs at
    every start, so there is no oracle.
    """
    both.ask(PREPARATION)
    names = [b"GET" + bytes(length) for length in range(1, OFFSETS + 1)]
    for name, reply in zip(names, both.guest.pipeline(moved_on([[name, "k"] for name in names]))[1::2], strict=True):
        unknown = isinstance(reply, Exception) and str(reply).lower().startswith("err unknown command")
        assert unknown or reply == b"value", f"{name!r} answered {reply!r}"


def test_options_and_subcommands_are_known_in_any_case(both: PairedServers) -> None:
    requests: list[list[Any]] = [
        ["set", "k", "v", "eX", 1000, "Nx"],
        ["oBjEcT", "EnCoDiNg", "k"],
        ["SoRt", "l", "bY", "NoSort", "LiMiT", 0, 1],
        ["zAdD", "z", "3", "n"],
        ["zRaNgE", "z", 0, -1, "wItHsCoReS"],
        ["bItOp", "nOt", "t", "k"],
        ["cOnFiG", "gEt", "databases"],
    ]
    both.ask([["RPUSH", "l", "a", "b"], ["ZADD", "z", 2, "m"]])
    replies = both.ask(moved_on(requests))[1::2]
    zrange = [b"m", b"2", b"n", b"3"]
    assert replies[1] in {b"embstr", b"raw"}, "embstr came with Redis 3.0"
    assert [replies[0], *replies[2:-1]] == [b"OK", [b"a"], 1, zrange, 1]
    assert replies[-1][1:] == [b"16"]  # type: ignore[index]
