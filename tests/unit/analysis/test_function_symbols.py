"""Function symbols: Thumb's flag is not part of an address, a size may be missing, and a table may be cut off."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from harness.analysis.code_profile import profile
from harness.analysis.function_symbols import FunctionSymbol, function_symbols
from harness.analysis.symbols import Symbols
from harness.record.fault_log import MapRecord

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION, OBJECT = 0x12, 0x11
STATIC = [("getCommand", 0x1001, 0x20, FUNCTION), ("server", 0x1100, 8, OBJECT), ("_start", 0x2000, 0, FUNCTION)]
DYNAMIC = [
    ("getCommand", 0x1001, 0x20, FUNCTION),
    ("frame_dummy", 0x4000, 0, FUNCTION),
    ("main", 0x4010, 0x10, FUNCTION),
    ("", 0x4030, 0x10, FUNCTION),
    ("malloc", 0x3000, 0x10, FUNCTION),
]


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A shared object for 32-bit ARM (ELF): a header, section headers, names, .symtab and .dynsym, in this order."""
    texts = [b"\0.symtab\0.dynsym\0.strtab\0"]
    tables = []
    for symbols in (STATIC, DYNAMIC):
        text, rows = b"\0", [struct.pack("<IIIBBH", 0, 0, 0, 0, 0, 0)]
        for name, value, size, info in symbols:
            rows.append(struct.pack("<IIIBBH", len(text), value, size, info, 0, 1))
            text += name.encode() + b"\0"
        texts.append(text)
        tables.append(b"".join(rows))
    # Offset of the name, type, linked section of names, bytes of an entry.
    parts = [(17, 3, 0, 0, text) for text in texts] + [(1, 2, 2, 16, tables[0]), (9, 11, 3, 16, tables[1])]
    head, content = [struct.pack("<10I", *[0] * 10)], b""
    start = 52 + 40 * (len(parts) + 1)
    for place, kind, link, entry, part in parts:
        head.append(struct.pack("<10I", place, kind, 0, 0, start + len(content), len(part), link, 0, 1, entry))
        content += part
    first = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", 3, 40, 1, 0, 0, 52, 0, 52, 32, 0, 40, len(head), 1)
    path = tmp_path / "redis-server"
    path.write_bytes(first + b"".join(head) + content)
    return path


def named(binary: Path, address: int) -> str:
    (frame,) = Symbols("lacking", "").frames([mapped(binary)], address)
    return frame.function


def mapped(path: Path) -> MapRecord:
    return MapRecord(start=0, end=0x10000, offset=0, path=str(path))


def test_both_tables_give_their_functions_in_order(binary: Path) -> None:
    found, complete = function_symbols(str(binary))
    get = FunctionSymbol(0x1000, 0x20, "getCommand")
    assert found == [
        get,
        FunctionSymbol(0x2000, 0, "_start"),
        get,
        FunctionSymbol(0x4000, 0, "frame_dummy"),
        FunctionSymbol(0x4010, 0x10, "main"),
        FunctionSymbol(0x4030, 0x10, ""),
        FunctionSymbol(0x3000, 0x10, "malloc"),
    ]
    assert complete


def test_a_truncated_table_gives_its_complete_entries(binary: Path) -> None:
    binary.write_bytes(binary.read_bytes()[:-1])
    found, complete = function_symbols(str(binary))
    assert [one.name for one in found] == ["getCommand", "_start", "getCommand", "frame_dummy", "main", ""]
    assert not complete
    assert (named(binary, 0x1000), named(binary, 0x3000)) == ("getCommand", "??")


def test_a_table_with_a_different_entry_size_is_not_treated_as_complete(binary: Path) -> None:
    content = binary.read_bytes()
    assert content.count(struct.pack("<2I", 1, 16)) == 2, "alignment and bytes of an entry"
    binary.write_bytes(content.replace(struct.pack("<2I", 1, 16), struct.pack("<2I", 1, 24)))
    assert not function_symbols(str(binary)).complete


@pytest.mark.parametrize(
    ("address", "function"),
    [
        (0x1000, "getCommand"),
        (0x101F, "getCommand"),
        (0x1020, "redis-server+0x1020"),
        (0x1100, "redis-server+0x1100"),
        # A function without a size gets the length of start files' functions.
        (0x203F, "_start"),
        (0x2040, "redis-server+0x2040"),
        (0x3000, "malloc"),
    ],
)
def test_a_frame_without_lines_has_the_name_of_the_symbol_that_covers_it(
    binary: Path, address: int, function: str
) -> None:
    assert named(binary, address) == function


def test_a_descriptor_is_resolved_to_its_code(tmp_path: Path) -> None:
    """On 64-bit big-endian PowerPC (ELFv1), `call` has a descriptor, `_start` has none, and `end` follows them."""
    names = b"\0.opd\0.symtab\0.strtab\0call\0_start\0end\0"
    descriptors = struct.pack(">3Q3Q", 0, 0, 0, 0xA5140, 0x2C7E00, 0)
    values = {"call": 0x9018, "_start": 0x2000, "end": 0x9030}
    rows = [struct.pack(">IBBHQQ", 0, 0, 0, 0, 0, 0)] + [
        struct.pack(">IBBHQQ", names.index(b"\0" + name.encode()) + 1, FUNCTION, 0, 1, value, 8)
        for name, value in values.items()
    ]
    # Name, type, address, content, linked section of names, bytes of an entry.
    parts = [(1, 1, 0x9000, descriptors, 0, 0), (6, 2, 0, b"".join(rows), 3, 24), (14, 3, 0, names, 0, 0)]
    head, content = [bytes(64)], b""
    for name, kind, address, part, link, entry in parts:
        at = 64 + 64 * (len(parts) + 1) + len(content)
        head.append(struct.pack(">IIQQQQIIQQ", name, kind, 0, address, at, len(part), link, 0, 1, entry))
        content += part
    first = struct.pack(">16sHHIQQQIHHHHHH", b"\x7fELF\2\2\1", 3, 21, 1, 0, 0, 64, 1, 64, 56, 0, 64, len(head), 3)
    path = tmp_path / "redis-server"
    path.write_bytes(first + b"".join(head) + content)
    found, _ = function_symbols(str(path))
    assert {one.name: one.start for one in found} == {"call": 0xA5140, "_start": 0x2000, "end": 0x9030}


@pytest.mark.parametrize("content", [None, b"no object\n"])
def test_a_file_that_is_not_an_object_has_no_functions(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "redis-server"
    if content is not None:
        path.write_bytes(content)
    assert function_symbols(str(path)) == ([], False)
    assert named(path, 0x1000) == "??"


def test_a_profile_sums_functions_that_have_a_size(binary: Path) -> None:
    blocks = {(0x1000, 4): 10, (0x1010, 2): 10, (0x2000, 3): 1, (0x3000, 5): 2, (0x3004, 1): 2}
    found = profile(blocks, [mapped(binary)], binary)
    assert found.instructions == {"getCommand": 60, "?? (redis-server)": 3, "malloc": 12}
    # A call counts as an execution of a function's first block.
    assert found.allocations == 2


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (0x400F, "frame_dummy"),
        (0x4010, "main"),
        (0x401F, "main"),
        (0x4020, "redis-server+0x4020"),
        (0x4030, "redis-server+0x4030"),
    ],
)
def test_a_function_without_a_size_ends_where_the_next_one_begins(binary: Path, address: int, name: str) -> None:
    """Regression: the first function of a program without lines was blamed as `frame_dummy` before it."""
    assert named(binary, address) == name
