"""What the drivers' lines must say: each unit has a judge, which is shown one line after the other.

A judge is given a line's key and its values, and answers with a complaint, or with nothing. Those of containers remember
what was put in.
"""

from __future__ import annotations

import hashlib
import re
import struct
from functools import partial
from typing import TYPE_CHECKING

from harness.model import Endianness
from suites.units import encodings, models
from suites.units.models import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OFFSETS = 16
SIPHASH_KEY = pattern(16, 1)
MURMUR2_SEED = 5381
MURMUR64A_SEED = 0xADC83B19
CRC64_START = 0x0123456789ABCDEF
LENGTHS = [*range(49), 55, 56, 57, 63, 64, 65, 66, 119, 120, 127, 128, 129, 255, 256, 257, 1023, 1025]
"""drivers/main.c has the same: a length's place is the seed of its data."""


def judge_of(unit: str, endianness: Endianness) -> Callable[[str, list[str]], str]:
    """A fresh judge of a unit's lines on a target. Raises KeyError for an unknown unit."""
    return _JUDGES[unit](endianness)


def units() -> list[str]:
    """The units that have judges."""
    return list(_JUDGES)


def hexadecimal(data: bytes) -> str:
    """Bytes as drivers write them."""
    return "x" + data.hex()


def digest(data: bytes) -> str:
    """Length and hash, as drivers write what is too long."""
    return f"{len(data)}/{models.fnv1a(data):08x}"


def everywhere(values: Sequence[str], *expected: str) -> str:
    """A complaint unless there is a value for every offset, and each is one of those expected."""
    if len(values) != OFFSETS:
        return f"{len(values)} values where {OFFSETS} are due"
    for offset, value in enumerate(values):
        if value not in expected:
            others = "" if len(set(values)) == 1 else ", elsewhere " + ", ".join(sorted({*values} - {value}))
            return f"at offset {offset} it is {value:.80}{others:.80}; the model says {' or '.join(expected):.200}"
    return ""


def exactly(values: Sequence[str], expected: Sequence[str]) -> str:
    """A complaint unless the values are these."""
    return "" if list(values) == list(expected) else f"it is {_shown(values)}; the model says {_shown(expected)}"


def _shown(values: Sequence[str]) -> str:
    return f"{' '.join(values):.120}" if values else "nothing"


def _length(key: str) -> tuple[int, bytes]:
    """`length N …` and the data that a driver makes of it."""
    length = int(key.split()[1])
    return length, pattern(length, LENGTHS.index(length))


def _siphash(endianness: Endianness, *, nocase: bool) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        _, data = _length(key)
        hashed = models.siphash(models.lower(data) if nocase else data, SIPHASH_KEY)
        swapped = int.from_bytes(hashed.to_bytes(8, "little"), "big")
        # A big-endian server may leave the bytes in the order of the reference's output: no hash leaves the server.
        either = [str(hashed)] if endianness is Endianness.LITTLE else [str(hashed), str(swapped)]
        return everywhere(values, *either)

    return judge


def _of_bytes(model: Callable[[bytes], str]) -> Callable[[Endianness], Callable[[str, list[str]], str]]:
    """The judge of a function of bytes alone, the same on all machines."""
    return lambda _: lambda key, values: everywhere(values, model(_length(key)[1]))


