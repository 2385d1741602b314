"""Judges of the drivers for containers. They remember the elements."""

from __future__ import annotations

import itertools
import operator
import re
import struct
from typing import TYPE_CHECKING

from suites._shared.formats import encodings
from suites.units.values import OFFSETS, digest, exactly, hexadecimal, pattern, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.core.target_model import Endianness


class Intset:
    """An intset: values added, read and removed."""

    def __init__(self, _: Endianness) -> None:
        self.values: set[int] = set()

    def __call__(self, key: str, values: list[str]) -> str:
        """Judge a line."""
        verb, _, word = key.partition(" ")
        if verb == "begin":
            self.values = set()
            return exactly(values, [self._blob()])
        if verb == "get":
            ordered = sorted(self.values)
            at = int(word)
            if at >= len(ordered):
                return exactly(values, [])
            # The second lookup is for a neighbour, as a 64-bit two's complement.
            other = int.from_bytes((ordered[at] ^ 0x40).to_bytes(8, "little", signed=True), "little", signed=True)
            return exactly(values, [str(ordered[at]), "1", str(int(other in self.values))])
        value = int(word)
        changed = (value in self.values) == (verb == "remove")
        self.values = self.values | {value} if verb == "add" else self.values - {value}
        if verb == "remove":
            # A widened intset stays wide.
            return self._removed(values, changed)
        return exactly(values, [str(int(changed)), self._blob()])

    def _removed(self, values: list[str], changed: bool) -> str:
        blob = bytes.fromhex(values[1][1:]) if len(values) == 2 else b""
        width = int.from_bytes(blob[:4], "little")
        if width not in {2, 4, 8}:
            return f"its width is {width}"
        body = b"".join(value.to_bytes(width, "little", signed=True) for value in sorted(self.values))
        expected = struct.pack("<II", width, len(self.values)) + body
        return exactly(values, [str(int(changed)), hexadecimal(expected)])

    def _blob(self) -> str:
        return hexadecimal(encodings.intset(list(self.values)))


def is_integer(text: bytes) -> bool:
    """Whether a list stores this text as an integer."""
    return bool(re.fullmatch(rb"0|-?[1-9][0-9]*", text)) and -(1 << 63) <= int(text) < 1 << 63


class List:
    """A ziplist or a listpack: the blob must contain every stored element, and reading must return it."""

    def __init__(self, _: Endianness, *, decode: Callable[[bytes], list[bytes]], heads: bool, texts: bool) -> None:
        self.decode = decode
        self.heads = heads
        """Whether every third integer goes to the front."""
        self.texts = texts
        """Whether integers are shown both as numbers and as text."""
        self.entries: list[bytes] = []

    def __call__(self, key: str, values: list[str]) -> str:
        """Judge a line."""
        verb, *words = key.split()
        if verb in {"entry", "backwards"}:
            once = self._shown(self.entries[int(words[0])])
            return exactly(values, once * 2 if verb == "entry" else once)
        if verb == "find":
            wanted = words[0].encode()
            return exactly(values, self._shown(wanted) if wanted in self.entries else [])
        self._change(verb, words)
        try:
            found = self.decode(bytes.fromhex(values[0][1:]))
        except (encodings.EncodingError, IndexError, struct.error) as error:
            return f"the bytes are wrong: {error}; {shown(values)}"
        if found == self.entries:
            return ""
        at = next((i for i, (a, b) in enumerate(zip(found, self.entries, strict=False)) if a != b), len(found))
        here, due = (dict(enumerate(entries)).get(at, "nothing") for entries in (found, self.entries))
        return f"entry {at} is {here!r:.60}; the model says {due!r:.60}"

    def _change(self, verb: str, words: list[str]) -> None:
        if verb == "begin":
            lead = words[0] == "lead"
            self.entries = [pattern(int(words[1]), int(words[1]))] if lead else []
        elif verb == "delete":
            del self.entries[int(words[0])]
        elif words[0] == "integers":
            for number, text in enumerate(words[1:]):
                self.entries.insert(0 if self.heads and number % 3 == 0 else len(self.entries), text.encode())
        elif words[0] == "strings":
            self.entries += [pattern(int(size), int(size)) for size in words[1:]]
        else:
            size = int(words[1])
            self.entries.insert(0 if words[0] == "head" else len(self.entries), pattern(size, size))

    def _shown(self, entry: bytes) -> list[str]:
        if not is_integer(entry):
            return [hexadecimal(entry)]
        return [entry.decode(), hexadecimal(entry)] if self.texts else [entry.decode()]


