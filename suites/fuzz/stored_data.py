"""The commands that read all data that a stream has stored, and copy most of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.protocol.command_stream import Command, command
from harness.protocol.resp import Client
from suites.fuzz.values import KEY_LETTERS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from harness.protocol.command_stream import Stream
    from harness.protocol.control_connection import ControlConnection
    from harness.protocol.resp import Reply

LARGEST_PAYLOAD_BYTES = 5000
"""Size limit of the payloads that RESTORE copies into a new key."""
LIST_KEYS = Client.pack([("KEYS", "*")])
_FADING = KEY_LETTERS["fading"].encode()
_OF_DATABASES = frozenset({"COPY", "MOVE", "SELECT", "SWAPDB"})
"""Commands that streams use for keys of the second database."""


def listing(stream: Stream) -> Stream:
    """Commands that list all keys. Nothing else shows keys that only the guest has."""
    keys = command("KEYS", "*")
    elsewhere = (command("SELECT", 1), keys, command("SELECT", 0))
    return (keys, *elsewhere) if any(one.name in _OF_DATABASES for one in stream) else (keys,)


def stored(oracle: ControlConnection, listed: Reply) -> Stream:
    """Commands that read all data stored by the native build, and copy most of it into new keys with RESTORE.

    `listed`: the native build's keys, if they are known.
    """
    listed = oracle.ask(LIST_KEYS, 1)[0] if listed is None else listed
    keys = sorted(key for key in listed if isinstance(key, bytes))  # type: ignore[union-attr]
    if not keys:
        return ()
    commands: list[Command] = []
    questions = [words for key in keys for words in (("TYPE", key), ("OBJECT", "ENCODING", key), ("DUMP", key))]
    answers = oracle.ask(Client.pack(questions), len(questions))
    for key, kind, encoding, payload in zip(keys, answers[::3], answers[1::3], answers[2::3], strict=True):
        commands += [Command(words=(b"OBJECT", b"ENCODING", key)), *reading(kind, key)]
        if not isinstance(payload, bytes) or not _is_lasting(key, kind):
            continue
        if _is_reproducible(kind, encoding):
            commands.append(Command(words=(b"DUMP", key)))
        if len(payload) < LARGEST_PAYLOAD_BYTES:
            commands += _restored(key, kind, payload)
    return tuple(commands)


def _is_lasting(key: bytes, kind: Reply) -> bool:
    """Whether every server reads the same from the same payload, whenever it does."""
    # A vector set's levels are random. The fields of a fading key expire relative to now.
    return kind != b"vectorset" and not key.startswith(_FADING)


def _is_reproducible(kind: Reply, encoding: Reply) -> bool:
    """Whether every server with the same value dumps the same bytes."""
    # A hash table's order differs from run to run, as a skip list's did until Redis 4; a stream's groups contain times.
    return kind != b"stream" and encoding not in {b"hashtable", b"skiplist"}


def _restored(key: bytes, kind: Reply, payload: bytes) -> Stream:
    """The commands that copy a payload of the native build into a new key, and read that key.

    So each server also loads what a little-endian machine of 64 bits has written, in every encoding.
    """
    copy = b"restored:" + key
    return (Command(words=(b"RESTORE", copy, b"0", payload)), *reading(kind, copy))


_READERS: dict[Hashable, tuple[bytes, tuple[bytes, ...]]] = {
    b"string": (b"GET", ()),
    b"list": (b"LRANGE", (b"0", b"-1")),
    b"hash": (b"HGETALL", ()),
    b"set": (b"SMEMBERS", ()),
    b"zset": (b"ZRANGE", (b"0", b"-1", b"WITHSCORES")),
    b"stream": (b"XRANGE", (b"-", b"+")),
}
"""Type -> the name of the command that reads a whole key, and the words after the key."""


def reading(kind: Reply, key: bytes) -> Stream:
    """The command that reads a whole key of the type that TYPE named."""
    if not isinstance(kind, bytes) or kind not in _READERS:
        return ()
    name, rest = _READERS[kind]
    return (Command(words=(name, key, *rest)),)
