"""RESTORE of damaged payloads: with `sanitize-dump-payload` the server may refuse, it may not die or read outside.

Before 6.2 there is no such setting, and what is well checksummed is believed: then only payloads whose checksum is
wrong are sent, and every one must be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.stream import command
from suites.fuzz.attempt import reading
from suites.fuzz.corrupt import damaged_payload, sealed
from suites.fuzz.payloads import Payload, payloads
from suites.fuzz.session import Session

if TYPE_CHECKING:
    from harness.cell_run import CellRun
    from harness.stream import Stream

KEY = b"restored"
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


def test_restore(cell_run: CellRun, defaults: dict[str, Stream]) -> None:
    session = Session(cell_run, defaults, name="restore", share=0.12)
    sanitises = "sanitize-dump-payload" in cell_run.cell.abilities.options
    stored: list[Payload] = []
    while session.more():
        stored = stored or payloads(session, cell_run)
        kind, _, content = stored.pop()
        damaged = damaged_payload(content, session.random)
        if not sanitises and sealed(damaged) == damaged:
            damaged = damaged[:-1] + bytes([damaged[-1] ^ 1])
        session.example(_stream(kind, damaged, sanitises=sanitises))
    session.conclude()


def _stream(kind: bytes, payload: bytes, *, sanitises: bool) -> Stream:
    settings = (command("CONFIG", "SET", "sanitize-dump-payload", "yes"),) if sanitises else ()
    told = reading(kind, KEY)
    return (
        *settings,
        command("RESTORE", KEY, 0, payload),
        *told,
        *(command(*words) for words in _USES[:-1]),
        *told,
        command(*_USES[-1]),
    )
