"""JSON of records: msgspec's, with paths as text.

Nothing else decodes into a struct (tests/unit/core/test_json_codec.py). msgspec inspects a struct when it first
decodes into it. If a second thread decodes into the same struct at that time, the process crashes (0.22.0;
docs/upstream/msgspec-struct-info-race.md). This module lets one thread at a time inspect.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec

_Decoded = TypeVar("_Decoded")
_ONE_AT_A_TIME = threading.Lock()


def _from_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def _to_path(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return kind(value)
    raise NotImplementedError(f"no {kind.__name__} from JSON")


def encode(value: Any) -> bytes:
    """One line of JSON without a newline."""
    return msgspec.json.encode(value, enc_hook=_from_path)


def pretty(value: Any) -> bytes:
    """Indented JSON with a final newline."""
    return msgspec.json.format(encode(value)) + b"\n"


def decode(text: bytes, kind: type[_Decoded]) -> _Decoded:
    """Decode JSON as a record. Raises msgspec.ValidationError if it does not fit, or else msgspec.DecodeError.

    msgspec has its own errors for bytes that are not UTF-8, and for values in too many others.
    """
    try:
        decoded: _Decoded = _decoder(kind).decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from error
    return decoded


def convert(value: Any, kind: type[_Decoded]) -> _Decoded:
    """Convert plain dictionaries and lists to a record. Raises msgspec.ValidationError if they do not fit."""
    _decoder(kind)
    return msgspec.convert(value, kind, dec_hook=_to_path)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type. Once it exists, msgspec has inspected all structs of the type."""
    with _ONE_AT_A_TIME:
        return _make_decoder(kind)


@functools.cache
def _make_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_to_path)
