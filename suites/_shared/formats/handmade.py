"""RDB files that no current server writes: each opcode and type once, written by hand from the format's description.

The format: https://rdb.fnordig.de/file_format.html, and the opcodes' names in every server's rdb.h. A release may
refuse the content of a complete file. No file contains a key twice, because servers panic at duplicate keys.
"""

from __future__ import annotations

import struct

from suites._shared.checksums import sealed

FUNCTION2, FUNCTION, MODULE_AUX, IDLE, FREQ, AUX, RESIZEDB, EXPIRE_MS, EXPIRE, SELECT, END = range(0xF5, 0x100)
STRING, LIST, SET, SCORES, HASH, DOUBLES, MODULE, MODULE2 = range(8)
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""The 64 characters of a module type's name. Each character is 6 bits of the identifier."""
SECONDS = 0x7E7F7F7E
"""A time in 2037 that reads the same in both byte orders, because servers write it in the machine's own order."""


def length(number: int) -> bytes:
    """A length in 1, 2, 5 or 9 bytes."""
    if number < 1 << 6:
        return bytes([number])
    if number < 1 << 14:
        return bytes([0x40 | number >> 8, number & 255])
    return b"\x80" + struct.pack(">I", number) if number < 1 << 32 else b"\x81" + struct.pack(">Q", number)


def text(content: bytes) -> bytes:
    return length(len(content)) + content


def pair(kind: int, value: bytes, name: bytes = b"key") -> bytes:
    """A key and its value."""
    return bytes([kind]) + text(name) + value


def of_module(name: str, version: int) -> bytes:
    """The identifier of a module's type: nine characters of 6 bits, then the version in 10 bits."""
    number = 0
    for character in name:
        number = number << 6 | NAMES.index(character)
    return length(number << 10 | version)


def file(*parts: bytes, version: int = 9) -> bytes:
    """A file with these parts and, from version 5 on, a checksum."""
    content = b"REDIS%04d" % version + b"".join(parts) + bytes([END])
    return sealed(content + bytes(8)) if version >= 5 else content


def of_primary(offset: int) -> bytes:
    """A file without keys, from a primary that has sent `offset` bytes."""
    fields = {b"repl-stream-db": b"0", b"repl-id": b"0123456789" * 4, b"repl-offset": b"%d" % offset}
    return file(*(one(AUX, text(name), text(value)) for name, value in fields.items()))


def one(opcode: int, *parts: bytes) -> bytes:
    return bytes([opcode]) + b"".join(parts)


_SCORE_TEXTS = (b"\x011", b"\x03-.5", b"\xfd", b"\xfe", b"\xff", b"\x031e9")
"""Scores as text with a length. NaN, infinity and negative infinity have no text."""
_MEMBERS = b"".join(text(b"%d" % number) + score for number, score in enumerate(_SCORE_TEXTS))
_CODE = b"redis.register_function('one', function() return 1 end)"
_VALUE2 = b"\x02\x07" + b"\x01\x06" + b"\x05" + text(b"text") + b"\x04" + bytes(8) + b"\x03" + bytes(4) + b"\x00"
"""A module's value: an unsigned and a signed number, a string, a double, a float, and the end."""

