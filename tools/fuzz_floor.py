"""`python -m tools.fuzz_floor TARGET SERVER`: what fuzzed streams cost the servers alone, and what the harness adds.

The same streams are sent in three ways: as `plumb fuzz` does, in one write each, and ten to a write. In the latter two,
the bytes were made before, each server has them from a plain socket, and replies are received and thrown away. What
these take is the least that any harness could reach with these servers. Everything that a stream brings about is
included: its commands, the reading of all stored data, and what restores the server. Streams of two clients, who take
turns, and those after which a client does not remain are left out. Time is that of the processes, not of the clock.
docs/explanation.md has the results.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import psutil  # type: ignore[import-untyped]

from harness.core.sockets import connect
from harness.core.target_model import ORACLE
from harness.protocol import pipeline
from harness.protocol.command_stream import clients_of, command, wire
from harness.protocol.resp import Client
from harness.report.markdown_table import table
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.target_setup import set_up_targets
from harness.workflows.workbench import Workbench
from suites.fuzz.attempt import attempt
from suites.fuzz.emptying import RESET, Emptying, leaves_client
from suites.fuzz.generate import generate
from suites.fuzz.stored_data import stored

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from harness.protocol.command_stream import Stream

TOGETHER = 10
"""Streams in one write of the third way."""
_SELDOM = command("CONFIG", "SET", "hz", 10)
_END = b"(the end of this write)"
_END_REPLY = b"$%d\r\n%b\r\n" % (len(_END), _END)


class Cost(NamedTuple):
    """Processor seconds of some streams, by process."""

    guest: float
    native: float
    sender: float


class Servers(NamedTuple):
    """A guest with enforcement and coverage, as in `plumb fuzz`, and the native build."""

    guest: Guest
    native: Guest

    def used(self) -> Cost:
        """What each has used so far, and this process."""
        return Cost(_used(self.guest), _used(self.native), time.process_time())


def _used(server: Guest) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def streams_of(guest: Guest, seed: int, count: int) -> list[Stream]:
    """So many streams of the grammar after which a client remains."""
    drawn = random.Random(seed)
    streams: list[Stream] = []
    while len(streams) < count:
        stream = generate(drawn)
        if clients_of(stream) == 1 and leaves_client(guest, stream):
            streams.append(stream)
    return streams


def bytes_of(servers: Servers, streams: Sequence[Stream]) -> list[bytes]:
    """The bytes that cause everything that happens to a server for each stream. The native build determines how many
    replies to read.
    """
    emptying = Emptying()
    pieces = []
    try:
        for stream in streams:
            emptying.empty(servers.native)
            with Client.at_socket(servers.native.upstream, deadline_seconds=20) as client:
                pipeline.ask(client, stream)
            read = stored(emptying.control(servers.native), None)
            restoring = emptying.restoring(servers.native, stream)
            emptying.sent(servers.native, stream)
            pieces.append(wire((*stream, RESET, *read, *restoring)))
    finally:
        emptying.close()
    return pieces


def ended(content: bytes) -> bytes:
    """A write after whose last reply nothing comes."""
    return content + wire((command("ECHO", _END),))


def throw_away_replies(connection: socket.socket) -> None:
    """Receive the replies to a write. Raises OSError if the server is gone or does not reply in time."""
    received = b""
    while not received.endswith(_END_REPLY):
        piece = connection.recv(1 << 20)
        if not piece:
            raise ConnectionError("the server closed the connection")
        received = (received + piece)[-len(_END_REPLY) :]


def replayed(servers: Servers, writes: Sequence[bytes]) -> Cost:
    """Send each write to both servers, which work at the same time, before the next one. Returns what that took."""
    with (
        connect(servers.guest.upstream, deadline_seconds=60) as to_guest,
        connect(servers.native.upstream, deadline_seconds=60) as to_native,
    ):
        for connection in (to_guest, to_native):
            # The fuzzer lets timers run often, for what blocks a client for a moment. They are not part of the least.
            connection.sendall(ended(wire((_SELDOM,))))
            throw_away_replies(connection)
        before = servers.used()
        for content in writes:
            to_native.sendall(content)
            to_guest.sendall(content)
            throw_away_replies(to_native)
            throw_away_replies(to_guest)
        return Cost(*(now - then for now, then in zip(servers.used(), before, strict=True)))


def fuzzed(servers: Servers, streams: Sequence[Stream]) -> Cost:
    """Send the streams and compare the servers as `plumb fuzz` does, and look at the edges that the guest took."""
    emptying = Emptying()
    before = servers.used()
    try:
        for stream in streams:
            failure, _ = attempt(servers.guest, servers.native, stream, emptying, checkpoint=True)
            if failure is not None:
                raise click.ClickException(f"the server has a bug; measure another one: {failure.message}")
            if servers.guest.edges is not None:
                servers.guest.edges.new()
        return Cost(*(now - then for now, then in zip(servers.used(), before, strict=True)))
    finally:
        emptying.close()


def row(way: str, cost: Cost, streams: Sequence[Stream]) -> list[str]:
    """A row of the table: microseconds per stream, and streams per second of processor time."""
    each = [f"{seconds / len(streams) * 1e6:,.0f}" for seconds in cost]
    total = sum(cost)
    return [way, *each, *[f"{count / total:,.0f}" for count in (len(streams), sum(map(len, streams)))]]


@click.command()
@click.argument("target")
@click.argument("server")
@click.option("--seed", default=1, show_default=True, help="It draws the streams.")
@click.option("--streams", "count", type=click.IntRange(1), default=300, show_default=True, help="How many to send.")
def main(target: str, server: str, seed: int, count: int) -> None:
    """Measure the least cost of streams on a target, and print a table."""
    bench = Workbench.default()
    tree = bench.open_server(server)
    setups = set_up_targets(bench, [bench.catalog.targets[name] for name in (target, ORACLE)])
    with tempfile.TemporaryDirectory(prefix="plumbline-") as folder:
        started = [
            Guest(
                ServerSpec(build=setups[name].build(tree, "O2"), version=tree.version, coverage=name != ORACLE),
                setups[name].runner("signal"),
                Path(folder) / name,
                sockets=Path(folder),
            )
            for name in (target, ORACLE)
        ]
        with started[0] as guest, started[1] as native:
            servers = Servers(guest, native)
            streams = streams_of(guest, seed, count)
            pieces = bytes_of(servers, streams)
            # The first time, the emulator translates what the streams execute.
            replayed(servers, [ended(piece) for piece in pieces])
            alone = replayed(servers, [ended(piece) for piece in pieces])
            tens = [b"".join(pieces[place : place + TOGETHER]) for place in range(0, len(pieces), TOGETHER)]
            together = replayed(servers, [ended(ten) for ten in tens])
            now = fuzzed(servers, streams)
    costs = (("`plumb fuzz`", now), ("a stream to a write", alone), ("ten to a write", together))
    heads = ["way", "guest", "native build", "sender", "streams", "commands"]
    click.echo("\n".join(table(heads, [row(way, cost, streams) for way, cost in costs], numbers_from=1)))


if __name__ == "__main__":
    main()
