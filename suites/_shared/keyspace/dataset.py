"""The data set: every type in every encoding, with the numbers and lengths at which a format changes.

Each item contains the commands that make a key, and the value that they must produce on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from suites._shared.keyspace.values import (
    ConsumerGroup,
    Fields,
    Identifier,
    Key,
    KeyEntry,
    Members,
    Pending,
    Scores,
    Sequence,
    Stream,
    Text,
    score,
)

if TYPE_CHECKING:
    from suites._shared.keyspace.values import Value

# Around the limits of every signed integer width of an encoding: 4, 7, 8, 12, 13, 16, 24, 32 and 64 bits.
INTEGERS = sorted(
    {
        sign * (1 << bits) + offset
        for bits in (0, 3, 4, 6, 7, 8, 11, 12, 13, 15, 16, 23, 24, 31, 32, 40, 62)
        for sign in (1, -1)
        for offset in (-1, 0, 1)
    }
    | {0, (1 << 63) - 1, -(1 << 63)}
)
SCORES = [
    *[0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3.141592653589793, 1e15, -1e15, 1e16, 1.7976931348623157e308],
    *[2.0**53, 2.0**53 + 2, 2.0**-1022, 5e-324, -5e-324, 2.0**63, -(2.0**63), 123456.75, math.inf, -math.inf],
]
"""Doubles at the limits of the format: subnormal, greatest, larger than a 53-bit integer, infinite."""
# Where lengths need more bytes (RDB: 6, 14, 32 bits; listpack: 6, 12), SDS headers grow, and LZF begins (20 bytes).
LENGTHS = [0, 1, 4, 11, 12, 20, 21, 31, 32, 63, 64, 65, 254, 255, 256, 4095, 4096, 16383, 16384, 65535, 65536]
# Milliseconds that need far more than 32 bits; the last time exceeds 32 bits in seconds too.
EXPIRIES = [(1 << 41) + 1, (1 << 42) + 0x0102_0304, (1 << 43) - 1, 33_000_000_000_123]
_PACKED = "ziplist", "listpack"
"""Names of the compact encodings of sorted sets and hashes: before Redis 7, and since."""
FUNCTION = b"#!lua name=plumbline\nredis.register_function('answer', function(keys, args) return 42 end)\n"


@dataclass(frozen=True)
class DatasetItem:
    """One key."""

    key: Key
    commands: tuple[tuple[Any, ...], ...]
    value: Value
    expires: int | None = None

    @property
    def entry(self) -> KeyEntry:
        """The entry that a reader must find."""
        return KeyEntry(self.value, self.expires)


@cache
def noise(length: int) -> bytes:
    """Incompressible bytes of all values, the same in every run. Texts of different lengths begin differently."""
    state, found = length * 2654435761 % (1 << 32) or 1, bytearray()
    for _ in range(length):
        # Xorshift, G. Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        found.append(state >> 11 & 255)
    return bytes(found)


@cache
def items(version: tuple[int, ...], family: str) -> list[DatasetItem]:
    """The items that a release supports. Its number decides, because files that old releases wrote contain them: only
    the number of such a release is known.
    """
    found = [*_strings(), *_lists(version), *_sets(version), *_sorted_sets(), *_hashes(), *_odd_places()]
    if version >= (5,):
        found += _streams()
    if (family == "redis" and version >= (7, 4)) or (family == "valkey" and version >= (9,)):
        found += _hashes_that_expire()
    return found


def encodings(version: tuple[int, ...], family: str) -> set[tuple[str, str]]:
    """Every type of a release's values with each of its encodings, as TYPE and OBJECT ENCODING name them. This is what
    a test expects of the server, which therefore is not asked.
    """
    packed = _PACKED[version >= (7,)]
    found = {("string", "int"), ("string", "raw"), ("set", "intset"), ("set", "hashtable"), ("zset", packed)}
    found |= {("zset", "skiplist"), ("hash", packed), ("hash", "hashtable")}
    found |= {("list", "quicklist")} if version >= (3, 2) else {("list", "ziplist"), ("list", "linkedlist")}
    if version >= (3,):
        found.add(("string", "embstr"))
    if version >= (5,):
        found.add(("stream", "stream" if version >= (6,) else "unknown"))
    if version >= (7, 2):
        found |= {("list", "listpack"), ("set", "listpack")}
    if family == "redis" and version >= (7, 4):
        found.add(("hash", "listpackex"))
    return found


def expected(version: tuple[int, ...], family: str) -> dict[Key, KeyEntry]:
    """Key -> the entry that every reader must find."""
    return {item.key: item.entry for item in items(version, family)}


def _item(
    name: str, value: Value, *commands: tuple[Any, ...], database: int = 0, expires: int | None = None
) -> DatasetItem:
    key = Key(database, name.encode())
    made = tuple((command[0], key.name, *command[1:]) for command in commands)
    if expires is not None:
        made += (("PEXPIREAT", key.name, expires),)
    return DatasetItem(key, made, value, expires)


def _strings() -> list[DatasetItem]:
    found = [_item(f"integer:{n}", Text(b"%d" % n), ("SET", n)) for n in INTEGERS]
    # A few lengths of incompressible bytes are enough. More would inflate the golden files.
    noisy = [length for length in LENGTHS if length <= 4096] + [16384]
    found += [_item(f"noise:{length}", Text(noise(length)), ("SET", noise(length))) for length in noisy]
    phrases = [(b"plumb line " * (length // 11 + 1))[:length] for length in LENGTHS]
    found += [_item(f"packed:{len(phrase)}", Text(phrase), ("SET", phrase)) for phrase in phrases]
    every_byte = bytes(range(256))
    found.append(_item("every byte", Text(every_byte), ("SET", every_byte)))
    found.append(_item("bits", Text(b"\x00\x00\x00\x00\x80"), ("SETBIT", 32, 1)))
    for number, expires in enumerate(EXPIRIES):
        found.append(_item(f"expires:{number}", Text(b"later"), ("SET", "later"), expires=expires))
    return found


def _lists(version: tuple[int, ...]) -> list[DatasetItem]:
    texts = [b"%d" % n for n in INTEGERS] + [noise(length) for length in LENGTHS if length < 300]
    long = [b"%d:" % n + noise(n % 60) for n in range(300)]
    found = [
        _item("list:integers", Sequence(tuple(texts)), ("RPUSH", *texts)),
        _item("list:long", Sequence(tuple(long)), ("RPUSH", *long)),
        _item("list:one", Sequence((b"",)), ("RPUSH", "")),
        _item("list:expires", Sequence((b"a",)), ("LPUSH", "a"), expires=EXPIRIES[1]),
    ]
    if version >= (7,):
        # The element exceeds the limit of a node, so it has its own node, which is not packed.
        found.append(_item("list:plain", Sequence((noise(9000), b"b")), ("RPUSH", noise(9000), "b")))
    return found


def _sets(version: tuple[int, ...]) -> list[DatasetItem]:
    narrow = [n for n in INTEGERS if -(1 << 15) <= n < 1 << 15]
    middle = [n for n in INTEGERS if -(1 << 31) <= n < 1 << 31]
    texts = [noise(length) for length in LENGTHS[1:12]]
    many = [b"member %d" % n for n in range(700)]
    found = [
        _item(f"set:{name}", Members(frozenset(b"%d" % n for n in some)), ("SADD", *some))
        for name, some in (("16 bits", narrow), ("32 bits", middle), ("64 bits", INTEGERS))
    ]
    found.append(_item("set:small", Members(frozenset(texts)), ("SADD", *texts)))
    if version >= (7, 2):
        # In a listpack: numbers of every width, and texts within its limits of 64 bytes and 128 elements.
        short = [b"%d" % n for n in INTEGERS] + [text for text in texts if len(text) <= 64]
        found.append(_item("set:texts", Members(frozenset(short)), ("SADD", *short)))
    return [*found, _item("set:large", Members(frozenset(many)), ("SADD", *many))]


def _sorted_sets() -> list[DatasetItem]:
    few = {b"member:%d" % number: value for number, value in enumerate(SCORES)}
    many = {b"m%d" % number: SCORES[number % len(SCORES)] for number in range(300)}
    flat_few = [part for member, value in few.items() for part in (repr(value), member)]
    flat_many = [part for member, value in many.items() for part in (repr(value), member)]
    return [
        _item("zset:small", Scores({m: score(v) for m, v in few.items()}), ("ZADD", *flat_few)),
        _item("zset:large", Scores({m: score(v) for m, v in many.items()}), ("ZADD", *flat_many)),
    ]


def _hashes() -> list[DatasetItem]:
    few = {b"f%d" % number: b"%d" % n for number, n in enumerate(INTEGERS[:60])}
    many = {b"field %d" % number: noise(number % 50) for number in range(550)}
    return [
        _item("hash:small", Fields(few), ("HMSET", *[part for pair in few.items() for part in pair])),
        _item("hash:large", Fields(many), ("HMSET", *[part for pair in many.items() for part in pair])),
        _item("hash:binary", Fields({b"": b"", b"\x00": b"\xff" * 40}), ("HMSET", "", "", b"\x00", b"\xff" * 40)),
    ]


def _hashes_that_expire() -> list[DatasetItem]:
    few, many = {b"a": b"1", b"b": b"2", b"c": b"3"}, {b"f%d" % n: noise(n % 20) for n in range(550)}
    found = []
    for name, fields in (("small", few), ("large", many)):
        times = dict(zip(list(fields)[:2], EXPIRIES[:2], strict=True))
        commands = [("HPEXPIREAT", time, "FIELDS", 1, field) for field, time in times.items()]
        flat = [part for pair in fields.items() for part in pair]
        found.append(_item(f"hash:times:{name}", Fields(fields, times), ("HMSET", *flat), *commands))
    return found


_StreamEntry = tuple[Identifier, tuple[bytes, ...]]


def _streams() -> list[DatasetItem]:
    greatest = (1 << 64) - 2
    ids = [(1, 0), (1, 1), (255, 256), (1 << 32, 7), ((1 << 48) + 5, 1 << 33), ((1 << 63) + 1, greatest)]
    entries: list[_StreamEntry] = [(one, (b"n", b"%d" % n, b"text", noise(n * 9))) for n, one in enumerate(ids)]
    entries[3] = (ids[3], (b"other", b"-129"))
    many: list[_StreamEntry] = [((5, n), (b"n", b"%d" % (n * 1000003))) for n in range(1, 300)]

    def adding(some: list[_StreamEntry]) -> list[tuple[Any, ...]]:
        return [("XADD", f"{one[0]}-{one[1]}", *flat) for one, flat in some]

    found = [
        _item("stream", Stream(tuple(entries), ids[-1]), *adding(entries)),
        _item("stream:long", Stream(tuple(many), (5, 299)), *adding(many)),
        _item(
            "stream:deleted",
            Stream((entries[0], entries[2]), ids[3]),
            *adding(entries[:4]),
            ("XDEL", "1-1", f"{ids[3][0]}-{ids[3][1]}"),
        ),
    ]
    name = b"stream:groups"
    groups = {
        b"g": ConsumerGroup((1, 1), {b"alice": (Pending(ids[0]),), b"bob": (Pending(ids[1]),)}),
        b"empty": ConsumerGroup((0, 0), {}),
    }
    commands = [
        *[(command[0], name, *command[1:]) for command in adding(entries)],
        ("XGROUP", "CREATE", name, "g", "0"),
        ("XGROUP", "CREATE", name, "empty", "0"),
        ("XREADGROUP", "GROUP", "g", "alice", "COUNT", 1, "STREAMS", name, ">"),
        ("XREADGROUP", "GROUP", "g", "bob", "COUNT", 1, "STREAMS", name, ">"),
    ]
    found.append(DatasetItem(Key(0, name), tuple(commands), Stream(tuple(entries), ids[-1], groups)))
    return found


def _odd_places() -> list[DatasetItem]:
    return [
        _item("of database 1", Text(b"1"), ("SET", 1), database=1),
        _item("of database 15", Sequence((b"x",)), ("RPUSH", "x"), database=15, expires=EXPIRIES[0]),
        DatasetItem(Key(0, b""), (("SET", b"", "no name"),), Text(b"no name")),
        DatasetItem(Key(0, noise(300)), (("SET", noise(300), "long name"),), Text(b"long name")),
    ]
