"""Shortens a reproducer to the fewest commands and the shortest words that still show its finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Record
from harness.protocol.command_stream import from_text, line_of
from harness.protocol.stream_shrinker import Shrinker
from harness.workflows.replay.recorded_requests import chunks_of, sent_stream
from harness.workflows.replay.replay import Replayer

if TYPE_CHECKING:
    from harness.judge.reproducer import Reproducer
    from harness.protocol.command_stream import Stream
    from harness.workflows.replay.replay_result import Replay
    from harness.workflows.workbench import Workbench

SECONDS = 120.0
"""The time limit of a search. Every try starts a server."""
TRIES = 300


class Shortened(Record, frozen=True):
    """The result of a search."""

    reproducer: Reproducer
    """The shortest reproducer that still shows the finding; the given one if no shorter one does."""
    stream: Stream
    """Its commands; empty if no client sends any, or if they are unreadable."""
    commands_before: int
    tries: int
    why_not: str = ""
    """Why the reproducer is the given one; empty if it was shortened, or cannot be any shorter."""
    differing: str = ""
    """The name of the command with a wrong reply, if the commands do not show the finding but another wrong reply."""


def shorten(
    bench: Workbench, reproducer: Reproducer, *, server: str = "", seconds: float = SECONDS, tries: int = TRIES
) -> Shortened:
    """Search. `server` replaces the recorded one. Raises PlumblineError for a problem that is not the server's
    fault.
    """
    stream = commands_of(reproducer)

    def same(why: str, differing: str = "") -> Shortened:
        before = len(stream)
        return Shortened(
            reproducer=reproducer, stream=stream, commands_before=before, tries=0, why_not=why, differing=differing
        )

    if reproducer.unit or reproducer.upstream:
        return same("no client sends commands: the finding comes from a test that runs by itself")
    if reproducer.starting:
        return same("the server ends before a client can send anything")
    if not stream:
        return same("the clients' data cannot be read as commands")
    replayer = Replayer(bench, reproducer, server=server)

    def replayed(candidate: Stream) -> Replay:
        return replayer.replay(with_commands(reproducer, candidate), silence_proved=False)

    whole = replayed(stream)
    if whole.outcome != "reproduced":
        return same("the commands without the recorded replies do not reproduce the finding", whole.differing)
    shrinker = Shrinker(lambda one: replayed(one).outcome == "reproduced", seconds=seconds, tries=tries)
    shortest = shrinker.shrink(stream, len(stream) - 1)
    return Shortened(
        reproducer=with_commands(reproducer, shortest),
        stream=shortest,
        commands_before=len(stream),
        tries=shrinker.tries + 1,
    )


def commands_of(reproducer: Reproducer) -> Stream:
    """The commands of a reproducer; empty if there are none, or if they are unreadable."""
    if reproducer.again is not None:
        return from_text("\n".join(reproducer.again.requests))
    return sent_stream(reproducer.chunks)


def with_commands(reproducer: Reproducer, stream: Stream) -> Reproducer:
    """The reproducer with other commands."""
    if reproducer.again is not None:
        again = msgspec.structs.replace(reproducer.again, requests=tuple(line_of(one) for one in stream))
        return msgspec.structs.replace(reproducer, again=again)
    return msgspec.structs.replace(reproducer, chunks=chunks_of(stream))
