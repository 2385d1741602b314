"""The expected output of the drivers. Each unit has a judge, which receives one line after the other, as key and
values, and returns a complaint, or an empty string for a correct line.
"""

from __future__ import annotations

import hashlib
import re
import struct
from functools import partial
from typing import TYPE_CHECKING

from harness.core.target_model import Endianness
from suites._shared import checksums
from suites._shared.formats import encodings
from suites.units import containers, integrity, twister, ziplists
from suites.units.values import (
    BIG_WORDS,
    OPPOSITE,
    WRAPS,
    digest,
    everywhere,
    exactly,
    hexadecimal,
    number_everywhere,
    pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIPHASH_KEY = pattern(16, 1)
MURMUR2_SEED = 5381
MURMUR64A_SEED = 0xADC83B19
CRC64_START = 0x0123456789ABCDEF


def judge_of(unit: str, endianness: Endianness) -> Callable[[str, list[str]], str]:
    """A new judge of a unit's lines on a target. Raises KeyError for an unknown unit."""
    return _JUDGES[unit](endianness)


def units() -> list[str]:
    """The units that have judges."""
    return list(_JUDGES)


def wrong_line(unit: str, endianness: Endianness, lines: Sequence[str]) -> tuple[str, str] | None:
    """The line to report from a unit's output, and its complaint; None if all lines are correct.

    A reversed byte order is one fault in every line, and so are words of the wrong byte order and a size that wraps.
    Any other wrong line takes precedence, so that no fault hides it.
    """
    judge = judge_of(unit, endianness)
    alike = None
    for line in lines:
        key, _, values = line.partition(":")
        complaint = judge(key, values.split())
        if complaint and not complaint.startswith((OPPOSITE, BIG_WORDS, WRAPS)):
            return line, complaint
        if complaint:
            alike = alike or (line, complaint)
    return alike


def _length(key: str) -> tuple[int, bytes]:
    """The length in `length N …`, and the data that a driver derives from it."""
    length = int(key.split()[1])
    return length, pattern(length, length)


def _siphash(endianness: Endianness, *, nocase: bool) -> Callable[[str, list[str]], str]:
    """The result is a 64-bit number as the paper defines it, not bytes: it is the same on all machines."""

    def judge(key: str, values: list[str]) -> str:
        _, data = _length(key)
        text = checksums.lower(data) if nocase else data
        hashed = checksums.siphash(text, SIPHASH_KEY)
        complaint = number_everywhere(values, hashed, size_bytes=8)
        if complaint and endianness is Endianness.BIG:
            # Servers read lowered text byte by byte, and its key in words.
            other = checksums.siphash(text, SIPHASH_KEY, key_words="big", data_words="little" if nocase else "big")
            if not everywhere(values, str(other)):
                return f"{BIG_WORDS}: it is {other}; the model says {hashed}"
        return complaint

    return judge


def _of_bytes(model: Callable[[bytes], str]) -> Callable[[Endianness], Callable[[str, list[str]], str]]:
    """The judge of a function whose result depends only on the input bytes, and is the same on all machines."""
    return lambda _: lambda key, values: everywhere(values, model(_length(key)[1]))


def _murmurhash2(endianness: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        hashed = checksums.murmurhash2(_length(key)[1], MURMUR2_SEED, byteorder=endianness.value)
        return everywhere(values, str(hashed))

    return judge


def _bitpos(_: Endianness) -> Callable[[str, list[str]], str]:
    return lambda key, values: everywhere(values, key.rpartition(" ")[2])


def _crc64(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        goes_on = key.endswith("from 1")
        return everywhere(values, str(checksums.crc64(_length(key)[1], CRC64_START if goes_on else 0)))

    return judge


def _lzf(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        length, period = (int(word) for word in key.split()[1::2])
        data = bytes((i % period * 31 + (i >> 3 if i % 7 == 6 else 0)) & 255 for i in range(length))
        complaint = everywhere(values[1::2], digest(data))
        if complaint:
            return f"what was compressed and decompressed: {complaint}"
        # Compression may choose any matches, but they must be correct.
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
        # In the other byte order the same bytes are a different number.
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
    """Accept any text that reads back as the same double: 17 digits, fewer that identify it, or a whole number."""

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


def _cmsgpack(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        _, lead, *words = key.split()
        numbers = [_double(int(word, 16)) for word in words]
        packed = encodings.messagepack([pattern(int(lead), int(lead)), *numbers])
        return exactly(values, [hexadecimal(packed), *(str(_bits(number)) for number in numbers)])

    return judge


def _memtest(_: Endianness) -> Callable[[str, list[str]], str]:
    """A comparison prints 1 if the halves differ. All other numbers count faults."""

    def judge(key: str, values: list[str]) -> str:
        faults = {"compare": 1, "numbers": 4, "values": 3, "addresses": 3, "preserve": 2}
        if " difference " in key:
            return exactly(values, ["1"])
        return exactly(values, ["0"] * faults[key.rpartition(" ")[2]])

    return judge


def _timers(_: Endianness) -> Callable[[str, list[str]], str]:
    """Numbers of timers are relative to the first. The second timer is deleted; one whose number is 2^32 higher does
    not exist.
    """

    def judge(key: str, values: list[str]) -> str:
        if key.startswith("delay"):
            return exactly(values, ["1" if key == "delay 0" else "0"])
        fired = [("1", str(number)) if number != 1 else ("0", "-1") for number in range(4)]
        return exactly(values, ["0", "1", "2", "3", "-1", "0", *(word for each in fired for word in each)])

    return judge


def _slowlog(_: Endianness) -> Callable[[str, list[str]], str]:
    """The log keeps 128 bytes of an argument, and the number of bytes that it omitted."""

    def judge(key: str, values: list[str]) -> str:
        length = int(key.rpartition(" ")[2])
        text = b"a" * min(length, 128) + (b"... (%d more bytes)" % (length - 128) if length > 128 else b"")
        return exactly(values, [str(len(text)), hexadecimal(text), str((1 << 40) + 1)])

    return judge


def _reader(_: Endianness) -> Callable[[str, list[str]], str]:
    """The values of the reply in the input, twice: read at once, and byte by byte."""

    def judge(key: str, values: list[str]) -> str:
        data = bytes.fromhex(key.removeprefix("input "))
        return exactly(values, 2 * (_reply(data)[0] if data[:1] in b"+-:$*" and data[0] else [_refused(data[0])]))

    return judge


def _reply(data: bytes) -> tuple[list[str], bytes]:
    """The first reply in RESP data, as its type in hiredis.h and its value, and the data after it."""
    head, _, rest = data.partition(b"\r\n")
    kind, text = head[:1], head[1:]
    if kind == b":":
        return ["3", str(int(text))], rest
    if kind in b"+-":
        return ["5" if kind == b"+" else "6", hexadecimal(text)], rest
    size = int(text)
    if size < 0:
        return ["4"], rest
    if kind == b"$":
        return ["1", hexadecimal(rest[:size])], rest[size + 2 :]
    values = ["2", text.decode()]
    for _ in range(size):
        more, rest = _reply(rest)
        values += more
    return values, rest


def _refused(byte: int) -> str:
    """The error for an unknown first byte, which it shows in the notation of C."""
    names = {ord("\\"): "\\\\", ord('"'): '\\"', 7: r"\a", 8: r"\b", 9: r"\t", 10: r"\n", 13: r"\r"}
    shown = names.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}")
    return hexadecimal(f'Protocol error, got "{shown}" as reply type byte'.encode())


def _syncio(_: Endianness) -> Callable[[str, list[str]], str]:
    """A call's result, whether it timed out, and whether it returned before its timeout."""

    def judge(key: str, values: list[str]) -> str:
        ended = {
            "write what fits": 3000,
            "read what is there": 4000,
            "write to a slow reader": 1 << 22,
            "read from a slow writer": 36,
            "read a slow writer's line": 35,
        }.get(key.partition(",")[0])
        return exactly(values, [str(ended), "0", "1"] if ended is not None else ["-1", "1", "0"])

    return judge


def _twister(_: Endianness) -> Callable[[str, list[str]], str]:
    """64-bit numbers; or a 63-bit number and two fractions in turn, each from the next number."""

    def judge(key: str, values: list[str]) -> str:
        what, _, seed = key.split()
        state = twister.from_keys([0x12345, 0x23456, 0x34567, 0x45678]) if seed == "keys" else None
        made = twister.numbers(state or twister.from_seed(int(seed)))
        if what == "numbers":
            return exactly(values, [str(next(made)) for _ in range(2 * 312 + 16)])
        forms = (
            lambda number: number >> 1,
            lambda number: _bits((number >> 11) / (1 << 53)),
            lambda number: _bits(((number >> 12) + 0.5) / (1 << 52)),
        )
        return exactly(values, [str(form(next(made))) for _ in range(20) for form in forms])

    return judge


def _rdb_counts(_: Endianness) -> Callable[[str, list[str]], str]:
    def judge(key: str, values: list[str]) -> str:
        text = bytes.fromhex(values[0][1:]).decode() if len(values) == 1 else ""
        told, counted = re.findall(r"[0-9]+", text)[:3], key.split()[1:]
        return "" if told == counted else f"it says {text!r}"

    return judge


_JUDGES: dict[str, Callable[[Endianness], Callable[[str, list[str]], str]]] = {
    "siphash": partial(_siphash, nocase=False),
    "siphash_nocase": partial(_siphash, nocase=True),
    "murmurhash2": _murmurhash2,
    "casehash": _of_bytes(lambda data: str(checksums.bernstein(data, MURMUR2_SEED))),
    "murmurhash64a": _of_bytes(lambda data: str(checksums.murmurhash64a(data, MURMUR64A_SEED))),
    "popcount": _of_bytes(lambda data: str(int.from_bytes(data).bit_count())),
    "bitpos": _bitpos,
    "crc16": _of_bytes(lambda data: str(checksums.crc16(data))),
    "crc64": _crc64,
    "sha1": _of_bytes(lambda data: hexadecimal(hashlib.sha1(data, usedforsecurity=False).digest())),
    "sha256": _of_bytes(lambda data: hexadecimal(hashlib.sha256(data).digest())),
    "lzf": _lzf,
    "endianconv": _endianconv,
    "string2ll": _string2ll,
    "ll2string": _ll2string,
    "d2string": _d2string,
    "string2d": _string2d,
    "intset": containers.Intset,
    "ziplist": partial(containers.List, decode=encodings.ziplist, heads=True, texts=False),
    "listpack": partial(containers.List, decode=encodings.listpack, heads=False, texts=True),
    "zipmap": containers.Zipmap,
    "sds": lambda _: containers.sds,
    "hisds": lambda _: containers.sds,
    "rax": containers.Rax,
    "ziplist_pairs": ziplists.Pairs,
    "ziplist_merge": lambda _: ziplists.merge,
    "intset_integrity": integrity.judge(integrity.INTSET, wraps=integrity.intset_wraps),
    "ziplist_integrity": integrity.judge(integrity.ZIPLIST, wraps=integrity.ziplist_wraps),
    "listpack_integrity": integrity.judge(integrity.LISTPACK),
    "zipmap_integrity": integrity.judge(integrity.ZIPMAP, undecided=integrity.longer_than_needed),
    "lua": _of_bytes(digest),
    "cmsgpack": _cmsgpack,
    "memtest": _memtest,
    "timers": _timers,
    "slowlog": _slowlog,
    "reader": _reader,
    "rdb_counts": _rdb_counts,
    "syncio": _syncio,
    "twister": _twister,
}