class Zipmap:
    """A zipmap: its pairs are set, read and iterated."""

    def __init__(self, _: Endianness) -> None:
        self.pairs: dict[bytes, bytes] = {}

    def __call__(self, key: str, values: list[str]) -> str:
        """Judge a line."""
        verb, *words = key.split()
        if verb == "begin":
            self.pairs = {}
            return exactly(values, ["x00ff"])
        if verb == "get":
            found = self.pairs.get(words[0].encode())
            return exactly(values, [] if found is None else [hexadecimal(found)])
        if verb == "delete":
            there = self.pairs.pop(words[0].encode(), None) is not None
            return exactly(values, [str(int(there)), str(int(there)), "0"])
        return self._walk(int(words[0]), values) if verb == "walk" else self._set(words, values)

    def _walk(self, count: int, values: list[str]) -> str:
        if count != len(self.pairs):
            return f"it counts {count} pairs, the model {len(self.pairs)}"
        found = sorted(zip(values[::2], values[1::2], strict=False))
        expected = sorted((hexadecimal(name), hexadecimal(value)) for name, value in self.pairs.items())
        return "" if found == expected else f"it is {shown(values)}; the model says {expected!s:.120}"

    def _set(self, words: list[str], values: list[str]) -> str:
        name, size = words[0].encode(), int(words[1])
        update = str(int(name in self.pairs))
        self.pairs[name] = pattern(size, size)
        try:
            found = encodings.zipmap(bytes.fromhex(values[1][1:]))
        except (encodings.EncodingError, IndexError) as error:
            return f"the bytes are wrong: {error}; {shown(values)}"
        if found != self.pairs:
            return f"its pairs are {found!s:.100}; the model says {self.pairs!s:.100}"
        return exactly(values[:1], [update])


def sds(key: str, values: list[str]) -> str:
    """Strings that the driver makes, grows, cuts and compares."""
    verb, *words = key.split()
    size = int(words[0])
    if verb == "new":
        return exactly(values, [digest(pattern(size, 0)), "0"] * OFFSETS)
    if verb == "cat":
        data = pattern(size + int(words[1]), 0)
        return exactly(values, [digest(data), "0", digest(data + bytes(3)), "0"] * OFFSETS)
    if verb == "range":
        data = pattern(size, 0)[1:]
        return exactly(values, [digest(data), "0"] * 3 + [digest(data[:1]), "0"])
    if verb == "trim":
        data = pattern(size - 1, 0)
        return exactly(values, [digest(data), "0", digest(data + bytes(1)), "0", digest(data.split(b"\0")[0]), "0"])
    if verb == "header":
        return _header(size, int(words[1]), values)
    return exactly(values, ["1", "1", "1"])


