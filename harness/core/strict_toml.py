"""Reads TOML into records, strictly: an unknown key, type or name is a usage error that names the nearest known one."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGE = Path(__file__).resolve().parents[1]
"""The package `harness`."""
PACKED = PACKAGE / "data"
"""The data of an installed wheel, which has no checkout (pyproject.toml, tool.hatch)."""
ROOT = PACKED if PACKED.is_dir() else PACKAGE.parent
"""The folder with targets, toolchains and suites: the checkout, or in an installed wheel the package's data."""
OWN_FOLDERS = (PACKAGE, *(ROOT / name for name in ("suites", "targets", "toolchains")))
"""The folders whose files can change a result."""

_Loaded = TypeVar("_Loaded", bound=msgspec.Struct)


def read_toml(path: Path, kind: type[_Loaded], /, **given: Any) -> _Loaded:
    """Decode a file as a record. `given` holds the fields that no file sets, such as those that follow from its path.

    Raises UsageError with the file, the line, the key and the nearest known key.
    """
    return decode_toml(read_text(path), path, kind, **given)


def read_text(path: Path) -> str:
    """A TOML file's text. Raises UsageError if it cannot be read, or is not UTF-8.

    A pipe has its text only once, and a device may have no end: they are refused.
    """
    if path.exists() and not path.is_file():
        raise UsageError("the file cannot be read", where=str(path), because="it is not a regular file")
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError("the file cannot be read", where=str(path), because=str(error.strerror)) from error
    except UnicodeDecodeError as error:
        raise UsageError("not valid TOML", where=str(path), because=str(error)) from error


def decode_toml(text: str, path: Path, kind: type[_Loaded], /, **given: Any) -> _Loaded:
    """Decode a file's text as a record, with the same errors. `path` is only for messages."""
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        # Without a line, the problem is at the end of the document.
        line = int(found[1]) if found else len(text.splitlines())
        raise UsageError("not valid TOML", where=at_line(path, line), because=str(error)) from error
    clash = sorted(set(raw) & set(given))
    if clash:
        raise UsageError(f"key '{clash[0]}' cannot be set in a file", where=str(path), remedy="remove the key")
    try:
        return json_codec.convert({**raw, **given}, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"not a valid {kind.__name__.lower()}",
            where=at_line(path, _line_of_problem(text, str(error))),
            because=str(error),
            remedy=nearest_key(str(error), kind),
        ) from error


def at_line(path: Path, line: int) -> str:
    """`FILE:LINE`, or only the file if the line is 0, which means unknown."""
    return f"{path}:{line}" if line else str(path)


def line_of(text: str, name: str, number: int, key: str = "") -> int:
    """The line of a key in the table `[[name]]` with this number (from 0), or of the table's head; 0 if there is
    none.
    """
    lines = text.splitlines()
    heads = [line for line, words in enumerate(lines, 1) if re.match(rf"\s*\[\[\s*{name}\s*\]\]", words)]
    if number >= len(heads):
        return 0
    end = heads[number + 1] if number + 1 < len(heads) else len(lines) + 1
    keys = (line for line in range(heads[number], end) if re.match(rf"\s*{re.escape(key)}\s*=", lines[line - 1]))
    return next(keys, heads[number]) if key else heads[number]


def _line_of_problem(text: str, message: str) -> int:
    """The line that msgspec's message refers to, if it names a table of an array: `at `$.findings[2].expires``."""
    place = re.search(r"at `\$\.(\w+)\[(\d+)\](?:\.(\w+))?", message)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    return line_of(text, place[1], int(place[2]), unknown[1] if unknown else place[3] or "") if place else 0


def near_names(word: str, names: Iterable[str]) -> list[str]:
    """The names that `word` may have been meant to be, best first: similar ones, and those that contain it."""
    likeness = {name: difflib.SequenceMatcher(None, name, word).ratio() for name in names}
    by_likeness = sorted(likeness, key=lambda name: -likeness[name])
    near = [name for name in by_likeness if likeness[name] >= _ALIKE or (len(word) > 1 and word in name)]
    return near[:_MOST_NEAR]


_ALIKE = 0.6
"""The minimal similarity of a misspelt word and the intended one, as difflib counts it: twice the common letters
divided by all.
"""
_MOST_NEAR = 8


def nearest_key(message: str, kind: type[msgspec.Struct]) -> str:
    """The remedy for an unknown key in msgspec's message; empty if the message is about something else."""
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown is None:
        return ""
    known = _field_names(kind)
    near = difflib.get_close_matches(unknown[1], known, n=1, cutoff=0.0)
    return f"'{near[0]}' is the nearest known key; all of them: {', '.join(known)}"


def _field_names(kind: type[msgspec.Struct]) -> list[str]:
    names: list[str] = []
    for field in msgspec.structs.fields(kind):
        names.append(field.name)
        for inner in (field.type, *get_args(field.type)):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                names += _field_names(inner)
    return sorted(set(names))
