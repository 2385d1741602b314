"""A node on the cluster's bus that is not a server. It writes packets, and reads those of servers, byte by byte. The
layout of packets has been the same since Redis 7.0 (cluster.h, and Valkey's cluster_legacy.h). Numbers are in network
order on every machine.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from harness.protocol.resp import ServerGoneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.run.server_process import Guest

MARK = b"RCmb"
SLOT_BYTES = 16384 // 8
NAME_BYTES, ADDRESS_BYTES = 40, 46
HEADER = struct.Struct(f"!4sIHHHHQQQ{NAME_BYTES}s{SLOT_BYTES}s{NAME_BYTES}s{ADDRESS_BYTES}sH30sHHHB3s")
GOSSIP = struct.Struct(f"!{NAME_BYTES}sII{ADDRESS_BYTES}sHHHHH")
UPDATED = struct.Struct(f"!Q{NAME_BYTES}s{SLOT_BYTES}s")
TEXTS = struct.Struct("!II")
EXTENSION = struct.Struct("!IHH")
PING, PONG, MEET, PUBLISH, UPDATE = 0, 1, 2, 4, 7
PRIMARY, MYSELF = 1, 16
"""Flags of a node."""
EXTENDED = 4
"""Flag of a message: extensions follow the gossip, and the sender understands extensions."""
HOST_NAME = 0
"""Kind of an extension."""
LONGEST_PACKET = 1 << 20
SENT = "a packet of a server on the bus"
"""The state that a listener awaits."""


class About(NamedTuple):
    """The entry for another node in a packet's gossip."""

    name: str
    port: int
    bus_port: int
    flags: int = PRIMARY
    ping_sent: int = 0
    pong_received: int = 0
    """Seconds since 1970."""
    address: str = "127.0.0.1"


class Packet(NamedTuple):
    """The parts of a packet that tests read or write."""

    kind: int
    sender: str
    port: int
    bus_port: int
    current_epoch: int = 0
    configuration_epoch: int = 0
    offset: int = 0
    slots: frozenset[int] = frozenset()
    flags: int = PRIMARY
    entries: int = 0
    """Number of entries in the gossip."""
    extensions: int = 0
    message_flags: int = 0
    version: int = 1
    body: bytes = b""

    def encoded(self) -> bytes:
        """The packet's bytes."""
        empty = bytes(NAME_BYTES)
        header = HEADER.pack(
            MARK,
            HEADER.size + len(self.body),
            self.version,
            self.port,
            self.kind,
            self.entries,
            self.current_epoch,
            self.configuration_epoch,
            self.offset,
            self.sender.encode(),
            bitmap(self.slots),
            empty,
            bytes(ADDRESS_BYTES),
            self.extensions,
            bytes(30),
            0,
            self.bus_port,
            self.flags,
            0,
            bytes([self.message_flags, 0, 0]),
        )
        return header + self.body

    def gossip(self) -> list[About]:
        """The packet's entries for other nodes."""
        return [
            About(name.decode(), port, bus_port, flags, sent, received, address.rstrip(b"\0").decode())
            for name, sent, received, address, port, bus_port, flags, _, _ in (
                GOSSIP.unpack_from(self.body, number * GOSSIP.size) for number in range(self.entries)
            )
        ]


def parsed(content: bytes) -> Packet:
    """The packet in these bytes. Raises AssertionError if the signature or the length is wrong."""
    mark, length, version, port, kind, count, *words = HEADER.unpack_from(content)
    current, configured, offset, sender, slots, _, _, extensions, _, _, bus_port, flags, _, message_flags = words
    assert mark == MARK, f"a packet begins with {mark!r}, not with {MARK!r}"
    assert length == len(content)
    return Packet(
        kind=kind,
        sender=sender.decode(),
        port=port,
        bus_port=bus_port,
        current_epoch=current,
        configuration_epoch=configured,
        offset=offset,
        slots=slots_of(slots),
        flags=flags,
        entries=count,
        extensions=extensions,
        message_flags=message_flags[0],
        version=version,
        body=content[HEADER.size :],
    )


