"""How several clients take turns: what is sent at once, and what waits for the answers to all before it."""

from __future__ import annotations

import random

import pytest

from harness.protocol.command_stream import from_text, text_of
from harness.protocol.conversation import LARGEST_TURN_BYTES, turns_of
from suites.fuzz.generate import generate


def turns(text: str) -> list[str]:
    """The turns of a stream, each as text in one line."""
    return [text_of(turn).replace("\n", "; ").strip("; ") for turn in turns_of(from_text(text))]


def test_commands_of_one_client_are_a_turn() -> None:
    assert turns("SET a 1\nGET a\n@2 GET a\n@2 LLEN l\nGET b\n") == ["SET a 1; GET a", "@2 GET a; @2 LLEN l", "GET b"]


@pytest.mark.parametrize(
    "alone",
    [
        "BLPOP l 0",
        "XREAD BLOCK 0 STREAMS x $",
        "SUBSCRIBE c",
        "CLIENT KILL ID 3",
        "CLIENT",
        "HELLO 3",
        "RESET",
        "QUIT",
    ],
)
def test_what_blocks_or_changes_a_connection_is_a_turn_of_its_own(alone: str) -> None:
    assert turns(f"PING\n{alone}\nGET a\nGET b\n@2 PING\n") == ["PING", alone, "GET a; GET b", "@2 PING"]


@pytest.mark.parametrize("torn", ["MULTI", "XREADGROUP GROUP g c STREAMS x >"])
def test_what_messages_may_tear_is_a_turn_of_its_own_where_a_client_subscribes(torn: str) -> None:
    assert turns(f"PING\n{torn}\nGET a\n@2 SUBSCRIBE c\n") == ["PING", torn, "GET a", "@2 SUBSCRIBE c"]
    assert turns(f"PING\n{torn}\nGET a\n@2 PING\n") == [f"PING; {torn}; GET a", "@2 PING"]


def test_what_a_client_asks_of_itself_is_part_of_a_turn() -> None:
    text = "@2 CLIENT ID; @2 client tracking ON; @2 GET a"
    assert turns("PING\n" + text.replace("; ", "\n") + "\n") == ["PING", text]


def test_a_command_that_ends_its_wait_by_itself_is_part_of_a_turn() -> None:
    assert turns("LPUSH l a\nBLPOP m 0.002\nLLEN l\n@2 PING\n")[0] == "LPUSH l a; BLPOP m 0.002; LLEN l"


def test_a_command_that_waits_begins_a_turn() -> None:
    assert len(turns_of(from_text("GET a\n\nGET b\nGET c\n@2 PING\n"))) == 3


def test_a_server_reads_a_turn_at_once() -> None:
    word = "x" * (LARGEST_TURN_BYTES // 3)
    assert [len(turn) for turn in turns_of(from_text(f"ECHO {word}\n" * 6 + "@2 PING\n"))] == [2, 2, 2, 1]


def test_no_command_is_lost_or_moved() -> None:
    for seed in range(100):
        stream = generate(random.Random(seed), ["blocking", "tracking", "channels", "clients"])
        assert tuple(one for turn in turns_of(stream) for one in turn) == stream
        assert all(len({one.client for one in turn}) == 1 for turn in turns_of(stream))
