"""Command streams as text and on the wire: conversions in both directions, as redis-cli and the server read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.protocol.command_stream import (
    Command,
    clients_of,
    command,
    from_text,
    from_wire,
    line_of,
    pieces,
    read_stream,
    split_words,
    text_of,
    until_command,
    wire,
)

if TYPE_CHECKING:
    from pathlib import Path

words = st.lists(st.binary(max_size=40), min_size=1, max_size=5).map(tuple)
commands = st.builds(Command, words=words, inline=st.booleans(), waits=st.booleans())
streams = st.lists(commands, min_size=1, max_size=6).map(tuple)


@given(streams)
@example((Command(words=(b"*\\!",), inline=True),))
@example((Command(words=(b"@\\", b"\\")),))
def test_text_and_back_is_the_same_stream(stream: tuple[Command, ...]) -> None:
    assert from_text(text_of(stream)) == stream


@given(streams)
def test_text_is_one_printable_line_a_command(stream: tuple[Command, ...]) -> None:
    lines = [line for line in text_of(stream).split("\n") if line]
    assert len(lines) == len(stream)
    assert all(line.isascii() and line.isprintable() for line in lines)


@given(streams)
@example((Command(words=(b"*",), inline=True, waits=False),))
def test_wire_and_back_has_the_same_words_in_the_same_form(stream: tuple[Command, ...]) -> None:
    read = from_wire(wire(stream))
    assert [(one.words, one.inline) for one in read] == [(one.words, one.inline) for one in stream]
    assert wire(read) == wire(stream)


@given(streams)
def test_arrays_are_what_an_independent_parser_reads(stream: tuple[Command, ...]) -> None:
    reader = hiredis.Reader()
    arrays = [one for one in stream if not one.inline]
    reader.feed(wire(arrays))
    assert [tuple(reader.gets()) for _ in arrays] == [one.words for one in arrays]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'SET "a b" c', (b"SET", b"a b", b"c")),
        (rb'SET "\x00\xfF\n\t\"\\" \x41', (b"SET", b'\x00\xff\n\t"\\', rb"\x41")),
        (rb"SET 'it\'s' '\n'", (b"SET", b"it's", rb"\n")),
        (b'ECHO ""', (b"ECHO", b"")),
        (b"  PING  ", (b"PING",)),
        (b"", ()),
    ],
)
def test_words_are_split_as_redis_cli_does(line: bytes, expected: tuple[bytes, ...]) -> None:
    assert split_words(line) == expected


@pytest.mark.parametrize("line", [b'SET "a', b"SET 'a", b'SET "a"b', b'SET a"b"'])
def test_unbalanced_quotes_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="do not balance"):
        split_words(line)


def test_an_indented_line_is_inline_and_an_empty_one_waits() -> None:
    stream = from_text("SET k 1\n PING a\n\nGET k\n")
    assert [(one.name, one.inline, one.waits) for one in stream] == [
        ("SET", False, False),
        ("PING", True, False),
        ("GET", False, True),
    ]
    assert wire(stream[:2]) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\nPING a\r\n"
    assert [len(piece) for piece in pieces(stream)] == [2, 1]


def test_a_line_says_which_client_sends_it() -> None:
    text = 'SET k 1\n@2 GET k\n\n@2  PING a\n"@2" b\n'
    stream = from_text(text)
    assert [(one.client, one.inline, one.waits, one.words) for one in stream] == [
        (0, False, False, (b"SET", b"k", b"1")),
        (1, False, False, (b"GET", b"k")),
        (1, True, True, (b"PING", b"a")),
        (0, False, False, (b"@2", b"b")),
    ]
    assert text_of(stream) == text
    assert clients_of(stream) == 2
    assert clients_of(from_text("GET k")) == 1


@pytest.mark.parametrize(
    "content", [b"*2\r\n$3\r\nGET\r\n", b"*1\r\n$9\r\nPING\r\n", b"*x\r\n", b'PING "a\r\n', b"PING"]
)
def test_wire_ends_at_an_incomplete_command(content: bytes) -> None:
    good = wire((command("SET", "k", 1),))
    assert [line_of(one) for one in from_wire(good + content)] == ["SET k 1"]


@pytest.mark.parametrize(("text", "why"), [('SET k "', "line 1"), ("PING\nGET '\n", "line 2"), ("\n\n", "empty")])
def test_a_file_that_is_not_a_stream_is_a_usage_error(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "a.stream"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match="stream") as error:
        read_stream(path)
    assert why in str(error.value)
    assert str(path) in str(error.value)


def test_the_commands_of_a_test_end_with_the_last_one_before_it_failed() -> None:
    stream = from_text("LATENCY RESET\nGET a\nLATENCY RESET\nCONFIG SET x 1")
    assert until_command(stream, "LATENCY RESET") == stream[:3]
    assert until_command(stream, "GET a") == stream[:2]
    assert until_command(stream, "GET b") == ()
    assert until_command((), "GET b") == ()
