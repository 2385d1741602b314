"""Stored fault records become instructions and access shapes; what is not known stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import events
from harness.symbols import Symbols, access_of, disassemble, place_in_object, place_in_tree
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

THUMB = "30000000"
"""CPSR with the T bit, little-endian."""
ARM_STATE = "10000000"


def registers(cpsr: str) -> list[str]:
    return [*["00000000"] * 25, cpsr]


# machine, CPSR, bytes in memory order, text. Texts: binutils' objdump agrees.
INSTRUCTIONS = [
    ("arm", ARM_STATE, "001093e5", "ldr r1, [r3]"),
    ("arm", ARM_STATE, "b010d3e1", "ldrh r1, [r3]"),
    ("arm", ARM_STATE, "d000c1e1", "ldrd r0, r1, [r1]"),
    ("arm", ARM_STATE, "0f0093e8", "ldm r3, {r0, r1, r2, r3}"),
    ("arm", ARM_STATE, "0f002de9", "push {r0, r1, r2, r3}"),
    ("arm", ARM_STATE, "000a93ed", "vldr s0, [r3]"),
    ("arm", ARM_STATE, "000b93ed", "vldr d0, [r3]"),
    ("arm", ARM_STATE, "9f0f93e1", "ldrex r0, [r3]"),
    ("arm", ARM_STATE, "910f81e1", "strex r0, r1, [r1]"),
    ("arm", ARM_STATE, "9f0fb3e1", "ldrexd r0, r1, [r3]"),
    ("arm", ARM_STATE, "920001e1", "swp r0, r2, [r1]"),
    # A condition is no size: ldr with "hi" and "hs" ends like ldrh begins.
    ("arm", ARM_STATE, "00109385", "ldrhi r1, [r3]"),
    ("arm", ARM_STATE, "00109325", "ldrhs r1, [r3]"),
    ("arm", ARM_STATE, "b010d381", "ldrhhi r1, [r3]"),
    ("arm", THUMB, "1968", "ldr r1, [r3]"),
    ("arm", THUMB, "1988", "ldrh r1, [r3]"),
    ("arm", THUMB, "d3f80010", "ldr.w r1, [r3]"),
    ("arm", THUMB, "d3e90001", "ldrd r0, r1, [r3]"),
    ("arm", THUMB, "93e80f00", "ldm.w r3, {r0, r1, r2, r3}"),
    ("arm", THUMB, "53e8001f", "ldrex r1, [r3]"),
    ("aarch64", "", "20004079", "ldrh w0, [x1]"),
    ("aarch64", "", "207c5f48", "ldxrh w0, [x1]"),
    ("aarch64", "", "207c5f88", "ldxr w0, [x1]"),
    ("aarch64", "", "207c5fc8", "ldxr x0, [x1]"),
    ("aarch64", "", "20fcdf88", "ldar w0, [x1]"),
    ("aarch64", "", "20fcdfc8", "ldar x0, [x1]"),
    ("aarch64", "", "20fc9fc8", "stlr x0, [x1]"),
    ("aarch64", "", "200080b9", "ldrsw x0, [x1]"),
    ("aarch64", "", "200040f9", "ldr x0, [x1]"),
    ("aarch64", "", "200040bd", "ldr s0, [x1]"),
    ("aarch64", "", "2000c03d", "ldr q0, [x1]"),
    ("sparc64", "", "d2104000", "lduh [%g1], %o1"),
    ("sparc64", "", "d2304000", "sth %o1, [%g1]"),
    ("sparc64", "", "d2004000", "ld [%g1], %o1"),
    ("sparc64", "", "d2204000", "st %o1, [%g1]"),
    ("sparc64", "", "d2584000", "ldx [%g1], %o1"),
    ("sparc64", "", "c1184000", "ldd [%g1], %f0"),
    ("sparc32plus", "", "d2004000", "ld [%g1], %o1"),
    ("sparc64", "", "d3e01008", "cas [%g0], %o0, %o1"),
    ("sparc64", "", "d3f01008", "casx [%g0], %o0, %o1"),
    ("sparc64", "", "d2784000", "swap [%g1], %o1"),
    ("mips", "", "8ca90000", "lw $t1, ($a1)"),
    ("mipsel", "", "0000a98c", "lw $t1, ($a1)"),
    ("mips64", "", "dc430008", "ld $v1, 8($v0)"),
    ("ppc", "", "c8010008", "lfd f0, 8(r1)"),
    ("ppc64", "", "e9210008", "ld r9, 8(r1)"),
    ("riscv64", "", "1c41", "c.lw a5, 0(a0)"),
    ("riscv64", "", "83b20500", "ld t0, 0(a1)"),
    ("s390x", "", "e31020000004", "lg %r1, 0(%r2)"),
    ("m68k", "", "2010", "move.l (a0), d0"),
    # SPARC V9 manual, A.27 and A.54: op 3, op3 0x03 and 0x07; GCC writes them for 32-bit programs.
    ("sparc32plus", "", "d0184000", "ldd [%g1], %o0"),
    ("sparc32plus", "", "d0384000", "std %o0, [%g1]"),
]


@pytest.mark.parametrize(("machine", "cpsr", "code", "text"), INSTRUCTIONS, ids=[i[3] for i in INSTRUCTIONS])
def test_an_instruction_is_named(machine: str, cpsr: str, code: str, text: str) -> None:
    record = fakes.fault(instruction=code.ljust(32, "0"), registers=registers(cpsr))
    assert text == disassemble(record, machine)


@pytest.mark.parametrize(
    ("machine", "cpsr", "code"),
    [
        ("arm", ARM_STATE, "4a58b791"),
        ("aarch64", "", "d2346522"),
        ("sparc64", "", "df6af1d8"),
        ("xtensa", "", "00112233"),
    ],
)
def test_bytes_that_are_no_instruction_are_shown_and_nothing_is_guessed(machine: str, cpsr: str, code: str) -> None:
    record = fakes.fault(instruction=code, registers=registers(cpsr))
    assert f".inst {code}" == disassemble(record, machine)


def test_of_a_signal_whose_access_is_not_known_no_size_is_told() -> None:
    record = fakes.fault(address=0x100D, access_bytes=0)
    assert str(access_of(record)) == "load of unknown size at 13 mod 16"


def test_an_access_reads_as_a_person_says_it() -> None:
    record = fakes.fault(address=0x1003, access="store")
    assert str(access_of(record)) == "store of 4 bytes at 3 mod 4"


@given(
    machine=st.sampled_from(["arm", "aarch64", "sparc64", "sparc32plus"]),
    code=st.binary(min_size=0, max_size=16),
    thumb=st.booleans(),
)
def test_no_bytes_make_it_fail(machine: str, code: bytes, *, thumb: bool) -> None:
    record = fakes.fault(instruction=code.hex(), registers=registers(THUMB if thumb else ARM_STATE))
    assert disassemble(record, machine)


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


def mapped(path: Path) -> list[events.MapRecord]:
    return [events.MapRecord(start=0, end=0x10000, offset=0, path=str(path))]


@pytest.mark.parametrize(
    ("pc", "function", "file", "line", "origin"),
    [
        (0x1000, "bitopCommand", "src/bitops.c", 452, "server"),
        (0x1100, "luaS_newlstr", "deps/lua/src/lstring.c", 87, "bundled/lua"),
        (0x1200, "memcpy", "/build/glibc/string/memcpy.c", 9, "libc"),
        (0x1400, "lzf_compress", "src/lzf_c.c", 164, "bundled/lzf"),
        (0x1500, "jsonApi", "modules/vector-sets/vset.c", 12, "bundled/vector-sets"),
        # A module of the server's own, below src.
        (0x1600, "enginePing", "src/modules/lua/engine_lua.c", 30, "server"),
        (0x1F00, "??", "??", 0, "unknown"),
        (0x20000, "??", "??", 0, "unknown"),
    ],
)
def test_a_frame_has_its_place_in_the_tree_and_whose_code_it_is(
    binary: Path, pc: int, function: str, file: str, line: int, origin: str
) -> None:
    (frame,) = Symbols("fake", str(binary)).frames(mapped(binary), pc)
    assert (function, file, line, origin) == (frame.function, frame.file, frame.line, frame.origin)


@pytest.mark.parametrize(
    "file",
    ["/cache/work/9/tree/src/../../suites/units/drivers/unit_sds.c", "../../suites/units/drivers/unit_sds.c"],
    ids=["as the debug information has it", "as a sanitizer shortens it"],
)
def test_a_driver_is_ours_and_neither_the_servers_nor_a_librarys(file: str) -> None:
    assert place_in_object(file, "/cache/units/units") == ("suites/units/drivers/unit_sds.c", "driver")
    assert place_in_tree(file) == ("suites/units/drivers/unit_sds.c", "driver")


def test_what_the_drivers_program_has_of_the_server_is_the_servers() -> None:
    file = "/cache/work/9/tree/src/siphash.c"
    assert place_in_object(file, "/cache/units/units") == ("src/siphash.c", "server")


def test_a_library_is_named_where_it_has_no_lines(binary: Path, tmp_path: Path) -> None:
    library = fakes.write(tmp_path / "libc.so.6", "no real library\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(library), 0x500)
    assert (frame.file, frame.origin) == ("libc.so.6", "libc")


@pytest.mark.parametrize("name", ["lua", "hiredis", "libvalkey", "jemalloc", "linenoise", "hdr_histogram", "fpconv"])
def test_code_in_deps_is_told_by_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_shared_object_is_of_the_c_runtime_or_a_library_by_its_name(
    binary: Path, tmp_path: Path, file: str, origin: str
) -> None:
    library = fakes.write(tmp_path / file, "no real library\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(library), 0x500)
    assert (frame.file, frame.origin) == (file, origin)


def test_a_module_that_the_tree_built_has_its_origin_by_its_source(binary: Path, tmp_path: Path) -> None:
    module = fakes.write(tmp_path / "vectorset.so", "no real module\n")
    fakes.write(tmp_path / "vectorset.so.lines", "0x500 hnsw_add /cache/work/9/tree/modules/vector-sets/hnsw.c:9\n")
    (frame,) = Symbols("fake", str(binary)).frames(mapped(module), 0x500)
    assert (frame.file, frame.origin) == ("modules/vector-sets/hnsw.c", "bundled/vector-sets")


def test_a_name_that_addr2line_gives_without_a_line_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the nearest symbol before an address, however far away: glibc's inside was `pthread_condattr_…`."""
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


