"""The measured cost of fuzzed streams for the servers includes all effects of the streams, which leave nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.protocol.command_stream import from_wire
from harness.protocol.resp import Client, info_fields
from tests.end_to_end.servers.test_attempt import both
from tools.fuzz_floor import Servers, bytes_of, ended, fuzzed, replayed, streams_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.server_process import Guest

pytestmark = pytest.mark.end_to_end


def commands_and_keys(server: Guest) -> tuple[int, int]:
    """The number of commands that a server has processed, and the number of its keys."""
    with Client.at_socket(server.upstream, deadline_seconds=10) as client:
        stats, size = client.pipeline([("INFO", "stats"), ("DBSIZE",)])
    assert isinstance(size, int)
    return int(info_fields(stats)["total_commands_processed"]), size


def test_both_servers_execute_every_command_of_the_writes_and_are_then_empty(tmp_path: Path) -> None:
    with both(tmp_path) as (guest, native, _):
        servers = Servers(guest, native)
        streams = streams_of(guest, 1, 4)
        pieces = bytes_of(servers, streams)
        for stream, piece in zip(streams, pieces, strict=True):
            assert from_wire(piece)[: len(stream)] == tuple(
                type(one)(words=one.words, inline=one.inline) for one in stream
            )
        before = [commands_and_keys(server)[0] for server in servers]
        cost = replayed(servers, [ended(piece) for piece in pieces])
        assert min(cost) >= 0
        simple = sum(
            one.name not in {"EVAL", "EVAL_RO", "EVALSHA", "FCALL", "FCALL_RO"} for one in from_wire(b"".join(pieces))
        )
        for server, earlier in zip(servers, before, strict=True):
            processed, keys = commands_and_keys(server)
            # Commands within a transaction or a script also count. A command that is refused for its words does not.
            assert processed - earlier > simple / 2
            assert keys == 0
        assert sum(fuzzed(servers, streams)) > 0
