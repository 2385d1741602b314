"""Append-only files beyond 2^32 bytes. They are sparse: their values are holes, which need no room on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import Client, info_fields
from suites._shared import long_strings
from suites._shared.keyspace import server
from suites._shared.needs import skip_in_short_tiers

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.programs import Programs

HOLE = 64 << 20
COUNT = (1 << 32) // HOLE + 2
"""Number of values of that length with which a file exceeds 2^32 bytes."""
SELECT = Client.pack([("SELECT", "0")])
LAST = Client.pack([("SET", "last", "value")])
CHECK_SECONDS = 600.0


@pytest.fixture(autouse=True)
def tier(cell: CellSpec) -> None:
    why = "it reads 4 GiB: only in the tiers full and thorough, with files of this host"
    skip_in_short_tiers(cell, why)
    if cell.machine is not None or cell.runner.target.emulator.is_elsewhere:
        pytest.skip(why)


def lengthen(path: Path, command: bytes) -> int:
    """Append a SET of each hole to a file, then a command. Returns the size of the file without that command."""
    before, after = Client.pack([("SET", "k", b"")]).rsplit(b"$0\r\n\r\n", 1)[0] + b"$%d\r\n" % HOLE, b"\r\n"
    with path.open("r+b") as file:
        file.seek(0, 2)
        for _ in range(COUNT):
            file.write(before)
            file.seek(HOLE, 1)
            file.write(after)
        whole = file.tell()
        file.write(command)
    return whole


def test_an_append_only_file_beyond_32_bits_is_loaded_to_its_end(cell: CellSpec, start_guest: StartGuest) -> None:
    long_strings.need_memory(HOLE)
    options = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
    guest = start_guest(options=[*server.OPTIONS, *options])
    with (
        long_strings.one_at_a_time(cell),
        guest.client(deadline_seconds=long_strings.PATIENCE * guest.deadline_seconds) as client,
    ):
        client.command("SET", "first", "value")
        files = server.append_only_files(guest)
        path = guest.folder / list(files)[-1]
        before = path.stat().st_size
        others = sum(len(content) for name, content in files.items() if not name.endswith(".manifest")) - before
        try:
            size = lengthen(path, LAST) + len(LAST)
            assert client.command("DEBUG", "LOADAOF") == b"OK"
            asked = [("GET", "first"), ("STRLEN", "k"), ("GET", "last")]
            assert client.pipeline(asked) == [b"value", HOLE, b"value"]
            assert appended(client) == size + others
            more = ("SET", "more", "value")
            client.command(*more)
            assert appended(client) == size + others + len(Client.pack([more]))
            assert path.stat().st_size == size + len(Client.pack([more]))
        finally:
            # The evidence of a run is read whole.
            with path.open("r+b") as file:
                file.truncate(before)


def appended(client: Client) -> int:
    """The size of the append-only files, according to INFO."""
    return int(info_fields(client.command("INFO", "persistence"))["aof_current_size"])


def test_a_damaged_append_only_file_is_cut_beyond_32_bits(cell: CellSpec, programs: Programs, tmp_path: Path) -> None:
    long_strings.need_memory(HOLE)
    # An older server under such a name starts as a server, so it cannot be asked.
    if cell.version < (4,):
        pytest.skip("before 4.0 the tools are separate programs")
    file = tmp_path / "one.aof"
    file.write_bytes(SELECT)
    with long_strings.one_at_a_time(cell):
        try:
            whole = lengthen(file, LAST[:-3])
            result = programs.run_server_as("check-aof", "--fix", "one.aof", sent=b"y\n", seconds=CHECK_SECONDS)
            size = file.stat().st_size
        finally:
            file.unlink()
    assert size == whole, f"the file was cut to {size} bytes, and {whole} are intact: {result.text[-500:]}"
    assert str(whole).encode() in result.output, f"{whole} is not in {result.text[-500:]}"
