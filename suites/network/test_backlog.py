"""The test plays a replica: the primary repeats the missed part of its stream byte for byte, from any offset.

Since 7.0 a primary keeps its stream in blocks, and finds an offset with an index that has an entry for every 64th
block. The stream here has several such entries. A primary with a small backlog forgets the first ones.
"""

from __future__ import annotations

import functools
import socket
from typing import TYPE_CHECKING, Self

import pytest

from harness.protocol.resp import Client, info_fields
from suites._shared import link

if TYPE_CHECKING:
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

TIMEOUT_SECONDS = 20.0
WRITES = 260
VALUE_BYTES = 17_000
"""More than a block of the stream, so that each write begins a new block."""
PING = Client.pack([(b"PING",)])
"""The primary's own command, which it sends in its first second and then once in each period of its setting. Valkey 9
writes it in lower case.
"""
ACKNOWLEDGED = [1, 0x7FFFFFFF, 0x80000000, 0x100000002, 0x0102030405060708]
"""Offsets that a replica may report. A primary's own offset begins at zero, and stays far below most of these here."""


class PlayedReplica:
    """A connection to a primary on which the test plays a replica."""

    def __init__(self, port: int, patience: float) -> None:
        self._connected = socket.create_connection(("127.0.0.1", port), timeout=patience)
        self._stream = self._connected.makefile("rb")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._stream.close()
        self._connected.close()

    def send(self, *words: bytes) -> None:
        """Send a command. Its reply, if there is one, remains in the stream."""
        self._connected.sendall(Client.pack([words]))

    def line(self) -> bytes:
        """The next line that is not empty. A primary sends empty lines while it saves."""
        while not (line := self._stream.readline()).strip():
            assert line, "the primary has closed the connection"
        return line.strip()

    def read(self, length: int) -> bytes:
        """The next `length` bytes of the stream."""
        return self._stream.read(length)

    def command(self) -> bytes:
        """The bytes of the next command in the stream."""
        sent = self._stream.readline()
        for _ in range(int(sent[1:])):
            head = self._stream.readline()
            sent += head + self.read(int(head[1:]) + len(b"\r\n"))
        return sent

    def synchronise(self) -> tuple[bytes, int]:
        """Request a full synchronisation. Returns the primary's identifier, and its offset after the data set."""
        self.send(b"PSYNC", b"?", b"-1")
        answer, identifier, offset = self.line().split()
        assert answer == b"+FULLRESYNC"
        length = self.line()
        assert length.startswith(b"$"), f"a file's length was expected, and not {length!r}"
        self.read(int(length[1:]))
        return identifier, int(offset)


@pytest.fixture(params=["16mb", "1mb"])
def primary(start_guest: StartGuest, ports: Ports, request: pytest.FixtureRequest) -> tuple[Guest, int, float]:
    """A primary that adds little to its stream by itself, its port, and a time limit in seconds for its replies. It
    keeps the whole stream or the last part.
    """
    options = ("--repl-backlog-size", request.param, "--repl-ping-slave-period", "3600")
    guest, port = link.on_a_port(start_guest, ports, "", *options)
    return guest, port, guest.runner.target.deadline_seconds(TIMEOUT_SECONDS)


def test_a_stream_comes_again_from_every_offset(primary: tuple[Guest, int, float]) -> None:
    guest, port, patience = primary
    written = [(b"SET", b"key:%d" % number, bytes([65 + number % 26]) * VALUE_BYTES) for number in range(WRITES)]
    expected = [Client.pack([command]) for command in [(b"SELECT", b"0"), *written]]
    with guest.client() as client, PlayedReplica(port, patience) as replica:
        identifier, begin = replica.synchronise()
        for command in written:
            client.command(*command)
        sent: list[bytes] = []
        arrived: list[bytes] = []
        while len(arrived) < len(expected):
            sent.append(replica.command())
            if sent[-1].upper() != PING:
                arrived.append(sent[-1])
        assert arrived == expected
        whole = b"".join(sent)
        replication = info_fields(client.command("INFO", "replication"))
        assert int(replication["master_repl_offset"]) - begin in {len(whole), len(whole) + len(PING)}
        kept = int(replication["repl_backlog_first_byte_offset"]) - begin - 1
    assert kept <= len(whole) - 1_000_000, "the primary keeps less than its setting requires"
    starts = {0, 1, kept - 1, kept, *range(1_000_000, len(whole), 400_000), len(whole) - 5}
    for start in sorted(starts - {-1}, reverse=True):
        with PlayedReplica(port, patience) as replica:
            # Offsets count from one: a replica requests the number after that of its last byte.
            replica.send(b"PSYNC", identifier, b"%d" % (begin + start + 1))
            answer = replica.line()
            if start < kept:
                assert answer.startswith(b"+FULLRESYNC"), f"byte {start} is no longer kept, and the reply is {answer!r}"
                break
            assert answer.startswith(b"+CONTINUE"), f"the primary does not continue at byte {start}: {answer!r}"
            again = replica.read(len(whole) - start)
            assert again == whole[start:], (
                f"the stream repeated from byte {start} differs at its byte {_first_difference(again, whole[start:])}"
            )


@pytest.mark.parametrize("primary", ["1mb"], indirect=True)
def test_the_primary_tells_each_offset_that_a_replica_acknowledges(primary: tuple[Guest, int, float]) -> None:
    guest, port, patience = primary
    with guest.client() as client, PlayedReplica(port, patience) as replica:
        replica.synchronise()
        for offset in ACKNOWLEDGED:
            replica.send(b"REPLCONF", b"ACK", b"%d" % offset)

            link.await_that(functools.partial(_reports, client, offset), [guest], f"ROLE and INFO to report {offset}")


def _reports(client: Client, offset: int) -> bool:
    """Whether both replies contain this offset for the only replica."""
    match client.command("ROLE"):
        case [b"master", _, [[_, _, bytes(acknowledged)]]]:
            listed = info_fields(client.command("INFO", "replication"))["slave0"]
            return int(acknowledged) == offset and f"offset={offset}," in f"{listed},"
        case other:
            raise AssertionError(f"ROLE must list one replica, and replies {other!r}")


def _first_difference(one: bytes, other: bytes) -> int:
    """The offset at which two byte strings begin to differ."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
