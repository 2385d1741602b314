"""Guest and oracle asked the same, and the lengths at which headers, encodings and words change."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.resp import Client, Reply

# Around every SDS header's limit (1, 3, 5 and 9 bytes: 31/32, 255/256, 65535/65536), embstr's (44/45) and every word's.
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


class Both:
    """The guest and the oracle, asked the same; they must agree before anything else is asked."""

    def __init__(self, guest: Client, oracle: Client, seed: int) -> None:
        self.guest = guest
        self.oracle = oracle
        self.random = random.Random(seed)

    def ask(self, requests: Sequence[Any]) -> list[Reply]:
        """The guest's replies to a pipeline, after comparing them with the native build's."""
        expected = [_comparable(reply) for reply in self.oracle.pipeline(requests)]
        actual = [_comparable(reply) for reply in self.guest.pipeline(requests)]
        for request, ours, theirs in zip(requests, actual, expected, strict=True):
            assert ours == theirs, f"{request!r:.200}: guest {ours!r:.200}, native {theirs!r:.200}"
        return actual

    def expect(self, requests: Sequence[Any], expected: Sequence[Any], what: str) -> None:
        """Ask, and compare the last replies with the model's answers: as many as there are."""
        actual = self.ask(requests)[len(requests) - len(expected) :]
        for request, ours, models in zip(requests[len(requests) - len(expected) :], actual, expected, strict=True):
            message = f"{what}: {request!r:.120}: got {ours!r:.120}, the model says {models!r:.120}"
            assert ours == models, f"{message}; the native build answers as the guest does"

    def some_bytes(self, length: int) -> bytes:
        """Seeded bytes, all values."""
        return self.random.randbytes(length)

    def sparse(self, length: int, filler: int) -> bytes:
        """A run of one byte with a single other bit somewhere: what BITPOS has to find past whole words."""
        text = bytearray([filler]) * length
        if length:
            text[self.random.randrange(length)] ^= 1 << self.random.randrange(8)
        return bytes(text)


def _comparable(reply: Reply) -> Reply:
    return f"error: {reply}".encode() if isinstance(reply, Exception) else reply
