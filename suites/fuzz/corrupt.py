"""Damages DUMP payloads, RDB files and protocol, with a corrected or a wrong checksum.

A payload ends with two bytes of RDB version and eight of CRC-64, an RDB file with eight bytes of CRC-64.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.protocol.command_stream import from_wire
from suites._shared.checksums import sealed

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence


MAGIC_BYTES = 9
"""An RDB file begins with its magic number and version in nine characters: `REDIS0011`, `VALKEY080`."""


def rdb_file(payloads: Mapping[bytes, bytes], saved: bytes) -> bytes:
    """An RDB file with those keys, built from their DUMP payloads: database 0, entries, checksum.

    `saved`: a file that the same server saved; the new file begins like it. Raises ValueError if it is no RDB file.
    """
    magic = saved[:MAGIC_BYTES]
    if not _MAGIC.fullmatch(magic):
        raise ValueError(f"no RDB file begins with {magic!r}")
    entries = (payload[:1] + rdb_length(len(key)) + key + payload[1:-10] for key, payload in payloads.items())
    return sealed(magic + b"\xfe\x00" + b"".join(entries) + b"\xff" + bytes(8))


_MAGIC = re.compile(rb"[A-Z]+[0-9]+")


def rdb_length(length: int) -> bytes:
    """A length in RDB's encoding: 6 bits, 14 bits, or 32 bits in network order."""
    if length < 64:
        return bytes([length])
    return (0x4000 | length).to_bytes(2) if length < 16384 else b"\x80" + length.to_bytes(4)


def damaged(content: bytes, random: random.Random, *, first: int = 0) -> bytes:
    """The content with faults after the first `first` bytes: flipped bits, boundary values, and pieces that are lost,
    duplicated or moved.
    """
    text = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        if len(text) <= first:
            break
        place = random.randrange(first, len(text))
        size = random.choice((1, 1, 2, 4, 8))
        change = random.randrange(6)
        if change <= 1:
            text[place] ^= 1 << random.randrange(8)
        elif change == 2:
            text[place] = random.choice((0, 1, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xC3, 0xF0, 0xF1, 0xF4, 0xFE, 0xFF))
        elif change == 3:
            del text[place : place + size]
        elif change == 4:
            text[place:place] = text[place : place + size] if random.random() < 0.5 else random.randbytes(size)
        else:
            text[place : place + size] = random.choice((b"\xff", b"\0", b"\x7f")) * size
    return bytes(text)


def damaged_payload(payload: bytes, random: random.Random) -> bytes:
    """A DUMP payload with faults in its body; in three of four cases the checksum matches the damaged content."""
    body = damaged(payload[:-10], random)
    whole = body + payload[-10:]
    return sealed(whole) if random.random() < 0.75 else whole


def damaged_file(content: bytes, random: random.Random) -> bytes:
    """An RDB file that is cut off, or has faults after its magic number; its checksum may match again."""
    if random.random() < 0.3:
        return content[: random.randrange(len(content))]
    whole = damaged(content, random, first=MAGIC_BYTES)
    fits = (
        random.random() < 0.75 and len(whole) >= MAGIC_BYTES + 8
    )  # in a shorter file the checksum would overwrite the magic number
    return sealed(whole) if fits else whole


def fitting_file(content: bytes, random: random.Random) -> bytes:
    """An RDB file with faults and a matching checksum: servers accept such files more often than others."""
    whole = damaged(content[:-8], random, first=MAGIC_BYTES)
    return sealed(whole + content[-8:])


def damaged_protocol(wire: bytes, random: random.Random) -> bytes:
    """A client's bytes with faults, occasionally a wrong length, or noise with the protocol's own characters."""
    if random.random() < 0.3:
        signs = (
            b"*",
            b"$",
            b"\r\n",
            b"-1",
            b"3",
            b"$9999999999999999999\r\n",
            b"*2147483648\r\n",
            b"*-5\r\n",
            b"\0",
            b'"',
            b"'\\x",
        )
        return b"".join(
            random.choice(signs) if random.random() < 0.7 else random.randbytes(3)
            for _ in range(random.randrange(1, 40))
        )
    return damaged(wire, random)


_ARRAY = re.compile(rb"(?=\*\d+\r\n\$)")


def arities(entries: Sequence[list[object]]) -> dict[bytes, int]:
    """From COMMAND's reply: a command's name in upper case -> its minimum number of words, including its name.

    Since Redis 7 each subcommand of a container has its own entry, named `CONTAINER|COMMAND`.
    """
    found: dict[bytes, int] = {}
    for entry in entries:
        name, arity, *more = entry
        assert isinstance(name, bytes)
        assert isinstance(arity, int)
        found[name.upper()] = abs(arity)
        if len(more) > 7 and isinstance(more[7], list):
            found |= arities(more[7])
    return found


def lacks_words(content: bytes, least: Mapping[bytes, int]) -> bool:
    """Whether an AOF contains a complete command with fewer words than the command requires."""
    for part in _ARRAY.split(content):
        for words in (one.words for one in from_wire(part)[:1]):
            names = (words[0].upper(), b"|".join(words[:2]).upper())
            if any(len(words) < least.get(name, 0) for name in names):
                return True
    return False
