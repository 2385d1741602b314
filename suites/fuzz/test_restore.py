"""RESTORE of damaged payloads: with `sanitize-dump-payload` the server may refuse them, but must not die or read
outside.

Before 6.2 this setting does not exist, and servers trust a payload whose checksum matches. For those releases the test
sends only payloads with a wrong checksum, and the server must refuse every one. The server must accept one undamaged
payload of each type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.protocol.command_stream import command
from suites._shared.checksums import sealed
from suites.fuzz.corrupt import damaged_payload, rdb_length
from suites.fuzz.payloads import Payload, payloads
from suites.fuzz.session import FuzzSession
from suites.fuzz.stored_data import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.emptying import Emptying

KEY = b"restored"
DAMAGED = "payloads"
TRAILER = 10
"""Bytes of a payload's version and checksum."""
MOST_CUTS = 300
ZIPMAP_TYPE = b"\x09"
FILLER = b"f"
_LONG = bytes([0xFE, 0xFE, 0, 0, 0])
ZIPMAPS = (
    b"\x01" + _LONG + 254 * FILLER + _LONG + b"\x01" + 255 * FILLER + b"\xff",
    bytes([2, 1, *b"k", 3, 0, *b"abc", 2, *b"k2", 1, 2, *b"v..", 0xFF]),
)
"""A count; for each key its length, the key, the value's length, the number of free bytes, the value, the free bytes;
then 0xff. A length from 254 on takes five bytes, of which the first is 0xfe (zipmap.c).
"""
TYPES = 32
"""More than the number of value types in any release (rdb.h)."""
_USES = (
    ("APPEND", KEY, "x"),
    ("SETRANGE", KEY, 3, "xyz"),
    ("RPUSH", KEY, "x", 7),
    ("LPOP", KEY),
    ("LINSERT", KEY, "BEFORE", 7, "y"),
    ("HSET", KEY, "f", "v", "field:n1", 8),
    ("HDEL", KEY, "f"),
    ("SADD", KEY, 7, 70000, "x"),
    ("SREM", KEY, 7),
    ("ZADD", KEY, 1, "x", 2.5, "y"),
    ("ZREM", KEY, "x"),
    ("ZRANGE", KEY, 0, 3),
    ("XADD", KEY, "18446744073709551615-18446744073709551614", "f", "v"),
    ("XRANGE", KEY, "-", "+"),
    ("XDEL", KEY, "1-0"),
    ("PFADD", KEY, "x"),
    ("PFCOUNT", KEY),
    ("OBJECT", "ENCODING", KEY),
    ("DEL", KEY),
)


def test_restore(cell_run: CellSession, emptying: Emptying) -> None:
    sanitises = _sanitises(cell_run)
    session = FuzzSession(cell_run, emptying, name="restore", share=0.12, damages=[DAMAGED] if sanitises else [])
    stored: list[Payload] = []
    sound: set[bytes] = set()
    while session.more():
        stored = stored or payloads(session, cell_run)
        kind, _, content = stored[-1]
        if kind not in sound:
            _restore_sound(session, stored[-1], sanitises=sanitises)
            sound.add(kind)
        stored.pop()
        damaged = damaged_payload(content, session.random)
        if not sanitises and sealed(damaged) == damaged:
            damaged = damaged[:-1] + bytes([damaged[-1] ^ 1])
        taken = _is_taken(session.example(_stream(kind, damaged, sanitises=sanitises)))
        if sanitises and damaged != content:
            session.acceptance.count(DAMAGED, taken=taken)
    session.conclude()


def test_cut_restore(cell_run: CellSession, emptying: Emptying) -> None:
    """Payloads that are cut at every byte, and payloads that claim each other type."""
    _skip_trusting(cell_run)
    session = FuzzSession(cell_run, emptying, name="cut", share=0.1, cost=3)
    seen: set[tuple[bytes, int]] = set()
    while session.more():
        for kind, _, content in payloads(session, cell_run):
            # One payload for each type and each magnitude of the length.
            if (sort := (content[:1], len(content).bit_length())) in seen or len(content) > MOST_CUTS:
                continue
            seen.add(sort)
            session.example(
                _damages([sealed(content[:end] + content[-TRAILER:]) for end in range(len(content) - TRAILER)])
            )
            others = [sealed(bytes([number]) + content[1:]) for number in range(TYPES)]
            session.example(_damages(others, reading(kind, KEY)))
    session.conclude()


def test_old_hashes(cell_run: CellSession, emptying: Emptying) -> None:
    """Zipmaps with changed bytes outside texts, so that lengths may wrap. All releases load zipmaps; none since 2.6
    writes them.
    """
    _skip_trusting(cell_run)
    session = FuzzSession(cell_run, emptying, name="zipmaps", share=0.03, cost=3)
    end = payloads(session, cell_run)[0].content[-TRAILER:]
    for zipmap in ZIPMAPS:
        head = ZIPMAP_TYPE + rdb_length(len(zipmap))
        sound = head + zipmap + end
        failures = session.failures
        taken = _is_taken(session.example(_damages([sealed(sound)], reading(b"hash", KEY))))
        if not taken and session.failures == failures:
            pytest.fail(f"no server accepts the zipmap {zipmap!r}", pytrace=False)
        for place, was in enumerate(zipmap, len(head)):
            if was == FILLER[0] or not session.more():
                continue
            others = sorted({0, 1, 0x80, 0xFD, 0xFE, 0xFF, was ^ 0x80, (was + 1) % 256, (was - 1) % 256} - {was})
            each = [sealed(sound[:place] + bytes([one]) + sound[place + 1 :]) for one in others]
            session.example(_damages(each, reading(b"hash", KEY)))
    session.conclude()


def _sanitises(run: CellSession) -> bool:
    return "sanitize-dump-payload" in run.cell.abilities.options


def _skip_trusting(run: CellSession) -> None:
    if not _sanitises(run):
        pytest.skip("servers before 6.2 trust every payload with the right checksum")


def _damages(contents: Sequence[bytes], reads: Stream = ()) -> Stream:
    each = [(command("RESTORE", KEY, 0, content), *reads, command("DEL", KEY)) for content in contents]
    return (command("CONFIG", "SET", "sanitize-dump-payload", "yes"), *(one for some in each for one in some))


def _restore_sound(session: FuzzSession, payload: Payload, *, sanitises: bool) -> None:
    """An undamaged payload must be restored; otherwise a refusal of damaged payloads proves nothing."""
    stream = _stream(payload.kind, payload.content, sanitises=sanitises)
    failures = session.failures
    if not _is_taken(session.example(stream)) and session.failures == failures:
        last = payload.content[-10:]
        pytest.fail(f"no server accepts the payload that DUMP returned for {payload.key!r}, which ends with {last!r}")


def _is_taken(replies: list[Reply]) -> bool:
    """Whether the first RESTORE succeeded: its reply is the first one that does not belong to a setting."""
    return replies[1:2] == [b"OK"]


def _stream(kind: bytes, payload: bytes, *, sanitises: bool) -> Stream:
    first = command("CONFIG", "SET", "sanitize-dump-payload", "yes") if sanitises else command("PING")
    reads = reading(kind, KEY)
    return (
        first,
        command("RESTORE", KEY, 0, payload),
        *reads,
        *(command(*words) for words in _USES[:-1]),
        *reads,
        command(*_USES[-1]),
    )
