"""DUMP payloads of the values that random streams leave on the native build: the raw material for damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.protocol import pipeline
from harness.protocol.command_stream import command
from harness.protocol.resp import Client
from suites.fuzz.generate import generate

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.run.server_process import Guest
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.session import FuzzSession

LARGEST_BYTES = 20_000
_THEMES = ("strings", "lists", "hashes", "sets", "sorted", "streams", "estimates")


class Payload(NamedTuple):
    """A key, the type that TYPE names, and the payload that DUMP returns."""

    kind: bytes
    key: bytes
    content: bytes


def payloads(session: FuzzSession, run: CellSession) -> list[Payload]:
    """Some values of all types, including compressed ones.

    The same seed gives the same payloads: hash tables of several elements are excluded, because their order is random.
    """
    for _ in range(50):
        setting = command("CONFIG", "SET", "rdbcompression", session.random.choice(("yes", "no")))
        stream = generate(session.random, _THEMES)
        session.reset_oracle()
        try:
            if found := _stored(run.servers.oracle(), (setting, *stream)):
                return found
        except OSError:
            # A release that dies of a request dies of it on every machine: the stream is an example like any other.
            session.example((setting, *stream))
    raise AssertionError("fifty random streams stored nothing")


def _stored(oracle: Guest, stream: Stream) -> list[Payload]:
    """The values that a stream leaves on the native build. Raises OSError if the server ends or hangs."""
    with Client.at_socket(oracle.upstream, deadline_seconds=oracle.runner.target.host_deadline_seconds(20)) as client:
        pipeline.ask(client, stream[:1])
        pipeline.ask(client, stream[1:])
        client.pipeline([["DISCARD"]])
        keys = sorted(key for key in client.command("KEYS", "*") if isinstance(key, bytes))  # type: ignore[union-attr]
        return [one for key in keys if (one := _payload(client, key)) is not None]


def _payload(client: Client, key: bytes) -> Payload | None:
    kind, encoding, content = client.pipeline([["TYPE", key], ["OBJECT", "ENCODING", key], ["DUMP", key]])
    if not isinstance(kind, bytes) or not isinstance(content, bytes) or len(content) > LARGEST_BYTES:
        return None
    if encoding in {b"hashtable", b"skiplist"}:
        count = {b"hash": "HLEN", b"set": "SCARD", b"zset": "ZCARD"}[kind]
        return Payload(kind, key, content) if client.command(count, key) == 1 else None
    return Payload(kind, key, content)
