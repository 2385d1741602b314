"""Addresses are resolved to functions, source lines and origins. Unknown ones remain unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from harness.analysis import symbols
from harness.analysis.symbols import Symbols, origin_in_tree, place_in_object, place_in_tree
from harness.core.finding import Frame
from harness.core.model import COMPILED_IN
from harness.core.processes import process
from harness.record import fault_log
from tests.support import fakes


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    fakes.write(
        tmp_path / "redis-server.lines",
        "0x1000 bitopCommand /cache/work/9/tree/src/bitops.c:452\n"
        "0x1100 luaS_newlstr /cache/work/9/tree/src/../deps/lua/src/lstring.c:87\n"
        "0x1200 memcpy /build/glibc/string/memcpy.c:9\n"
        "0x1300 main /cache/work/9/tree/src/server.c:7000\n"
        "0x1400 lzf_compress /cache/work/9/tree/src/lzf_c.c:164\n"
        "0x1500 jsonApi /cache/work/9/tree/src/../modules/vector-sets/vset.c:12\n"
        "0x1600 enginePing /cache/work/9/tree/src/modules/lua/engine_lua.c:30\n",
    )
    return fakes.write(tmp_path / "redis-server", "no real binary\n")


def mapped(path: Path) -> list[fault_log.MapRecord]:
    return [fault_log.MapRecord(start=0, end=0x10000, offset=0, path=str(path))]


@pytest.mark.parametrize(
    ("pc", "function", "file", "line", "origin"),
    [
        (0x1000, "bitopCommand", "src/bitops.c", 452, "server"),
        (0x1100, "luaS_newlstr", "deps/lua/src/lstring.c", 87, "bundled/lua"),
        (0x1200, "memcpy", "/build/glibc/string/memcpy.c", 9, "libc"),
        (0x1400, "lzf_compress", "src/lzf_c.c", 164, "bundled/lzf"),
        (0x1500, "jsonApi", "modules/vector-sets/vset.c", 12, "bundled/vector-sets"),
        # One of the server's own modules, below src.
        (0x1600, "enginePing", "src/modules/lua/engine_lua.c", 30, "server"),
        (0x1F00, "??", "??", 0, "unknown"),
        (0x20000, "??", "??", 0, "unknown"),
    ],
)
def test_a_frame_has_its_place_in_the_tree_and_its_origin(
    binary: Path, pc: int, function: str, file: str, line: int, origin: str
) -> None:
    (frame,) = Symbols("fake", str(binary)).frames(mapped(binary), pc)
    assert (function, file, line, origin) == (frame.function, frame.file, frame.line, frame.origin)


@pytest.mark.parametrize(
    "file",
    ["/cache/work/9/tree/src/../../suites/units/drivers/unit_sds.c", "../../suites/units/drivers/unit_sds.c"],
    ids=["as the debug information has it", "as a sanitizer shortens it"],
)
def test_a_drivers_code_has_our_own_origin(file: str) -> None:
    assert place_in_object(file, "/cache/units/units") == ("suites/units/drivers/unit_sds.c", "driver")
    assert place_in_tree(file) == ("suites/units/drivers/unit_sds.c", "driver")


def test_server_code_in_a_drivers_program_belongs_to_the_server() -> None:
    file = "/cache/work/9/tree/src/siphash.c"
    assert place_in_object(file, "/cache/units/units") == ("src/siphash.c", "server")


def test_a_library_without_lines_is_named(binary: Path, tmp_path: Path) -> None:
    library = fakes.write(tmp_path / "libc.so.6", "no real library\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(library), 0x500)
    assert (frame.file, frame.origin) == ("libc.so.6", "libc")


@pytest.mark.parametrize("name", ["lua", "hiredis", "libvalkey", "jemalloc", "linenoise", "hdr_histogram", "fpconv"])
def test_code_in_deps_has_its_folder_as_origin(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    binary = fakes.write(tmp_path / "valkey-server", "no real binary\n")
    fakes.write(tmp_path / "valkey-server.lines", f"0x1000 f /cache/work/9/tree/deps/{name}/src/f.c:1\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(binary), 0x1000)
    assert (f"deps/{name}/src/f.c", f"bundled/{name}") == (frame.file, frame.origin)


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("libc.so.6", "libc"),
        ("libc-2.31.so", "libc"),
        ("libm.so.6", "libc"),
        ("ld-linux.so.3", "libc"),
        ("ld-linux-aarch64.so.1", "libc"),
        ("ld-2.31.so", "libc"),
        ("ld-musl-armhf.so.1", "libc"),
        ("libgcc_s.so.1", "libc"),
        ("libatomic.so.1.2.0", "libc"),
        ("libpthread.so.0", "libc"),
        ("libstdc++.so.6.0.30", "libc"),
        ("libnss_files.so.2", "libc"),
        ("libcrypto.so.3", "library/libcrypto"),
        ("libmimalloc.so.2", "library/libmimalloc"),
        ("libldap.so.2", "library/libldap"),
        ("redisbloom.so", "library/redisbloom"),
    ],
)
def test_a_shared_objects_name_shows_whether_it_is_the_c_runtime_or_a_library(
    binary: Path, tmp_path: Path, file: str, origin: str
) -> None:
    library = fakes.write(tmp_path / file, "no real library\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(library), 0x500)
    assert (frame.file, frame.origin) == (file, origin)


def test_a_module_built_in_the_tree_has_the_origin_of_its_source(binary: Path, tmp_path: Path) -> None:
    module = fakes.write(tmp_path / "vectorset.so", "no real module\n")
    fakes.write(tmp_path / "vectorset.so.lines", "0x500 hnsw_add /cache/work/9/tree/modules/vector-sets/hnsw.c:9\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(module), 0x500)
    assert (frame.file, frame.origin) == ("modules/vector-sets/hnsw.c", "bundled/vector-sets")


def test_a_name_that_addr2line_prints_without_a_line_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the nearest preceding symbol, however far away: internals of glibc became `pthread_condattr_…`."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    library = tmp_path / "libc.so.6"
    library.write_bytes((fakes.DATA / "stacks" / "arm").read_bytes())
    fakes.write(tmp_path / "libc.so.6.lines", "0x8000 sigset ??:0\n")
    (frame,) = Symbols("fake", "/absent").frames(mapped(library), 0x8000)
    assert (frame.function, frame.file, frame.origin) == ("libc.so.6+0x8000", "libc.so.6", "libc")


def test_without_symbol_tools_the_function_is_unknown_and_nothing_fails(tmp_path: Path) -> None:
    binary = fakes.write(tmp_path / "redis-server", "no real binary\n")
    (frame,) = Symbols("no-such-triple", str(binary)).frames(mapped(binary), 0x1000)
    assert (frame.function, frame.line) == ("??", 0)


@pytest.mark.parametrize("machine", ["arm", "sparc32plus"])
def test_the_function_of_a_real_record_is_found_with_only_the_symbol_table(machine: str) -> None:
    (record,) = fault_log.read_faults(fakes.DATA / "stacks" / f"{machine}.jsonl")
    binary = str(fakes.DATA / "stacks" / machine)
    maps = [
        fault_log.MapRecord(start=m.start, end=m.end, offset=m.offset, path=m.path.replace("@DATA@/" + machine, binary))
        for m in record.maps
    ]
    (frame,) = Symbols("no-such-triple", binary).frames(maps, record.pc)
    # The compiler inlined f into main.
    assert frame.function == "main"


def test_only_the_folder_in_which_servers_are_compiled_is_a_tree() -> None:
    assert place_in_tree(f"/cache/work/9/{COMPILED_IN}/src/sds.c") == ("src/sds.c", "server")
    assert place_in_tree("/build/zlib/source/src/inflate.c") == ("/build/zlib/source/src/inflate.c", "libc")


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("src/sds.c", "server"),
        ("src/../deps/lua/src/lapi.c", "bundled/lua"),
        ("src/lzf_c.c", "bundled/lzf"),
        ("modules/vector-sets/vset.c", "bundled/vector-sets"),
        ("/usr/include/stdio.h", "libc"),
        ("??", "libc"),
    ],
)
def test_a_file_path_relative_to_the_trees_top_needs_no_folder_of_the_trees_name(file: str, origin: str) -> None:
    assert origin_in_tree(file) == origin


UNITS = {
    "main.c": "int first(void);\nint second(void);\nint main(void)\n{\n    return first() + second();\n}\n",
    "one/part.c": '#include "part.h"\nint first(void)\n{\n    return 1 + shared();\n}\n',
    "two/part.c": '#include "../one/part.h"\n\n\n\nint second(void)\n{\n    return 2 + shared();\n}\n',
    "last.c": "int last(void)\n{\n    return 4;\n}\n",
    "one/part.h": "\n\n\n\n\n\n\nstatic inline int shared(void)\n{\n    return 3;\n}\n",
}


def linked(folder: Path, version: int) -> Path:
    """A program of four compilation units, with this version of DWARF."""
    for name, text in UNITS.items():
        fakes.write(folder / name, text)
    sources = [folder / name for name in UNITS if name.endswith(".c")]
    program = folder / "program"
    # Offsets depend on the length of paths, also of the current folder, and one may equal other bytes by chance.
    command = ["gcc", "-O0", f"-gdwarf-{version}", f"-fdebug-prefix-map={folder}=/program", "-o", str(program)]
    process.run_successfully([*command, *sources], problem="no program", deadline_seconds=60, folder=folder)
    return program


@pytest.mark.parametrize("version", [4, 5])
def test_a_file_and_a_line_name_the_functions_around_them(tmp_path: Path, version: int) -> None:
    program = linked(tmp_path, version)

    def around(file: str, line: int) -> set[tuple[str, str]]:
        return symbols._functions_around(str(program), file, line)  # noqa: SLF001

    first, second = "/program/one/part.c", "/program/two/part.c"
    assert around("part.c", 7) == {("first", first), ("second", second)}
    assert around("one/part.c", 7) == {("first", first)}
    assert around("part.c", 4) == {("first", first)}
    assert around("part.h", 10) == {("shared", "/program/one/part.h")}
    assert around("art.c", 7) == set()


def test_only_the_compilation_units_that_name_a_file_are_read(tmp_path: Path) -> None:
    with linked(tmp_path, 4).open("rb") as stream:
        dwarf = ELFFile(stream).get_dwarf_info()

        def named(file: str) -> list[str]:
            return [Path(unit.get_top_DIE().get_full_path()).name for unit in symbols._units_naming(dwarf, file)]  # noqa: SLF001

        assert named("part.c") == ["part.c", "part.c"]
        assert named("last.c") == ["last.c"]
        assert named("two/part.h") == ["part.c", "part.c"], "a folder is compared when the unit is read"
        assert named("none.c") == []


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("/tree/src/main.rs", ("src/main.rs", "program")),
        ("/home/me/go/src/example.org/me/os/main.go", ("/home/me/go/src/example.org/me/os/main.go", "program")),
        ("/usr/arm-linux-gnueabi/include/c++/12/bits/stl_algo.h", None),
        ("/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/process.rs", None),
        ("/usr/src/rustc-1.63.0/library/core/src/panicking.rs", None),
        ("/usr/local/go/src/runtime/panic.go", None),
        ("/usr/lib/go-1.19/src/os/proc.go", None),
        # Debian compiles its packages with _FORTIFY_SOURCE.
        ("/usr/arm-linux-gnueabi/include/bits/string_fortified.h", None),
        ("/usr/include/glib-2.0/glib/gstring.h", None),
        ("/cache/packages/bookworm-armel-with-0123/root/usr/include/zlib.h", None),
        ("/usr/lib/gcc-cross/arm-linux-gnueabi/12/include/arm_neon.h", None),
        ("/me/usr/include/own.h", ("/me/usr/include/own.h", "program")),
        ("/tree/../tree/include/own.h", ("include/own.h", "program")),
    ],
)
def test_an_installed_library_is_not_the_program_that_contains_it(file: str, place: tuple[str, str] | None) -> None:
    program = symbols.OwnProgram(path="/tree/target/main", folder="/tree")
    assert program.placed(file) == (place or (file, "libc"))


def test_a_program_that_contains_the_c_library_died_at_the_line_that_called_it() -> None:
    def frame(function: str, line: int, origin: str = symbols.PROGRAM) -> Frame:
        return Frame(function=function, file="w.c" if line else "w", line=line, origin=origin, pc=0)

    stack = [frame("strlen", 0), frame("vsnprintf", 0), frame("log_line", 12), frame("main", 19), frame("_start", 0)]
    assert symbols.from_line(stack) == (stack[2:], "vsnprintf")
    assert symbols.from_line(stack[2:]) == (stack[2:], "")
    unlined = [stack[0], stack[-1]]
    assert symbols.from_line(unlined) == (unlined, "")
    assert symbols.from_line([]) == ([], "")


def test_a_library_that_the_tree_compiles_is_the_programs_own_code(binary: Path, tmp_path: Path) -> None:
    """Most code of a tree that libtool builds is in its shared library, and an installed library has its own origin."""
    library = fakes.write(tmp_path / "libown.so.1", "no real library\n")
    fakes.write(
        tmp_path / "libown.so.1.lines", "0x500 own_add /tree/src/../lib/add.c:9\n0x600 other /usr/src/other/o.c:3\n"
    )
    table = Symbols("fake", "", symbols.OwnProgram(path="/tree/test", folder="/tree"))
    found = [table.frames(mapped(library), pc)[0] for pc in (0x500, 0x600)]
    assert [(frame.file, frame.origin) for frame in found] == [
        ("lib/add.c", "program"),
        ("/usr/src/other/o.c", "library/libown"),
    ]