def _header(bits: int, word_bits: int, values: list[str]) -> str:
    """The largest length that a string's header holds. It has two lengths and its type, and nothing between them."""
    most = (1 << min(bits, word_bits)) - 1
    kind = {8: 1, 16: 2, 32: 3, 64: 4}[bits]
    return exactly(values, [*map(str, (most - 9, most, 9, most - 4)), str(kind), str(2 * bits // 8 + 1)])


class Rax:
    """A radix tree: keys, and the numbers to which they map."""

    def __init__(self, _: Endianness) -> None:
        self.values: dict[bytes, int] = {}

    def __call__(self, key: str, values: list[str]) -> str:
        """Judge a line."""
        verb, _, word = key.partition(" ")
        if verb in {"walk", "back"}:
            return self._walk(verb, int(word), values)
        if verb == "stroll":
            there = [["1", hexadecimal(name), str(number)] for name, number in self.values.items()]
            return "" if values in there else f"it is {shown(values)}, which is not a key with its number"
        if verb == "draw":
            return _drawn(int(word), values)
        if verb == "seek":
            operation, *digits = word.split()
            return self._seek(operation, bytes.fromhex("".join(digits[1:])), values)
        if verb in {"insert", "find", "remove"}:
            return self._change(verb, int(word), values)
        return exactly(values, self._deep(verb, word))

    def _deep(self, verb: str, word: str) -> list[str]:
        if verb == "begin":
            self.values = {}
        if verb == "deep":
            self.values[pattern(int(word), 0)] = int(word)
        return {
            "begin": [],
            # A seek in an empty tree succeeds and is at the end; an unknown operator fails.
            "empty": ["1", "1", "1", "0", "0", "0"],
            "deep": ["1"],
            "last": [str(number) for number in sorted(self.values.values(), reverse=True)],
            "touch": [str(sum(self.values.values()) + _branch_bytes(self.values))],
        }[verb]

    def _walk(self, verb: str, count: int, values: list[str]) -> str:
        ordered = sorted(self.values.items())
        if count != len(ordered):
            return f"it counts {count} keys, the model {len(ordered)}"
        if verb == "back":
            return exactly(values, [str(value) for _, value in reversed(ordered)])
        return exactly(values, [text for name, value in ordered for text in (hexadecimal(name), str(value))])

    def _seek(self, operation: str, wanted: bytes, values: list[str]) -> str:
        matching = sorted(name for name in self.values if _COMPARISONS[operation](name, wanted))
        if not matching:
            return exactly(values, ["1"])
        found = matching[-1] if "<" in operation else matching[0]
        # A single "=" is not a comparison.
        compared = [_COMPARISONS[each](found, wanted) for each in ("=", "<", "<=", ">", ">=")]
        expected = ["1", hexadecimal(found), str(self.values[found]), *(str(int(true)) for true in compared), "0"]
        return exactly(values, expected)

    def _change(self, verb: str, number: int, values: list[str]) -> str:
        name = pattern(number * 7 % 48, number // 8 % 4)
        before = self.values.get(name)
        shown = "-1" if before is None else str(before)
        if verb == "find":
            return exactly(values, [shown])
        if verb == "insert":
            self.values[name] = number
            return exactly(values, [str(int(before is None)), shown])
        self.values.pop(name, None)
        return exactly(values, [str(int(before is not None)), shown])


_COMPARISONS: dict[str, Callable[[bytes, bytes], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


WORDS = ["o", "gr", "grape", "grapefruit", "graph", "green", "orange", "organ", "grapes", "z"]
"""The keys of unit_rax.c. The value of each is its position in this list, counted from one."""


def _drawn(count: int, values: list[str]) -> str:
    """Judge the drawing of a tree that has the first `count` words as its keys."""
    expected = {word: number for number, word in enumerate(WORDS[:count], 1)}
    if not values:
        return "nothing was drawn"
    text = bytes.fromhex(values[0].removeprefix("x")).decode("ascii", "replace")
    try:
        found, rest = keys_of_drawing(text)
    except ValueError as error:
        return f"the drawing cannot be read: {error}: {text!r}"
    if rest != "\n":
        return f"after the drawing is {rest!r}"
    return "" if found == expected else f"it draws {found}, the model has {expected}"


_NODE = re.compile(r'"(?P<chain>[a-z]*)"|\[(?P<branches>[a-z]*)\]')
_VALUE = re.compile(r"=0x([0-9a-f]+)")


def keys_of_drawing(text: str, before: str = "") -> tuple[dict[str, int], str]:
    """The keys of a drawn radix tree with their values, and the text after the drawing (rax.c defines the format). A
    node is a chain of characters in quotes, or its branches in brackets. If a key ends there, its value follows. An
    only child follows an arrow; several children have a line each, with the character that leads to them. Raises
    ValueError.
    """
    node = _NODE.match(text)
    if node is None:
        raise ValueError(f"no node at {text[:20]!r}")
    text = text[node.end() :]
    found = {}
    if value := _VALUE.match(text):
        found[before] = int(value[1], 16)
        text = text[value.end() :]
    chain, branches = node["chain"], node["branches"]
    ways = [chain] if chain is not None else list(branches)
    for way in ways:
        lead = re.match(r" -> " if len(ways) == 1 else rf"\n +`-\({way}\) ", text)
        if lead is None:
            raise ValueError(f"nothing leads to {way!r} at {text[:20]!r}")
        below, text = keys_of_drawing(text[lead.end() :], before + way)
        found |= below
    return found, text


def _branch_bytes(keys: Iterable[bytes]) -> int:
    """The sum of the bytes in which keys differ directly after a common prefix."""
    branches: dict[bytes, set[int]] = {}
    # In sorted order, two adjacent keys show where the longest common prefix of a group ends.
    for key, following in itertools.pairwise(sorted(keys)):
        shared = next((at for at, byte in enumerate(key) if byte != following[at]), len(key))
        branches.setdefault(key[:shared], set()).update(key[shared : shared + 1], following[shared : shared + 1])
    return sum(sum(bytes_there) for bytes_there in branches.values() if len(bytes_there) > 1)
