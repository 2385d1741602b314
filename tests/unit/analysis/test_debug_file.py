"""Separate debug information of an object is found by the build-id, and that of another build is not used."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from harness.analysis import debug_file, function_symbols, symbols, unwind
from harness.core.processes import process
from harness.record.fault_log import MapRecord
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """static __attribute__((noinline, noclone)) int inner(volatile int *at)
{
    return *at * 3;
}
int outer(volatile int *at)
{
    return inner(at) + 1;
}
"""


def compiled(folder: Path, source: str = SOURCE) -> tuple[Path, Path]:
    """A shared object without debug information or private symbols, and the file that has both."""
    folder.mkdir(parents=True)
    (folder / "part.c").write_text(source, "utf-8")
    flags = ["-g", "-O2", "-shared", "-fPIC", "-fno-asynchronous-unwind-tables", "-Wl,--build-id"]
    for command in (
        ["gcc", *flags, "-o", "whole.so", "part.c"],
        ["objcopy", "--only-keep-debug", "whole.so", "part.debug"],
        ["strip", "--strip-unneeded", "-o", "libpart.so", "whole.so"],
    ):
        process.run_successfully(command, problem="no object", deadline_seconds=60, folder=folder)
    return folder / "libpart.so", folder / "part.debug"


def installed(root: Path, stripped: Path, debug: Path, *, named_for: Path) -> Path:
    """Install both in a root folder, the debug file under the build-id of an object."""
    library = root / "lib" / "arm" / "libpart.so"
    library.parent.mkdir(parents=True)
    shutil.copy2(stripped, library)
    build_id = debug_file.build_id(str(named_for))
    assert len(build_id) == 40
    kept = root / "usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    kept.parent.mkdir(parents=True)
    shutil.copy2(debug, kept)
    return library


def start_of(debug: Path, name: str) -> int:
    return next(one.start for one in function_symbols.function_symbols(str(debug)).found if one.name == name)


def frame_at(library: Path, address: int) -> tuple[str, str, int, str]:
    with library.open("rb") as stream:
        (offset,) = ELFFile(stream).address_offsets(address)
    maps = [MapRecord(start=0x10000000, end=0x10100000, offset=0, path=str(library))]
    frame = symbols.Symbols("", "/server").frames(maps, 0x10000000 + offset)[0]
    return frame.function, frame.file.rpartition("/")[2], frame.line, frame.origin


def test_a_place_in_a_stripped_library_comes_from_its_debug_file(tmp_path: Path) -> None:
    stripped, debug = compiled(tmp_path / "built")
    library = installed(tmp_path / "root", stripped, debug, named_for=stripped)
    address = start_of(debug, "inner")
    assert frame_at(library, address) == ("inner", "part.c", 3, "library/libpart")
    assert unwind.frame_rules(str(library), address) is not None, (
        "the library's frame rules must be known, or the stack ends there"
    )
    assert function_symbols.function_symbols(str(library)).complete


def test_without_a_debug_file_the_place_is_an_offset(tmp_path: Path) -> None:
    stripped, debug = compiled(tmp_path / "built")
    address = start_of(debug, "inner")
    assert debug_file.debug_file(str(stripped)) == ""
    assert frame_at(stripped, address) == (f"libpart.so+{address:#x}", "libpart.so", 0, "library/libpart")
    assert unwind.frame_rules(str(stripped), address) is None


def test_the_debug_file_of_another_build_is_not_used(tmp_path: Path) -> None:
    stripped, debug = compiled(tmp_path / "built")
    other, wrong = compiled(tmp_path / "other", f"\n\n{SOURCE}")
    library = installed(tmp_path / "root", stripped, wrong, named_for=other)
    assert debug_file.debug_file(str(library)) == ""
    assert frame_at(library, start_of(debug, "outer"))[0] == "outer", "an exported function keeps its name"


@pytest.mark.parametrize("content", ["", "no object", None])
def test_a_file_that_is_not_an_object_has_no_debug_file(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "libpart.so"
    if content is not None:
        fakes.write(path, content)
    assert debug_file.debug_file(str(path)) == ""
