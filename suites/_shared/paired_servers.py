"""Sends the same requests to guest and oracle, and lists the lengths at which headers, encodings and words change."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from harness.core.byte_diff import DifferenceError, excerpt, parted
from harness.core.finding import Difference
from harness.protocol.command_stream import command, line_of
from harness.protocol.resp import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import Tier
    from harness.protocol.resp import Reply

# Around the limits of the SDS headers (of 1, 3, 5 and 9 bytes: 31/32, 255/256, 65535/65536), embstr (44/45) and words.
EDGE_LENGTHS = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    23,
    24,
    25,
    27,
    28,
    29,
    31,
    32,
    33,
    43,
    44,
    45,
    63,
    64,
    65,
    95,
    127,
    128,
    129,
]
HEADER_LENGTHS = [255, 256, 257, 65535, 65536, 65537]
LENGTHS_BY_HEADER = {
    "1-byte-header": [length for length in EDGE_LENGTHS if length <= 31],
    "3-byte-header": [length for length in [*EDGE_LENGTHS, 255] if length > 31],
    "5-byte-header": [256, 257, 65535],
    "9-byte-header": [65536, 65537],
}
"""The same lengths, grouped by SDS header as in Redis 3.2 and later."""
OFFSETS = 16
"""No access of these servers requires an alignment of more than 16 bytes."""
OWN_BUFFER_BYTES = 32 * 1024
"""From this length on a bulk string has its own buffer, so that earlier requests do not move it (protocol suite, bulk).
"""
EFFORT: dict[Tier, int] = {"quick": 1, "kernel": 1, "full": 4, "thorough": 16}


class PairedServers:
    """The guest and the oracle. Both receive the same requests, and must agree before a model's reply is compared."""

    def __init__(self, guest: Client, oracle: Client, *, target: str, seed: int, tier: Tier) -> None:
        self.guest = guest
        self.oracle = oracle
        self.target = target
        """The guest's target."""
        self.random = random.Random(seed)
        self.effort = EFFORT[tier]
        """Factor of the amount of work, relative to the quick tier."""

    def ask(self, requests: Sequence[Any]) -> list[Reply]:
        """The guest's replies to a pipeline, after comparing them with the native build's."""
        packed = Client.pack(requests)
        expected = [_comparable(reply) for reply in self.oracle.exchange(packed, len(requests))]
        actual = [_comparable(reply) for reply in self.guest.exchange(packed, len(requests))]
        for request, reply, native in zip(requests, actual, expected, strict=True):
            if reply != native:
                raise differing(request, reply, native, self.target)
        return actual

    def expect(self, requests: Sequence[Any], expected: Sequence[Any], what: str) -> None:
        """Send requests, and compare the last replies with `expected`, those of the model."""
        actual = self.ask(requests)[len(requests) - len(expected) :]
        for request, ours, models in zip(requests[len(requests) - len(expected) :], actual, expected, strict=True):
            if ours != models:
                message = f"{what}: {request!r:.120}: got {ours!r:.120}, the model says {models!r:.120}"
                message += "; the native build answers as the guest does"
                raise differing(request, ours, models, self.target, message, reader="a model")

    def expect_at_every_offset(self, request: Sequence[Any], expected: Reply, what: str) -> None:
        """Send a request at every offset in the query buffer; each reply must be the expected one."""
        requests = at_every_offset(request)
        for offset, actual in enumerate(self.ask(requests)[1::2]):
            if actual != expected:
                message = f"{what}: {request!r:.120} moved by {offset}: got {actual!r:.120}, "
                message += f"the model says {expected!r:.120}"
                raise differing(request, actual, expected, self.target, message, reader="a model")

    def has(self, command: str) -> bool:
        """Whether the servers know a command."""
        return self.ask([["COMMAND", "INFO", command]])[0] not in ([None], [[]])

    def some_bytes(self, length: int) -> bytes:
        """Seeded bytes of all values."""
        return self.random.randbytes(length)

    def sparse(self, length: int, filler: int) -> bytes:
        """Equal bytes with a single differing bit, which BITPOS must find beyond whole words."""
        text = bytearray([filler]) * length
        if length:
            text[self.random.randrange(length)] ^= 1 << self.random.randrange(8)
        return bytes(text)


def differing(
    request: Sequence[Any], actual: Reply, expected: Reply, target: str, message: str = "", *, reader: str = "native"
) -> DifferenceError:
    """The error for a reply that differs from the reply of `reader`, which is the native build or a model. It contains
    the first wrong byte.
    """
    words = [word if isinstance(word, bytes) else str(word).encode() for word in request]
    at, there, due = -1, "", ""
    if isinstance(actual, bytes) and isinstance(expected, bytes):
        at = parted(expected, actual)
        there, due = excerpt(actual, at), excerpt(expected, at)
    difference = Difference(
        where="the reply",
        record=f"reply to {line_of(command(*words)):.100}",
        writer=target,
        reader=reader,
        offset=at,
        expected=due,
        actual=there,
    )
    message = message or f"{request!r:.200}: guest {actual!r:.200}, native {expected!r:.200}"
    return DifferenceError(message, difference)


def at_every_offset(request: Sequence[Any]) -> list[Sequence[Any]]:
    """The request 16 times, placed by `moved_on` at every offset modulo 16 in the query buffer.

    A request that is so large that it has its own buffer appears only once, after one ECHO.
    """
    return moved_on([request] * (OFFSETS if len(Client.pack([request])) <= OWN_BUFFER_BYTES else 1))


def moved_on(requests: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Each request after an ECHO, whose length lets the n-th request begin at offset n modulo 16 of the whole.

    Send them as one pipeline, which is one write: a server reads as much of it as it can into one buffer.
    """
    moved: list[Sequence[Any]] = []
    position = 0
    for number, request in enumerate(requests):
        shortest = len(Client.pack([["ECHO", _PADDING]]))
        echo = ["ECHO", _PADDING + "x" * ((number - position - shortest) % OFFSETS)]
        moved += [echo, request]
        position += len(Client.pack([echo, request]))
    return moved


_PADDING = "x" * 10
"""An ECHO's text of this length can grow by 15 bytes without another digit in its length."""


def _comparable(reply: Reply) -> Reply:
    return f"error: {reply}".encode() if isinstance(reply, Exception) else reply
