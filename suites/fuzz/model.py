"""A Python model of strings, counters and bits: it predicts the replies of a stream where it can.

A key has bytes as its value, or an unknown value once a command outside the model has named it. The bit operations are
those of suites._shared.bit_model.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from suites._shared import bit_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.protocol.command_stream import Command
    from harness.protocol.resp import Reply

UNPREDICTED = object()
"""The model makes no prediction."""
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_INTEGER = re.compile(rb"0|-?[1-9]\d{0,18}")


class _UnknownError(Exception):
    """The value, or the meaning of an argument, is unknown: the model makes no prediction."""


class Model:
    """The strings of a server that starts empty. `answer` receives every command of a stream in order."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes | None] = {}
        """None: the model does not know whether the key exists, or what its value is."""
        self._queueing = False
        self._everything_known = True
        """Whether a key is known to be absent if no command has named it."""

    def answer(self, command: Command) -> Reply | object:
        """Apply the command, and return its predicted reply or UNPREDICTED."""
        name, arguments = command.name, command.words[1:]
        if name in {"MULTI", "EXEC", "DISCARD"}:
            # A queued command may have failed: the model knows no value until later commands set one.
            self._forget_all()
            self._queueing = name == "MULTI"
            return UNPREDICTED
        if name in _OF_ALL_KEYS:
            self._forget_all()
            return UNPREDICTED
        modelled = _COMMANDS.get((name, len(arguments))) or _COMMANDS.get((name, -1))
        if modelled is not None and not self._queueing:
            with contextlib.suppress(_UnknownError):
                return modelled(self, *arguments)
        if name not in _READING:
            self._forget(arguments)
        return UNPREDICTED

    def _forget(self, words: tuple[bytes, ...]) -> None:
        self._values.update(dict.fromkeys(words))

    def _forget_all(self) -> None:
        self._forget(tuple(self._values))
        self._everything_known = False

    def get(self, key: bytes) -> bytes:
        """A key's value; empty if the key is absent. Raises _UnknownError."""
        value = self._values.get(key, b"" if self._everything_known else None)
        if value is None:
            raise _UnknownError
        return value

    def present(self, key: bytes) -> bool:
        """Whether the key exists. Empty is ambiguous: APPEND of nothing makes a key, SETRANGE of nothing does not."""
        if not self.get(key):
            if key in self._values or not self._everything_known:
                raise _UnknownError
            return False
        return True

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value."""
        self._values[key] = value

    def delete(self, *keys: bytes) -> object:
        """DEL. The model does not predict the number of deleted keys, because some keys may be unknown."""
        for key in keys:
            if self._everything_known:
                self._values.pop(key, None)
            else:
                self._values[key] = None
        return UNPREDICTED


def _whole(word: bytes) -> int:
    """An argument that is a 32-bit integer; some targets refuse wider ones."""
    if not _INTEGER.fullmatch(word) or not -(1 << 31) <= int(word) < 1 << 31:
        raise _UnknownError
    return int(word)


def _set(model: Model, key: bytes, value: bytes) -> Reply:
    model.put(key, value)
    return b"OK"


def _get(model: Model, key: bytes) -> Reply:
    return model.get(key) if model.present(key) else None


def _append(model: Model, key: bytes, more: bytes) -> Reply:
    model.put(key, model.get(key) + more)
    return len(model.get(key))


def _set_range(model: Model, key: bytes, offset: bytes, text: bytes) -> Reply:
    start, old = _whole(offset), model.get(key)
    if start < 0 or not text:
        raise _UnknownError
    model.put(key, old[:start].ljust(start, b"\0") + text + old[start + len(text) :])
    return len(model.get(key))


def _get_range(model: Model, key: bytes, start: bytes, end: bytes) -> Reply:
    text = model.get(key)
    if _whole(end) < 0 and _whole(end) < -len(text):
        # Redis replaces an end before the first byte with the first byte. Releases differ, so only the native build
        # decides.
        raise _UnknownError
    first, last = bit_model.byte_range(len(text), _whole(start), _whole(end))
    return text[first : last + 1]


def _add(model: Model, key: bytes, step: int) -> Reply:
    text = model.get(key) if model.present(key) else b"0"
    if (
        not _INTEGER.fullmatch(text)
        or not _LOWEST <= int(text) + step <= _HIGHEST
        or not _LOWEST <= int(text) <= _HIGHEST
    ):
        raise _UnknownError
    model.put(key, b"%d" % (int(text) + step))
    return int(text) + step


def _step(word: bytes) -> int:
    if not _INTEGER.fullmatch(word) or not _LOWEST < int(word) <= _HIGHEST:
        raise _UnknownError
    return int(word)


def _set_bit(model: Model, key: bytes, offset: bytes, bit: bytes) -> Reply:
    if bit not in {b"0", b"1"} or _whole(offset) < 0:
        raise _UnknownError
    old = model.get(key)
    model.put(key, bit_model.setbit(old, _whole(offset), int(bit)))
    return bit_model.getbit(old, _whole(offset))


def _get_bit(model: Model, key: bytes, offset: bytes) -> Reply:
    if _whole(offset) < 0:
        raise _UnknownError
    return bit_model.getbit(model.get(key), _whole(offset))


def _bit_count(model: Model, key: bytes, start: bytes = b"0", end: bytes = b"-1") -> Reply:
    text = model.get(key)
    if _whole(end) < -len(text):
        raise _UnknownError
    return bit_model.bitcount(text, _whole(start), _whole(end))


def _bit_pos(model: Model, key: bytes, bit: bytes, start: bytes = b"0", end: bytes | None = None) -> Reply:
    text = model.get(key)
    last = None if end is None else _whole(end)
    if bit not in {b"0", b"1"} or not text or (last is not None and last < -len(text)):
        raise _UnknownError
    return bit_model.bitpos(text, int(bit), _whole(start), last)


def _bit_operation(model: Model, operation: bytes, target: bytes, *sources: bytes) -> Reply:
    name = operation.decode("latin-1")
    if name not in {"AND", "OR", "XOR", "NOT"} or not sources or (name == "NOT" and len(sources) != 1):
        raise _UnknownError
    result = bit_model.bitop(name, [model.get(source) for source in sources])
    if not result:
        raise _UnknownError
    model.put(target, result)
    return len(result)


_OF_ALL_KEYS = frozenset({"FLUSHALL", "FLUSHDB", "RESET", "SELECT", "SWAPDB"})
"""Commands that change keys without naming them, or that change which keys are meant."""
_READING = frozenset({"DBSIZE", "DUMP", "EXISTS", "KEYS", "LCS", "MGET", "OBJECT", "SUBSTR", "TOUCH", "TYPE"})
_COMMANDS: dict[tuple[str, int], Callable[..., Reply | object]] = {
    ("DEL", -1): Model.delete,
    ("SET", 2): _set,
    ("GET", 1): _get,
    ("STRLEN", 1): lambda model, key: len(model.get(key)),
    ("APPEND", 2): _append,
    ("SETRANGE", 3): _set_range,
    ("GETRANGE", 3): _get_range,
    ("INCR", 1): lambda model, key: _add(model, key, 1),
    ("DECR", 1): lambda model, key: _add(model, key, -1),
    ("INCRBY", 2): lambda model, key, step: _add(model, key, _step(step)),
    ("DECRBY", 2): lambda model, key, step: _add(model, key, -_step(step)),
    ("SETBIT", 3): _set_bit,
    ("GETBIT", 2): _get_bit,
    ("BITCOUNT", 1): _bit_count,
    ("BITCOUNT", 3): _bit_count,
    ("BITPOS", 2): _bit_pos,
    ("BITPOS", 3): _bit_pos,
    ("BITPOS", 4): _bit_pos,
    ("BITOP", -1): _bit_operation,
    ("PING", 1): lambda _, word: word,
    ("ECHO", 1): lambda _, word: word,
}
MODELLED = frozenset(name for name, _ in _COMMANDS)
"""The names of commands whose effect the model knows."""
