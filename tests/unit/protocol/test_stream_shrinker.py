"""A failing stream becomes short, readable and simple, in few attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.protocol.command_stream import Command, Stream, command
from harness.protocol.stream_shrinker import Shrinker

if TYPE_CHECKING:
    from collections.abc import Callable


def shrunk(stream: Stream, fails: Callable[[Stream], bool], index: int | None = None) -> tuple[Stream, int]:
    """The shortest failing stream, and the number of attempts."""
    shrinker = Shrinker(fails, seconds=60, tries=2000)
    return shrinker.shrink(stream, len(stream) - 1 if index is None else index), shrinker.tries


def waiting(*words: bytes | str) -> Command:
    return msgspec.structs.replace(command(*words), waits=True)


def test_commands_are_sent_in_one_write_unless_the_failure_needs_a_pause() -> None:
    stream = (command("SET", "k", "v"), waiting("GET", "k"))
    assert shrunk(stream, lambda one: [each.name for each in one] == ["SET", "GET"])[0] == (
        stream[0],
        command("GET", "k"),
    )
    assert shrunk(stream, lambda one: len(one) == 2 and one[1].waits)[0] == stream


def test_of_a_command_with_many_pairs_half_goes_at_once() -> None:
    pairs = [word for number in range(32) for word in (f"f{number}", f"v{number}")]
    for needed in (b"f0", b"f31"):
        (left,), tries = shrunk((command("HSET", "h", *pairs),), lambda one, field=needed: field in one[0].words)  # type: ignore[misc]
        assert left.words[:2] == (b"HSET", b"h")
        assert needed in left.words
        assert len(left.words) <= 6
        assert tries < 15


def test_a_short_word_keeps_its_text_and_bytes_that_are_no_text_become_letters() -> None:
    stream = (command("ECHO", "text", b"\xff\0\x80"),)
    assert shrunk(stream, lambda one: len(one[0].words) == 3)[0] == (command("ECHO", "text", "aaa"),)


def test_runs_of_commands_go_together() -> None:
    stream = tuple(command("ECHO", number) for number in range(512))
    wanted = (stream[3], stream[400])
    # Which command failed is not known: the last one that may have.
    small, tries = shrunk(stream, lambda one: set(wanted) <= set(one))
    assert small == wanted
    assert tries < 100