Machine = Literal["arm", "sparc32plus"]


@pytest.mark.parametrize(("machine", "text"), [("arm", "ldr r1, [r3]"), ("sparc32plus", "ld [%g1], %o1")])
def test_a_record_of_a_real_emulator_is_read(machine: Machine, text: str) -> None:
    (record,) = events.read_faults(fakes.DATA / "stacks" / f"{machine}.jsonl")
    assert (record.signal, record.code, record.access, record.handled) == (fakes.SIGBUS, fakes.ADRALN, "load", False)
    assert text == disassemble(record, machine)
    assert str(access_of(record)) == "load of 4 bytes at 1 mod 4"


@pytest.mark.parametrize("machine", ["arm", "sparc32plus"])
def test_the_function_of_a_real_record_is_found_in_the_symbol_table_alone(machine: str) -> None:
    (record,) = events.read_faults(fakes.DATA / "stacks" / f"{machine}.jsonl")
    binary = str(fakes.DATA / "stacks" / machine)
    maps = [
        events.MapRecord(start=m.start, end=m.end, offset=m.offset, path=m.path.replace("@DATA@/" + machine, binary))
        for m in record.maps
    ]
    (frame,) = Symbols("no-such-triple", binary).frames(maps, record.pc)
    # The compiler inlined f into main.
    assert frame.function == "main"
