"""The target checks and repairs files as the native build does, and the intact part of each file remains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.core.target_model import ORACLE
from harness.protocol.resp import Client
from suites._shared.formats.handmade import FILES
from suites._shared.keyspace import server
from suites._shared.needs import require

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.programs import Programs

NEAR_MOMENTS = [1, 1_650_000_000, (1 << 31) - 2]
FAR_MOMENTS = [(1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40]
"""Seconds since 1970 around the limits of signed and unsigned 32-bit numbers, and beyond."""
LONGEST = 120
WHOLE = [
    "a list of strings",
    "a set of strings",
    "a hash",
    "scores as text",
    "scores as doubles",
    "a function of the first candidate",
    "compressed, as long as it says",
    "integers of each width",
    "idle times",
    "sizes of tables",
]
"""Files that are cut at every byte, one for each way in which the tool reads values."""
DAMAGES = ["none", "the last byte", "the second half", "a byte in the middle", "the version"]
APPEND_ONLY_DAMAGES = ["none", "the last byte", "the second half", "a command in the middle"]


def damaged(content: bytes, how: str) -> bytes:
    """The content with some of it missing or changed."""
    middle = len(content) // 2
    match how:
        case "the last byte":
            return content[:-1]
        case "the second half":
            return content[:middle]
        case "a byte in the middle":
            return content[:middle] + bytes([content[middle] ^ 0x40]) + content[middle + 1 :]
        case "a command in the middle":
            at = content.index(b"\r\n*", middle) + 2
            return content[:at] + b"?" + content[at + 1 :]
        case "the version":
            return content[:5] + b"9999" + content[9:]
    return content


def without_processes(output: bytes) -> bytes:
    """The output without the process number and time of log lines, which some checkers write (Valkey 9)."""
    return re.sub(rb"^\d+:[A-Z] [^*#.-]*\.\d{3} ", b"", output, flags=re.MULTILINE)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_snapshot_is_checked(programs: Programs, start_guest: StartGuest, family: str, damage: str) -> None:
    guest = start_guest(target=ORACLE, options=server.OPTIONS)
    server.write(guest, family)
    programs.file("dump.rdb", damaged(server.saved(guest), damage))
    output = programs.same("check-rdb", "dump.rdb", shown=without_processes)
    assert (b"RDB looks OK" in output) == (damage == "none"), output[-300:]


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_snapshot_made_by_hand_is_checked(programs: Programs, cell: CellSpec, content: bytes) -> None:
    require(cell, "option sanitize-dump-payload")
    programs.file("dump.rdb", content)
    programs.same("check-rdb", "dump.rdb", shown=without_processes)


CUT = [name for name, content in FILES.items() if name in WHOLE and len(content) < LONGEST]


@pytest.mark.parametrize("name", CUT)
def test_a_snapshot_that_ends_anywhere_is_checked(programs: Programs, cell: CellSpec, name: str) -> None:
    require(cell, "option sanitize-dump-payload")
    content = FILES[name]
    for end in range(9, len(content)):
        programs.file("dump.rdb", content[:end])
        output = programs.same("check-rdb", "dump.rdb", shown=without_processes)
        assert b"RDB looks OK" not in output, f"the first {end} of {len(content)} bytes are accepted as a whole file"


CHECK_SECONDS = 2.0
"""Time limit of a check of a few bytes, which takes a few milliseconds."""


def test_a_module_s_value_that_ends_anywhere_is_refused(programs: Programs, cell: CellSpec) -> None:
    """In every release, the tool never ends if the next part of a value is missing (docs/FOUND.md)."""
    require(cell, "option sanitize-dump-payload")
    whole = FILES["a value of a module"]
    # The file ends before the first part, after it, or within it.
    for end in (23, 25, 24):
        programs.file("dump.rdb", whole[:end])
        assert programs.run("check-rdb", "dump.rdb", seconds=CHECK_SECONDS).code == 1


def written(start_guest: StartGuest, family: str) -> dict[str, bytes]:
    """The append-only files of a native server with the data set."""
    guest = start_guest(target=ORACLE, options=[*server.OPTIONS, "--appendonly", "yes"])
    server.write(guest, family)
    return server.append_only_files(guest)


@pytest.mark.parametrize("damage", APPEND_ONLY_DAMAGES)
def test_an_append_only_file_is_checked_and_repaired(
    programs: Programs, start_guest: StartGuest, family: str, damage: str
) -> None:
    files = written(start_guest, family)
    *_, last = files
    first = next(iter(files))
    folder = programs.fresh("files", files)
    whole = programs.run("check-aof", f"files/{first}", target=ORACLE)
    assert whole.code == 0, f"a whole file is refused: {whole.text[-300:]}"
    files[last] = damaged(files[last], damage)
    programs.fresh("files", files)
    repaired: list[bytes] = []

    def renew() -> None:
        repaired.append((folder / last).read_bytes())
        programs.fresh("files", files)

    programs.same("check-aof", f"files/{first}", before=renew)
    programs.same("check-aof", "--fix", f"files/{first}", sent=b"y\n", before=renew)
    # The last run began with the original files, so its result, the target's repair, is in place now.
    assert repaired[3] == (folder / last).read_bytes()
    assert (repaired[3] == files[last]) == (damage == "none")
    assert programs.run("check-aof", f"files/{first}").code == 0


def timed(programs: Programs, cell: CellSpec, moments: list[int], moment: int) -> tuple[Path, bytes, bytes]:
    """A file with these timestamps, its content, and the content that must remain after a cut at one time."""
    require(cell, "option aof-timestamp-enabled")
    parts = [b"#TS:%d\r\n" % one + Client.pack([("SET", "k", one)]) for one in moments]
    whole = b"".join(parts)
    due = b"".join(part for one, part in zip(moments, parts, strict=True) if one <= moment)
    # The tool refuses to remove everything.
    return programs.file("timed.aof", whole), whole, due or whole


def expect_cut(programs: Programs, cell: CellSpec, moments: list[int], moment: int) -> None:
    """Cut a file with these timestamps at one time. Compare the tool's output, and the content that remains."""
    path, whole, due = timed(programs, cell, moments, moment)
    programs.same(
        "check-aof", "--truncate-to-timestamp", str(moment), "timed.aof", before=lambda: path.write_bytes(whole)
    )
    assert path.read_bytes() == due


@pytest.mark.parametrize("moment", [0, *NEAR_MOMENTS])
def test_a_file_is_cut_at_a_moment(programs: Programs, cell: CellSpec, moment: int) -> None:
    expect_cut(programs, cell, NEAR_MOMENTS, moment)


@pytest.mark.parametrize("moment", [0, *NEAR_MOMENTS])
def test_what_was_written_after_a_moment_is_cut(programs: Programs, cell: CellSpec, moment: int) -> None:
    """The tool's output is not compared, so that a wrong number in it does not hide a cut at the wrong place."""
    path, _, due = timed(programs, cell, NEAR_MOMENTS, moment)
    programs.run("check-aof", "--truncate-to-timestamp", str(moment), "timed.aof")
    assert path.read_bytes() == due


@pytest.mark.parametrize("moment", [NEAR_MOMENTS[1], *FAR_MOMENTS, 1 << 62])
def test_a_file_with_moments_after_2038_is_cut(programs: Programs, cell: CellSpec, moment: int) -> None:
    expect_cut(programs, cell, [NEAR_MOMENTS[1], *FAR_MOMENTS], moment)


def test_memory_is_tested(programs: Programs) -> None:
    result = programs.run("server", "--test-memory", "1")
    assert (result.code, "Your memory passed this test" in result.text) == (0, True), result.text[-300:]