def gossip_section(nodes: Iterable[About]) -> bytes:
    """The bytes of a packet's gossip."""
    return b"".join(
        GOSSIP.pack(
            each.name.encode(),
            each.ping_sent,
            each.pong_received,
            each.address.encode(),
            each.port,
            each.bus_port,
            each.flags,
            0,
            0,
        )
        for each in nodes
    )


def host_name(name: str) -> bytes:
    """The extension of a packet that contains the sender's host name."""
    text = name.encode() + b"\0"
    text += bytes(-len(text) % 8)
    return EXTENSION.pack(EXTENSION.size + len(text), 0, 0) + text


def extensions_of(packet: Packet) -> dict[int, bytes]:
    """The extensions of a packet by kind. Raises AssertionError unless they end where the packet ends."""
    found = {}
    at = packet.entries * GOSSIP.size
    for _ in range(packet.extensions):
        length, kind, _ = EXTENSION.unpack_from(packet.body, at)
        found[kind] = packet.body[at + EXTENSION.size : at + length]
        at += length
    assert at == len(packet.body), f"the extensions end at {at} of {len(packet.body)} bytes"
    return found


def bitmap(slots: Iterable[int]) -> bytes:
    """Slots as bits, the lowest in a byte's least significant bit."""
    bits = bytearray(SLOT_BYTES)
    for slot in slots:
        bits[slot // 8] |= 1 << slot % 8
    return bytes(bits)


def slots_of(bits: bytes) -> frozenset[int]:
    """The slots in a bitmap."""
    return frozenset(slot for slot in range(8 * len(bits)) if bits[slot // 8] >> slot % 8 & 1)


LOOK_SECONDS = 0.5
"""The time after which a wait looks whether the server still runs."""


class Listener:
    """The bus port of a node that is not a server. A server connects to it and sends packets."""

    def __init__(self, bus_port: int, guest: Guest, *, deadline_seconds: float) -> None:
        self._socket = socket.create_server(("127.0.0.1", bus_port))
        self._guest = guest
        self._deadline_seconds = deadline_seconds
        self._link: socket.socket | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        if self._link is not None:
            self._link.close()
        self._socket.close()

    def receive(self, *kinds: int, answer: Packet | None = None) -> Packet:
        """The next packet of one of these kinds. Replies with `answer` to each PING and MEET. Raises TimeoutError, and
        ServerGoneError when the server ends.
        """
        deadline = time.monotonic() + self._guest.waits.limit(SENT, self._deadline_seconds)
        while True:
            try:
                packet = self._next(deadline)
            except TimeoutError as error:
                raise self._guest.waits.expired(SENT, f": {error}") from error
            if answer is not None and packet.kind in {PING, MEET}:
                self.send(answer)
            if packet.kind in kinds:
                return packet

    def send(self, packet: Packet) -> None:
        """Send a packet to the connected server."""
        assert self._link is not None
        self._link.sendall(packet.encoded())

    def _next(self, deadline: float) -> Packet:
        while True:
            if self._link is None:
                self._await_link(deadline)
                self._link, _ = self._socket.accept()
            self._link.settimeout(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(EOFError):
                return received(self._link)
            # A server that has waited too long opens a new link.
            self._link.close()
            self._link = None

    def _await_link(self, deadline: float) -> None:
        """Wait until the server connects. The end of a server closes its links, so only this wait must look at it."""
        while not select.select([self._socket], [], [], LOOK_SECONDS)[0]:
            if not self._guest.alive():
                raise ServerGoneError(f"{self._guest.name} ended before it connected: {self._guest.detail}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._guest.name} did not connect")


def received(link: socket.socket) -> Packet:
    """The next packet of a link. Raises EOFError at its end, and TimeoutError."""
    start = _exactly(link, 8)
    length = struct.unpack("!I", start[4:])[0]
    assert HEADER.size <= length <= LONGEST_PACKET, f"a packet's length field says {length} bytes"
    return parsed(start + _exactly(link, length - len(start)))


def _exactly(link: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        more = link.recv(length - len(content))
        if not more:
            raise EOFError
        content += more
    return content
