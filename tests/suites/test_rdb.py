"""The independent reader of RDB files: handwritten files of the format, and files that it must refuse."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.target_model import Endianness
from suites._shared.checksums import crc64
from suites._shared.formats import rdb, records
from suites._shared.formats.cursor import Cursor, RdbError
from suites._shared.formats.old_files import PORTABLE_TIMES, VERSIONS, old_file
from suites._shared.keyspace import dataset
from suites._shared.keyspace.values import (
    Fields,
    Foreign,
    Key,
    KeyEntry,
    Members,
    Scores,
    Sequence,
    Text,
    differences,
    score,
)
from suites.persistence.conftest import golden_files

if TYPE_CHECKING:
    from pathlib import Path

NEVER = b"\xff" * 8


def file_of(body: bytes, *, version: int = 11, magic: bytes = b"REDIS") -> bytes:
    """A file with its checksum."""
    digits = b"%04d" % version if magic == b"REDIS" else b"%03d" % version
    content = magic + digits + body + b"\xff"
    return content + crc64(content).to_bytes(8, "little")


def text(content: bytes) -> bytes:
    assert len(content) < 64
    return bytes([len(content)]) + content


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (b"\x00", 0),
        (b"\x3f", 63),
        (b"\x40\x40", 64),
        (b"\x7f\xff", 16383),
        (b"\x80\x00\x00\x40\x00", 16384),
        (b"\x80\xff\xff\xff\xff", (1 << 32) - 1),
        (b"\x81\x00\x00\x00\x01\x00\x00\x00\x00", 1 << 32),
    ],
)
def test_lengths_are_big_endian_after_their_first_two_bits(written: bytes, value: int) -> None:
    assert Cursor(written).length() == value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (b"\xc0\x80", b"-128"),
        (b"\xc1\x2c\x01", b"300"),
        (b"\xc2\x00\x00\x00\x80", b"-2147483648"),
        # A literal run of one byte, then a match of nine bytes at distance 1: ten equal bytes.
        (b"\xc3\x05\x0a\x00a\xe0\x00\x00", b"a" * 10),
        (b"\x03abc", b"abc"),
    ],
)
def test_strings_are_plain_little_endian_integers_or_compressed(written: bytes, value: bytes) -> None:
    assert Cursor(written).text() == value


def test_a_file_has_databases_times_and_values() -> None:
    time = 33_000_000_000_123
    body = b"\xfa" + text(b"redis-ver") + text(b"7.2.0") + b"\xfe\x00\xfb\x02\x01"
    body += b"\x00" + text(b"k") + text(b"v")
    body += b"\xfc" + struct.pack("<q", time) + b"\x01" + text(b"l") + b"\x02" + text(b"a") + text(b"b")
    body += b"\xfe\x0f\x05" + text(b"z") + b"\x01" + text(b"m") + struct.pack("<d", -1.5)
    found = rdb.read(file_of(body))
    assert found.auxiliary == {b"redis-ver": b"7.2.0"}
    assert [(key.database, key.name, entry.value, entry.expires) for key, entry in found.entries.items()] == [
        (0, b"k", Text(b"v"), None),
        (0, b"l", Sequence((b"a", b"b")), time),
        (15, b"z", Scores({b"m": score(-1.5)}), None),
    ]


def test_slot_information_of_a_node_is_skipped() -> None:
    body = b"\xfe\x00\xf4\x41\x5b\x02\x01\x00" + text(b"k") + text(b"v")
    body += b"\xf4\x7f\xff\x01\x00\x00" + text(b"l") + text(b"w")
    found = rdb.read(file_of(body))
    assert [key.name for key in found.entries] == [b"k", b"l"]


def test_an_intset_is_little_endian_and_sorted() -> None:
    good = struct.pack("<IIhh", 2, 2, -1, 1)
    assert records.value_of(11, Cursor(text(good))) == Members(frozenset({b"-1", b"1"}))
    for bad in (struct.pack(">IIhh", 2, 2, -1, 1), struct.pack("<IIhh", 2, 2, 1, -1), good[:-1]):
        with pytest.raises(RdbError, match="intset"):
            records.value_of(11, Cursor(text(bad)))


def test_hash_fields_expire_as_both_families_write_it() -> None:
    redis = struct.pack("<q", 1000) + b"\x02\x06" + text(b"a") + text(b"1") + b"\x00" + text(b"b") + text(b"2")
    valkey = b"\x02" + text(b"a") + text(b"1") + struct.pack("<q", 1005) + text(b"b") + text(b"2") + NEVER
    expected = Fields({b"a": b"1", b"b": b"2"}, {b"a": 1005})
    assert records.value_of(24, Cursor(redis)) == expected
    assert records.value_of(22, Cursor(valkey)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"RADIS0011\xff", "begins with"),
        (b"REDIS0011", "1 bytes are expected, 0 of 9 are left"),
        (file_of(b"")[:-1], "8 bytes are expected"),
        (file_of(b"") + b"x", "1 bytes follow the end"),
        (file_of(b"\x00" + text(b"k") + text(b"v") + b"\x00" + text(b"k") + text(b"v")), "occurs twice"),
        (file_of(b"\x63" + text(b"k")), "unknown type 99"),
        (file_of(b"\xfb\x02\x00\x00" + text(b"k") + text(b"v")), r"has .* \(1, 0\), but the file says \(2, 0\)"),
        (file_of(b"\xfe\x01\xfb\x01\x01\x00" + text(b"k") + text(b"v")), r"database 1 .* \(1, 0\), .* \(1, 1\)"),
        (b"REDIS0004\x00\xc0", "1 bytes are expected, 0 of 11 are left"),
    ],
)
def test_a_violation_of_the_format_is_refused_with_its_place(content: bytes, message: str) -> None:
    with pytest.raises(RdbError, match=message):
        rdb.read(content)


@pytest.mark.parametrize("wrong", ["byte-order", "one bit"])
def test_a_checksum_is_verified_including_its_byte_order(wrong: str) -> None:
    content = file_of(b"\x00" + text(b"k") + text(b"v"))
    stored = content[-8:][::-1] if wrong == "byte-order" else bytes([content[-8] ^ 1]) + content[-7:]
    with pytest.raises(RdbError, match="the checksum of the"):
        rdb.read(content[:-8] + stored)


def test_a_checksum_of_zero_is_a_disabled_one() -> None:
    assert rdb.read(file_of(b"")[:-8] + bytes(8)).entries == {}


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        rdb.read(b"REDIS0011" + content)
    except RdbError:
        return


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_every_releases_file_contains_the_data_set(path: Path) -> None:
    family, _, digits = path.stem.partition("-")
    version = tuple(int(part) for part in digits.split("."))
    assert differences(dataset.expected(version, family), rdb.read(path.read_bytes()).entries) == []


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
@pytest.mark.parametrize("key", [Key(0, b"set:16 bits"), Key(0, b"zset:large"), Key(0, b"expires:3")])
def test_swapped_bytes_anywhere_in_a_value_are_found(path: Path, key: Key) -> None:
    """Byte-order faults exchange two bytes. The checksum does not show them, because it is computed afterwards."""
    content = path.read_bytes()
    found = rdb.read(content)
    raw = found.raw[key]
    if key.name == b"expires:3":
        time = found.entries[key].expires
        assert time is not None
        raw = struct.pack("<q", time)
    damaged = content[:-8].replace(raw, raw[:-4] + raw[-4:][::-1] if key.name != b"expires:3" else raw[::-1])
    assert damaged != content[:-8]
    try:
        again = rdb.read(damaged + crc64(damaged).to_bytes(8, "little")).entries
    except RdbError:
        return
    assert again != found.entries


def test_a_difference_is_reported_with_its_place() -> None:
    key = Key(3, b"h")
    left, right = (
        {key: KeyEntry(Fields({b"a": b"1", b"b": b"2"}))},
        {key: KeyEntry(Fields({b"a": b"1", b"b": b"3"}))},
    )
    assert differences(left, right) == ["b'h' of database 3: value fields b'b' expected b'2', got b'3'"]
    assert "without {b'b'}" in differences(left, {key: KeyEntry(Fields({b"a": b"1"}))})[0]
    assert "expected None" not in differences(left, {})[0]
    assert differences({}, right)[0].startswith("b'h' of database 3: expected None, got KeyEntry(")


def test_module_values_are_read_item_by_item() -> None:
    """A letter of the name has six bits, above ten bits for the version: nine `A` with version 3 are the number 3."""
    values = b"\x02\x07" + b"\x01\x05" + b"\x04" + struct.pack("<d", -0.5) + b"\x03" + struct.pack("<f", 0.25)
    items = values + b"\x05" + text(b"\xff") + b"\x00"
    found = rdb.read(file_of(b"\xf7\x03\x02\x01" + items + b"\x07" + text(b"k") + b"\x03" + items))
    held = (7, 5, -0.5, 0.25, b"\xff")
    assert found.modules == [Foreign("AAAAAAAAA", 3, held, when=1)]
    assert found.entries == {Key(0, b"k"): KeyEntry(Foreign("AAAAAAAAA", 3, held))}
    with pytest.raises(RdbError, match="unknown opcode 6 in a module's value"):
        rdb.read(file_of(b"\x07" + text(b"k") + b"\x03\x06\x00"))


def test_a_double_is_rounded_as_single_precision_rounds_it() -> None:
    assert [records.single(value) for value in (0.5, 1e300, -1e300, 3.4028234663852886e38)] == [
        0.5,
        float("inf"),
        -float("inf"),
        3.4028234663852886e38,
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_file_made_by_hand_has_what_it_says(version: int) -> None:
    content, entries = old_file(version, Endianness.LITTLE, Endianness.LITTLE)
    found = rdb.read(content)
    assert found.version == version
    assert differences(entries, found.entries) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_of_an_old_file_only_times_depend_on_the_byte_order(version: int) -> None:
    little, big = Endianness.LITTLE, Endianness.BIG
    own = old_file(version, little, little)
    assert old_file(version, big, big).entries == own.entries
    wrong = old_file(version, little, big).entries
    assert old_file(version, big, little).entries == wrong
    assert {key: entry.value for key, entry in wrong.items()} == {key: one.value for key, one in own.entries.items()}
    differing = {key.name for key, entry in own.entries.items() if entry != wrong[key]}
    assert differing == {b"seconds"} | ({b"milliseconds"} if 3 <= version < PORTABLE_TIMES else set())
    # No key has expired to either.
    assert min(entry.expires for entry in wrong.values() if entry.expires) > 2_100_000_000_000