def _murmurhash2(endianness: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        hashed = models.murmurhash2(_length(key)[1], MURMUR2_SEED, byteorder=endianness.value)
        return everywhere(values, str(hashed))

    return judge


def _bitpos(_: Endianness) -> Callable[[str, list[str]], str]:
    return lambda key, values: everywhere(values, key.rpartition(" ")[2])


def _crc64(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        goes_on = key.endswith("from 1")
        return everywhere(values, str(models.crc64(_length(key)[1], CRC64_START if goes_on else 0)))

    return judge


def _lzf(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        length, period = (int(word) for word in key.split()[1::2])
        data = bytes((i % period * 31 + (i >> 3 if i % 7 == 6 else 0)) & 255 for i in range(length))
        complaint = everywhere(values[1::2], digest(data))
        if complaint:
            return f"what was compressed and decompressed: {complaint}"
        # Which matches it finds is its own affair; that they are right is not.
        for offset, packed in enumerate(values[::2]):
            try:
                found = encodings.lzf(bytes.fromhex(packed[1:]))
            except (encodings.EncodingError, IndexError) as error:
                return f"at offset {offset} what was compressed is no LZF: {error}"
            if found != data:
                return f"at offset {offset} what was compressed is {found.hex():.80}; it should be {data.hex():.80}"
        return ""

    return judge


def _endianconv(endianness: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        what, size = key.split()
        if what == "size":
            data = pattern(int(size), 3)
            return everywhere(values, hexadecimal(data[::-1] if endianness is Endianness.BIG else data))
        data = bytes(range(1, int(size) + 1))
        # Read in the other order it is the other number.
        read = int.from_bytes(data, "big" if endianness is Endianness.LITTLE else "little")
        return exactly(values, [str(read)])

    return judge


def _string2ll(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        text = key.removeprefix("text ")
        fits = re.fullmatch(r"0|-?[1-9][0-9]*", text) and -(1 << 63) <= int(text) < 1 << 63
        return everywhere(values, text if fits else "x")

    return judge


def _ll2string(_: Endianness) -> Callable[[str, list[str]], str]:
    return lambda key, values: everywhere(values, hexadecimal(key.removeprefix("number ").encode()))


def _double(bits: int) -> float:
    return float(struct.unpack(">d", struct.pack(">Q", bits))[0])


def _bits(value: float) -> int:
    return int(struct.unpack(">Q", struct.pack(">d", value))[0])


def _d2string(_: Endianness) -> Callable[[str, list[str]], str]:
    """Integers may come as such, the rest with 17 digits or with as few as tell it apart: whatever reads back the same."""

    def judge(key: str, values: list[str]) -> str:
        bits = int(key.removeprefix("double "), 16)
        complaint = everywhere(values, values[0] if values else "")
        if complaint:
            return complaint
        text = bytes.fromhex(values[0][1:]).decode("ascii", "replace")
        try:
            same = _bits(float(text)) == bits
        except ValueError:
            same = False
        return "" if same and text == text.strip() else f"it is {text!r}, the number is {_double(bits)!r}"

    return judge


def _string2d(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        text = key.removeprefix("text ")
        try:
            expected = str(_bits(float(text)))
        except ValueError:
            expected = "x"
        return everywhere(values, expected)

    return judge


class _Intset:
    def __init__(self, _: Endianness) -> None:
        self.values: set[int] = set()

    def __call__(self, key: str, values: list[str]) -> str:
        verb, _, word = key.partition(" ")
        if verb == "begin":
            self.values = set()
            return exactly(values, [self._blob()])
        if verb == "get":
            ordered = sorted(self.values)
            at = int(word)
            if at >= len(ordered):
                return exactly(values, [])
            # The second look is for a neighbour, as 64-bit two's complement.
            other = int.from_bytes((ordered[at] ^ 0x40).to_bytes(8, "little", signed=True), "little", signed=True)
            return exactly(values, [str(ordered[at]), "1", str(int(other in self.values))])
        value = int(word)
        changed = (value in self.values) == (verb == "remove")
        self.values = self.values | {value} if verb == "add" else self.values - {value}
        if verb == "remove":
            # What was widened stays so.
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


INTEGERS = (
    "0 1 12 13 -1 63 64 127 128 -128 -129 255 256 4095 4096 -4096 -4097 32767 32768 -32768 -32769 8388607 8388608 -8388608"
    " -8388609 2147483647 2147483648 -2147483648 -2147483649 1234567890123 9223372036854775807 -9223372036854775808"
    " 9223372036854775808 -0 00 +7 1e5 12345678901234567890123"
).split()
STRINGS = [0, 1, 2, 3, 31, 62, 63, 64, 65, 127, 128, 250, 251, 252, 253, 254, 255, 256, 300]
LONG_STRINGS = [4095, 4096, 4097, 16383, 16384, 66000]
"""drivers/entries.h has the same."""


def _is_integer(text: bytes) -> bool:
    return bool(re.fullmatch(rb"0|-?[1-9][0-9]*", text)) and -(1 << 63) <= int(text) < 1 << 63


class _List:
    """A ziplist or a listpack: what was put in must be in the blob, and must come out again."""

    def __init__(self, _: Endianness, *, decode: Callable[[bytes], list[bytes]], heads: bool, texts: bool) -> None:
        self.decode = decode
        self.heads = heads
        """Every third integer goes to the front."""
        self.texts = texts
        """Integers are shown as numbers and as text."""
        self.entries: list[bytes] = []

    def __call__(self, key: str, values: list[str]) -> str:
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
            return f"the bytes are wrong: {error}; {_shown(values)}"
        if found == self.entries:
            return ""
        at = next((i for i, (a, b) in enumerate(zip(found, self.entries, strict=False)) if a != b), len(found))
        here, due = found[at : at + 1] or ["nothing"], self.entries[at : at + 1] or ["nothing"]
        return f"entry {at} is {here[0]!r:.60}; the model says {due[0]!r:.60}"

    def _change(self, verb: str, words: list[str]) -> None:
        if verb == "begin":
            lead = words[0] == "lead"
            self.entries = [pattern(int(words[1]), int(words[1]))] if lead else []
        elif verb == "delete":
            del self.entries[int(words[0])]
        elif words[0] == "integers":
            for number, text in enumerate(INTEGERS):
                self.entries.insert(0 if self.heads and number % 3 == 0 else len(self.entries), text.encode())
        elif words[0] in {"strings", "long"}:
            self.entries += [pattern(size, size) for size in (STRINGS if words[0] == "strings" else LONG_STRINGS)]
        else:
            size = int(words[1])
            self.entries.insert(0 if words[0] == "head" else len(self.entries), pattern(size, size))

    def _shown(self, entry: bytes) -> list[str]:
        if not _is_integer(entry):
            return [hexadecimal(entry)]
        return [entry.decode(), hexadecimal(entry)] if self.texts else [entry.decode()]


class _Zipmap:
    def __init__(self, _: Endianness) -> None:
        self.pairs: dict[bytes, bytes] = {}

    def __call__(self, key: str, values: list[str]) -> str:
        verb, *words = key.split()
        if verb == "get":
            found = self.pairs.get(words[0].encode())
            return exactly(values, [] if found is None else [hexadecimal(found)])
        if verb == "walk":
            shown = [pair for key_and_value in zip(values[::2], values[1::2], strict=False) for pair in [key_and_value]]
            pairs = [(hexadecimal(name), hexadecimal(value)) for name, value in self.pairs.items()]
            if int(words[0]) != len(pairs):
                return f"it counts {words[0]} pairs, the model {len(pairs)}"
            return (
                ""
                if sorted(shown) == sorted(pairs)
                else f"it is {_shown(values)}; the model says {sorted(pairs)!s:.120}"
            )
        if verb == "begin":
            self.pairs = {}
            return exactly(values, ["x00ff"])
        name, size = words[0].encode(), int(words[1])
        update = str(int(name in self.pairs))
        self.pairs[name] = pattern(size, size)
        try:
            found_pairs = encodings.zipmap(bytes.fromhex(values[1][1:]))
        except (encodings.EncodingError, IndexError) as error:
            return f"the bytes are wrong: {error}; {_shown(values)}"
        if found_pairs != self.pairs:
            return f"its pairs are {found_pairs!s:.100}; the model says {self.pairs!s:.100}"
        return exactly(values[:1], [update])


def _sds(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
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
        return exactly(values, ["1", "1", "1"])

    return judge


class _Rax:
    def __init__(self, _: Endianness) -> None:
        self.values: dict[bytes, int] = {}

    def __call__(self, key: str, values: list[str]) -> str:
        verb, _, word = key.partition(" ")
        if verb in {"walk", "back"}:
            ordered = sorted(self.values.items())
            if int(word) != len(ordered):
                return f"it counts {word} keys, the model {len(ordered)}"
            if verb == "back":
                return exactly(values, [str(value) for _, value in reversed(ordered)])
            return exactly(values, [text for name, value in ordered for text in (hexadecimal(name), str(value))])
        number = int(word)
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


_JUDGES: dict[str, Callable[[Endianness], Callable[[str, list[str]], str]]] = {
    "siphash": partial(_siphash, nocase=False),
    "siphash_nocase": partial(_siphash, nocase=True),
    "murmurhash2": _murmurhash2,
    "casehash": _of_bytes(lambda data: str(models.bernstein(data, MURMUR2_SEED))),
    "murmurhash64a": _of_bytes(lambda data: str(models.murmurhash64a(data, MURMUR64A_SEED))),
    "popcount": _of_bytes(lambda data: str(int.from_bytes(data).bit_count())),
    "bitpos": _bitpos,
    "crc16": _of_bytes(lambda data: str(models.crc16(data))),
    "crc64": _crc64,
    "sha1": _of_bytes(lambda data: hexadecimal(hashlib.sha1(data, usedforsecurity=False).digest())),
    "sha256": _of_bytes(lambda data: hexadecimal(hashlib.sha256(data).digest())),
    "lzf": _lzf,
    "endianconv": _endianconv,
    "string2ll": _string2ll,
    "ll2string": _ll2string,
    "d2string": _d2string,
    "string2d": _string2d,
    "intset": _Intset,
    "ziplist": partial(_List, decode=encodings.ziplist, heads=True, texts=False),
    "listpack": partial(_List, decode=encodings.listpack, heads=False, texts=True),
    "zipmap": _Zipmap,
    "sds": _sds,
    "rax": _Rax,
    "lua": _of_bytes(digest),
}
