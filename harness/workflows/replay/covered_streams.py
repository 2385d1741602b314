"""Runs the commands of a wrong result, and neighbours of them, and keeps what the server executes in each run.

Every stream is sent to a new native server and to a new server on the target, which runs under the plugin that records
executed blocks. A run fails if its replies differ as in the finding, and passes if they agree.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.suspects import Spectrum
from harness.protocol.command_stream import read_stream
from harness.protocol.stream_neighbours import neighbours, with_fewer_commands
from harness.workflows.replay import shortening
from harness.workflows.replay.recorded_requests import chunks_of
from harness.workflows.replay.recurrence import STREAM
from harness.workflows.replay.replay import Replayer
from harness.workflows.target_setup import blocks_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.judge.reproducer import Reproducer
    from harness.protocol.command_stream import Stream
    from harness.workflows.workbench import Workbench

SECONDS = 120.0
"""Time limit of the search among neighbours. Each try starts two servers."""
NEIGHBOURS = 60
"""The largest number of neighbours that are tried."""


def covered_streams(
    bench: Workbench, reproducer: Reproducer, *, seconds: float = SECONDS, most: int = NEIGHBOURS
) -> tuple[Spectrum, str]:
    """The blocks that each run executed, or the reason why there are no runs.

    There are none if the commands alone do not show the finding: usually because the native build gives the same
    replies, so that only the test knows the right ones. Raises PlumblineError for a problem that is not the server's
    fault.
    """
    shortened = shortening.shorten(bench, reproducer)
    if shortened.why_not:
        return Spectrum(), shortened.why_not
    stream = shortened.stream
    drawn = similar_streams(reproducer, stream)
    replayer = Replayer(bench, reproducer, server="")
    plugin = blocks_plugin(bench)
    runs = Spectrum()
    for path in _stored_streams(bench):
        bench.progress.say(f"{reproducer.finding}: {path.name}")
        result, executed = replayer.replay_covered(_other(reproducer, read_stream(path)), plugin)
        # If it differs, it may show the finding or another one.
        if result.outcome == "gone":
            runs.add(executed, fails=False)
    deadline = time.monotonic() + seconds
    for number, candidate in enumerate(itertools.islice(itertools.chain([stream], drawn), most + 1), 1):
        if time.monotonic() > deadline:
            break
        bench.progress.say(f"{reproducer.finding}: stream {number}, of which {len(runs.failing)} show it")
        result, executed = replayer.replay_covered(shortening.with_commands(reproducer, candidate), plugin)
        if result.outcome != "unknown":
            runs.add(executed, fails=result.outcome == "reproduced")
    return runs, ""


def similar_streams(reproducer: Reproducer, stream: Stream) -> Iterator[Stream]:
    """The neighbours of a reproducer's stream that may show its finding or not."""
    # Only these very bytes are known to be wrong. Other words make other bytes, about which nothing is known.
    return with_fewer_commands(stream) if reproducer.again is not None else neighbours(stream)


def _stored_streams(bench: Workbench) -> list[Path]:
    """The streams in the suites' corpora: they execute the code that many commands have in common."""
    return sorted(path for suite in bench.catalog.suites.values() for path in suite.path.glob("corpus/*.stream"))


def _other(reproducer: Reproducer, stream: Stream) -> Reproducer:
    """Other commands for the reproducer's server. The only expected replies are the native build's."""
    return msgspec.structs.replace(
        reproducer, detector=STREAM, again=None, command="", files={}, options=(), chunks=chunks_of(stream)
    )
