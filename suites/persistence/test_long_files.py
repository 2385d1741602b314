"""Files beyond 2^32 bytes. They are sparse: their values are holes, which need no room on the disk."""

from __future__ import annotations

import contextlib
import select
import struct
from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import Client, info_fields
from suites._shared import long_strings
from suites._shared.formats.handmade import END, EXPIRE_MS, STRING, one, pair, text
from suites._shared.formats.handmade import SELECT as SELECT_DATABASE
from suites._shared.keyspace import server
from suites._shared.needs import skip_in_short_tiers

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
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
POLL_SECONDS = 0.05
HOLES = 80
"""The number of expired keys with such a value in an RDB file: a fifth of the file lies beyond 2^32 bytes."""


@pytest.fixture(autouse=True)
def tier(cell: CellSpec) -> None:
    why = "it reads 4 GiB: only in the tiers full and thorough, with files of this host"
    skip_in_short_tiers(cell, why)
    if cell.machine is not None or cell.runner.target.emulator.is_elsewhere:
        pytest.skip(why)


@contextlib.contextmanager
def long_snapshot(path: Path, holes: int) -> Iterator[int]:
    """Write an RDB file of two keys. Between them are keys that have expired long ago, whose values are holes: a server
    reads each and keeps none. Returns the file's size, and empties the file afterwards.
    """
    # Every release reads version 6, whose checksum is zero if there is none. The time is zero in either byte order.
    expired = one(EXPIRE_MS, bytes(8)) + bytes([STRING]) + text(b"k") + b"\x80" + struct.pack(">I", HOLE)
    try:
        with path.open("wb") as file:
            file.write(b"REDIS0006" + bytes([SELECT_DATABASE, 0]) + pair(STRING, text(b"value"), b"first"))
            for _ in range(holes):
                file.write(expired)
                file.seek(HOLE, 1)
            file.write(pair(STRING, text(b"value"), b"last") + bytes([END]) + bytes(8))
        yield path.stat().st_size
    finally:
        # The evidence of a run is read whole.
        path.write_bytes(b"")


@pytest.fixture
def loading(cell: CellSpec, start_guest: StartGuest) -> Iterator[tuple[Client, socket.socket, int]]:
    """A client of a server, a connection of which DEBUG RELOAD has been requested, and the size of the file that is
    loaded: a long one.
    """
    # Earlier releases reload only what they have just saved.
    if cell.version < (6, 2):
        pytest.skip("DEBUG RELOAD NOSAVE came with 6.2")
    long_strings.need_memory(HOLE)
    guest = start_guest(options=[*server.OPTIONS, "--rdbchecksum", "no", "--save", ""])
    patience = long_strings.PATIENCE * guest.deadline_seconds
    with (
        long_strings.one_at_a_time(cell),
        guest.client(deadline_seconds=patience) as client,
        guest.access.connection(deadline_seconds=patience) as connection,
        long_snapshot(guest.folder / "dump.rdb", HOLES) as size,
    ):
        connection.sendall(Client.pack([("DEBUG", "RELOAD", "NOSAVE")]))
        yield client, connection, size


def test_a_snapshot_beyond_32_bits_is_loaded_to_its_end(loading: tuple[Client, socket.socket, int]) -> None:
    client, connection, _ = loading
    assert connection.recv(100) == b"+OK\r\n"
    assert client.pipeline([("GET", "first"), ("GET", "last"), ("DBSIZE",)]) == [b"value", b"value", 2]
    expired = int(info_fields(client.command("INFO", "persistence")).get("rdb_last_load_keys_expired", HOLES))
    assert expired == HOLES, f"{HOLES} keys have expired, and {expired} are counted"


def test_how_much_of_a_snapshot_is_loaded_is_told_beyond_32_bits(loading: tuple[Client, socket.socket, int]) -> None:
    client, connection, size = loading
    told: list[tuple[int, int]] = []
    # The server answers requests after every 2 MiB of the file.
    while not select.select([connection], [], [], POLL_SECONDS)[0]:
        about = info_fields(client.command("INFO", "persistence"))
        if about["loading"] == "1":
            told.append((int(about["loading_loaded_bytes"]), int(about["loading_total_bytes"])))
    assert told, "the file was loaded before the server was asked"
    assert {total for _, total in told} == {size}, f"the file has {size} bytes: {told[-1]}"
    loaded = [each for each, _ in told]
    assert loaded == sorted(loaded), f"the server went back while it loaded: {loaded[-8:]}"
    assert loaded[-1] <= size, f"{loaded[-1]} bytes are loaded of {size}"


def test_a_snapshot_beyond_32_bits_is_checked_to_its_end(cell: CellSpec, programs: Programs, tmp_path: Path) -> None:
    long_strings.need_memory(HOLE)
    if cell.version < (4,):
        pytest.skip("before 4.0 the tools are separate programs")
    with long_strings.one_at_a_time(cell), long_snapshot(tmp_path / "long.rdb", COUNT) as size:
        result = programs.run_server_as("check-rdb", "long.rdb", seconds=CHECK_SECONDS)
    assert result.code == 0, f"check-rdb ended with {result.code}: {result.text[-500:]}"
    # Depending on the release, the offset behind the last byte, or that of the checksum.
    ends = [size, size - 8]
    assert any(f"[offset {end}]" in result.text for end in ends), f"the file has {size} bytes: {result.text[-500:]}"


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
