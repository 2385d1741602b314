"""The expected output of the drivers that draw random pairs from ziplists, and of those that merge ziplists."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from suites._shared.formats import encodings
from suites.units.containers import is_integer
from suites.units.values import digest, exactly, hexadecimal, pattern, shown

if TYPE_CHECKING:
    from harness.core.target_model import Endianness


class Pairs:
    """Random pairs from a ziplist. The judge checks only what must hold for any draw."""

    def __init__(self, _: Endianness) -> None:
        self.keys: list[str] = []
        self.values: list[str] = []

    def __call__(self, key: str, values: list[str]) -> str:
        """Judge a line."""
        verb, *words = key.split()
        if verb == "pairs":
            return self._begin(int(words[0]), words[1:], values)
        if verb == "room":
            # A ziplist may grow to 2^30 bytes in total.
            return exactly(values, ["1", "1", "0", "1", "0"])
        only_keys = words[-1] == "keys"
        drawn = values if only_keys else values[::2]
        count = min(int(words[0]), len(self.keys)) if verb == "distinct" else int(words[0])
        if len(drawn) != count:
            return f"it draws {len(drawn)} pairs, the model says {count}"
        if unknown := [text for text in drawn if text not in self.keys]:
            return f"{unknown[0]} is not a key"
        places = [self.keys.index(text) for text in drawn]
        if verb == "distinct" and places != sorted(set(places)):
            return f"the keys are not distinct, or not in the list's order: {shown(drawn)}"
        return "" if only_keys else exactly(values[1::2], [self.values[place] for place in places])

    def _begin(self, lead: int, keys: list[str], values: list[str]) -> str:
        texts = [text.encode() for text in keys]
        patterns = [pattern(number or lead, number) for number in range(len(keys))]
        self.keys = [text if is_integer(text.encode()) else hexadecimal(text.encode()) for text in keys]
        self.values = [value.decode() if is_integer(value) else hexadecimal(value) for value in patterns]
        entries = [entry for pair in zip(texts, patterns, strict=True) for entry in pair]
        return _is_list(values[0], entries) if len(values) == 1 else f"it is {shown(values)}"


def merge(key: str, values: list[str]) -> str:
    """Two merged ziplists, and a ziplist with more entries than its count can hold."""
    verb, *words = key.split()
    if verb == "refused":
        return exactly(values, ["1"] * 5)
    if verb == "sevens":
        return _sevens(int(words[0]), values, counted=words[-1] == "again")
    entries = [pattern(int(size), int(size)) for size in words]
    # One of the two becomes the result, and the other is freed.
    return exactly(values[1:], ["1", "1"]) or _is_list(values[0], entries)


def _sevens(count: int, values: list[str], *, counted: bool) -> str:
    """A ziplist whose entries are all 7: a byte with the previous entry's length, and a byte with the number itself."""
    known = count if counted else 65535
    head = struct.pack("<IIH", 11 + 2 * count, 10 + 2 * (count - 1), known)
    return exactly(values, [str(count), digest(head + b"\0\xf8" + b"\2\xf8" * (count - 1) + b"\xff")])


def _is_list(value: str, entries: list[bytes]) -> str:
    try:
        found = encodings.ziplist(bytes.fromhex(value[1:]))
    except (encodings.EncodingError, IndexError, struct.error) as error:
        return f"the bytes are wrong: {error}; {value:.120}"
    return "" if found == entries else f"it is {found!s:.120}; the model says {entries!s:.120}"
