"""JSON of nouns, in one place: msgspec's, plus paths as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

_Decoded = TypeVar("_Decoded")


def _from_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def _to_path(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return kind(value)
    raise NotImplementedError(f"no {kind.__name__} from JSON")


def encode(value: Any) -> bytes:
    """One line of JSON, without its end."""
    return msgspec.json.encode(value, enc_hook=_from_path)


def pretty(value: Any) -> bytes:
    """JSON for reading, with a line's end."""
    return msgspec.json.format(encode(value)) + b"\n"


def decode(text: bytes, kind: type[_Decoded]) -> _Decoded:
    """JSON as a noun; raises msgspec.ValidationError when it is not one."""
    return msgspec.json.decode(text, type=kind, dec_hook=_to_path)


def convert(value: Any, kind: type[_Decoded]) -> _Decoded:
    """Plain dictionaries and lists as a noun; raises msgspec.ValidationError when they are not one."""
    return msgspec.convert(value, kind, dec_hook=_to_path)
