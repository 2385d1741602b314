"""RESTORE of damaged payloads: with `sanitize-dump-payload` the server may refuse them, but not die or read outside.

Before 6.2 this setting does not exist, and servers trust a payload whose checksum matches. For those releases the test
sends only payloads with a wrong checksum, and the server must refuse every one. The server must accept one undamaged
payload of each type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.protocol.command_stream import command
from suites._shared.checksums import sealed
from suites.fuzz.attempt import reading
from suites.fuzz.corrupt import damaged_payload
from suites.fuzz.payloads import Payload, payloads
from suites.fuzz.session import FuzzSession

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.cell_session import CellSession

KEY = b"restored"
DAMAGED = "payloads"
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


def test_restore(cell_run: CellSession, defaults: dict[str, Stream]) -> None:
    sanitises = "sanitize-dump-payload" in cell_run.cell.abilities.options
    session = FuzzSession(cell_run, defaults, name="restore", share=0.12, damages=[DAMAGED] if sanitises else [])
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


def _restore_sound(session: FuzzSession, payload: Payload, *, sanitises: bool) -> None:
    """An undamaged payload must be restored; otherwise a refusal of damaged payloads proves nothing."""
    stream = _stream(payload.kind, payload.content, sanitises=sanitises)
    failures = session.failures
    if not _is_taken(session.example(stream)) and session.failures == failures:
        pytest.fail(f"nobody takes what DUMP returned for {payload.key!r}: {payload.content[-10:]!r} ends it")


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