FILES: dict[str, bytes] = {
    "seconds": file(one(EXPIRE, struct.pack("<I", SECONDS)), pair(STRING, text(b"v")), version=3),
    "a moment long ago": file(one(EXPIRE_MS, struct.pack("<Q", 1)), pair(STRING, text(b"v"))),
    "a list of strings": file(pair(LIST, length(3) + text(b"a") + text(b"") + text(b"c" * 70))),
    "an empty list": file(pair(LIST, length(0)), pair(STRING, text(b"v"), b"other")),
    "a set of strings": file(pair(SET, length(2) + text(b"a") + text(b"1"))),
    "a set with one member twice": file(pair(SET, length(2) + text(b"a") + text(b"a"))),
    "a hash": file(pair(HASH, length(1) + text(b"f") + text(b"v"))),
    "a hash with one field twice": file(pair(HASH, length(2) + (text(b"f") + text(b"v")) * 2)),
    "scores as text": file(
        pair(SCORES, length(3) + b"".join(text(b"%d" % n) + s for n, s in enumerate((b"\x011", b"\xfe", b"\xff"))))
    ),
    "scores, one of them not a number": file(pair(SCORES, length(len(_SCORE_TEXTS)) + _MEMBERS)),
    "scores as doubles": file(
        pair(DOUBLES, length(2) + b"".join(text(b"%d" % n) + struct.pack("<d", n / 3) for n in (1, 2)))
    ),
    "a double that is not a number": file(pair(DOUBLES, length(1) + text(b"m") + struct.pack("<d", float("nan")))),
    "idle times": file(one(IDLE, length(70)), pair(STRING, text(b"v"))),
    "a frequency": file(one(FREQ, b"\xff"), pair(STRING, text(b"v"))),
    "sizes of tables": file(one(SELECT, length(0)), one(RESIZEDB, length(1), length(0)), pair(STRING, text(b"v"))),
    "the last database": file(one(SELECT, length(15)), pair(STRING, text(b"v"))),
    "a database that is not there": file(one(SELECT, length(16)), pair(STRING, text(b"v"))),
    "an unknown field": file(one(AUX, text(b"nobody"), text(b"knows")), one(AUX, text(b"%private"), text(b"1"))),
    "fields of numbers": file(
        *(
            one(AUX, text(name), text(value))
            for name, value in ((b"ctime", b"1"), (b"used-mem", b"2"), (b"redis-bits", b"64"))
        ),
        one(AUX, text(b"aof-base"), text(b"0")),
        one(AUX, text(b"lua"), text(b"return 1")),
    ),
    "a database that no replica knows": file(
        one(AUX, text(b"repl-stream-db"), text(b"none")), pair(STRING, text(b"v"))
    ),
    "a function": file(one(FUNCTION2, text(b"#!lua name=one\n" + _CODE)), version=10),
    "a function of the first candidate": file(
        one(FUNCTION, text(b"one"), text(b"LUA"), length(1), text(b"what"), text(_CODE)), version=10
    ),
    "a function that does not compile": file(one(FUNCTION2, text(b"#!lua name=one\nnonsense(")), version=10),
    "a function of no engine": file(one(FUNCTION2, text(b"#!cobol name=one\n")), version=10),
    "what a module wrote aside": file(one(MODULE_AUX, of_module("plumbline", 3), b"\x02\x01", b"\x02\x07", b"\x00")),
    "what a module wrote, of no kind": file(one(MODULE_AUX, of_module("plumbline", 3), b"\x02\x01", b"\x09")),
    "a value of a module": file(pair(MODULE2, of_module("plumbline", 1023) + _VALUE2)),
    "a value of a module of long ago": file(pair(MODULE, of_module("-_AZaz09-", 1) + b"\x07")),
    "an unknown type": file(pair(30, text(b"v"))),
    "no end": file(pair(STRING, text(b"v")))[:-9],
    "a wrong checksum": file(pair(STRING, text(b"v")))[:-1] + b"?",
    "no checksum": file(pair(STRING, text(b"v")))[:-8] + bytes(8),
    "an integer of no width": file(pair(STRING, b"\xc4")),
    "integers of each width": file(
        *(pair(STRING, bytes([0xC0 + n]) + bytes([0x80] * (1 << n)), b"%d" % n) for n in range(3))
    ),
    "compressed, of another length": file(pair(STRING, b"\xc3" + length(3) + length(90) + b"\x01ab")),
    "compressed, as long as it says": file(pair(STRING, b"\xc3" + length(5) + length(11) + b"\x00a\xe0\x01\x00")),
    "a length of no form": file(pair(STRING, b"\x82")),
    "a string longer than the file": file(pair(STRING, length(1 << 20) + b"v")),
    "a length of 9 bytes": file(pair(STRING, b"\x81" + struct.pack(">Q", 1) + b"v")),
    "version 0": b"REDIS0000" + bytes([END]),
    "a version of the future": b"REDIS9999" + bytes([END]),
    "another program's file": b"SIDER0009" + bytes([END]),
    "nine bytes": b"REDIS0009",
    "one byte": b"R",
}
"""Topic -> file."""
