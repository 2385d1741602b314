"""Every machine, and an independent reader, reads what any other machine has written, to the last bit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from harness.core.byte_diff import DifferenceError, excerpt
from harness.core.finding import Difference, Reproduction
from harness.core.target_model import Endianness
from harness.protocol.command_stream import command, wire
from harness.run.server_process import StartError
from suites._shared.checksums import sealed
from suites._shared.formats import places, rdb
from suites._shared.formats.records import EXPIRY
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, differences
from suites._shared.needs import skip_in_short_tiers
from suites.persistence.conftest import FORMS, golden_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.formats.rdb import Rdb
    from suites._shared.keyspace.values import KeyEntry
    from suites._shared.programs import Programs
    from suites.persistence.conftest import Written

SHOWN = 5
PORTABLE_TIMES = 9
"""The first RDB version that stores times in a fixed byte order (Redis 5.0, rdb.c)."""


def assert_same(expected: dict[Key, KeyEntry], actual: dict[Key, KeyEntry]) -> None:
    """Fail with the first differences."""
    lines = differences(expected, actual)
    assert not lines, f"{len(lines)} keys differ: " + "; ".join(lines[:SHOWN])


@pytest.fixture
def own(cell: CellSpec) -> str:
    """The cell's target."""
    return cell.runner.target.name


def test_the_data_set_has_every_type_in_every_encoding(
    own: str, cell: CellSpec, family: str, written: Callable[[str], Written]
) -> None:
    assert written(own).encodings == dataset.encodings(cell.version, family)


def test_an_independent_reader_finds_in_the_file_what_was_stored(
    own: str, cell: CellSpec, family: str, written: Callable[[str], Written]
) -> None:
    """The reader checks lengths, byte order, times to the millisecond, doubles to the bit, and the checksum."""
    found = places.check_file(written(own).rdb, written("native").rdb, writer=own, version=cell.version, family=family)
    assert found.functions == ([dataset.FUNCTION] if not cell.lacks("command function") else [])


def test_an_independent_reader_finds_in_each_dump_what_was_stored(
    own: str, cell: CellSpec, family: str, written: Callable[[str], Written]
) -> None:
    guest_files, native_files = written(own), written("native")
    expected = dataset.expected(cell.version, family)
    assert {key.name for key in expected if key.database == 0} == set(guest_files.dumps)
    version = rdb.version_of(guest_files.rdb)
    for name, payload in sorted(guest_files.dumps.items()):
        other = native_files.dumps.get(name, payload)
        stored = places.check_dump(payload, other, Key(0, name), writer=own, version=cell.version, family=family)
        assert stored <= version, f"{name!r} has version {stored}, the file {version}"


def test_what_can_be_written_in_one_way_only_is_the_same_bytes_on_every_machine(
    writer: str, own: str, written: Callable[[str], Written]
) -> None:
    places.check_same(written(own).rdb, written(writer).rdb, writer=own, other_writer=writer)


def test_an_rdb_file_of_a_peer_is_loaded_whole_and_saved_again_the_same(
    writer: str, cell: CellSpec, family: str, start_guest: StartGuest, written: Callable[[str], Written]
) -> None:
    content = written(writer).rdb
    guest = start_guest(options=server.OPTIONS, files={"dump.rdb": content})
    places.check_loaded(guest, content, writer=writer, cell=cell, family=family)
    if not cell.lacks("command function"):
        assert server.functions(guest) == [dataset.FUNCTION]


def test_dumps_of_a_peer_are_restored(
    writer: str, cell: CellSpec, family: str, guest: Guest, written: Callable[[str], Written]
) -> None:
    payloads = written(writer).dumps
    with server.client(guest) as client:
        client.command("FLUSHALL")
        replies = client.pipeline([("RESTORE", name, 0, payload) for name, payload in payloads.items()])
    refused = [f"{name!r}: {reply!r}" for name, reply in zip(payloads, replies, strict=True) if reply != b"OK"]
    assert not refused, f"{len(refused)} payloads are refused: " + "; ".join(refused[:SHOWN])
    expected = dataset.expected(cell.version, family)
    values = {key: type(entry)(entry.value) for key, entry in expected.items() if key.database == 0}
    assert_same(values, server.snapshot(guest))


def test_an_append_only_file_of_a_peer_is_loaded_whole(
    writer: str,
    form: str,
    cell: CellSpec,
    family: str,
    start_guest: StartGuest,
    written: Callable[[str], Written],
) -> None:
    files = written(writer).append_only
    if form not in files:
        pytest.skip("append-only files have a preamble since 4.0")
    guest = start_guest(options=[*server.OPTIONS, "--appendonly", "yes"], files=files[form])
    expected = dataset.expected(cell.version, family)
    assert_same(server.without_times(expected, cell), server.snapshot(guest))
    assert_same(expected, rdb.read(server.saved(guest)).entries)


def test_a_file_with_a_command_that_lacks_its_words_is_refused(
    own: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    """DEL does not read the missing words. Other commands read past the end of their words, with undefined results."""
    skip_in_short_tiers(cell, "every Redis accepts it, on every machine (docs/FOUND.md), which must not block a merge")
    options = [*server.OPTIONS, "--appendonly", "yes"]
    value = b"written before"
    whole = wire((command("SELECT", "0"), command("SET", "k", value)))
    with server.client(start_guest(options=options, files={"appendonly.aof": whole})) as connection:
        assert connection.command("GET", "k") == value
    lacking = whole + wire((command("DEL"),))
    with contextlib.suppress(StartError):
        guest = start_guest(options=options, files={"appendonly.aof": lacking}, may_refuse=True)
        with server.client(guest) as connection:
            reply = connection.command("GET", "k")
        raise DifferenceError(
            f"the file was taken, and GET k replies {reply!r}",
            Difference(
                where="appendonly.aof",
                offset=len(whole),
                record="DEL without a key",
                actual=excerpt(lacking, len(whole)),
                writer="a test",
                reader=own,
            ),
            Reproduction(target=own, requests=("GET k",), wrong=value.hex(), guest=guest.name, options=tuple(options)),
        )


@pytest.mark.parametrize("examined", [False, True], ids=["trusted", "examined"])
@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_a_file_of_long_ago_is_loaded_whole(
    path: Path, examined: bool, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    """Native builds of old releases wrote these files. A server that sanitises them reads each entry of old
    encodings.
    """
    if examined and "sanitize-dump-payload" not in cell.abilities.options:
        pytest.skip("servers check what they load since 6.2")
    written_by, _, digits = path.stem.partition("-")
    version = tuple(int(part) for part in digits.split("."))
    # Only the attempt shows whether a server reads a file, and a refusal would be a finding.
    if version > cell.version or (written_by != family and version >= (7, 4)):
        pytest.skip(f"{path.stem} is newer, or of the other family")
    content = path.read_bytes()
    expected = dataset.expected(version, written_by)
    found = rdb.read(content)
    assert_same(expected, found.entries)
    examining = ["--sanitize-dump-payload", "yes"] if examined else []
    if found.version < PORTABLE_TIMES and cell.runner.target.endianness is Endianness.BIG:
        # Every server reads the times of such a file in its own byte order, whoever wrote it (docs/FOUND.md).
        content = as_a_big_endian_server_wrote_it(content, found)
    guest = start_guest(options=[*server.OPTIONS, *examining], files={"dump.rdb": content})
    loaded = server.snapshot(guest)
    assert_same(server.without_times(expected, cell), loaded)


def as_a_big_endian_server_wrote_it(content: bytes, found: Rdb) -> bytes:
    """A file of the versions in which milliseconds have the byte order of the machine that writes them."""
    swapped = bytearray(content)
    times = [part for part in found.parts if part.what == EXPIRY and part.end - part.start == 8]
    assert times, "no key of the file expires"
    for part in times:
        swapped[part.start : part.end] = swapped[part.start : part.end][::-1]
    return sealed(bytes(swapped))


@pytest.mark.parametrize("tool", ["check-rdb", "check-aof"])
def test_the_servers_own_tool_finds_nothing_wrong_with_a_peers_file(
    writer: str, tool: str, cell: CellSpec, programs: Programs, written: Callable[[str], Written]
) -> None:
    # An older server under such a name starts as a server, so it cannot be asked.
    if cell.version < (4,) or cell.runner.target.emulator.is_elsewhere:
        pytest.skip("before 4.0 the tools are separate programs; the tools run on the host alone")
    files = written(writer)
    contents = {"dump.rdb": files.rdb} if tool == "check-rdb" else files.append_only[FORMS[1]]
    first, *_ = [programs.file(name, content) for name, content in contents.items()]
    result = programs.run_server_as(tool, str(first), seconds=180)
    assert result.code == 0, f"{tool} ended with status {result.code}: {result.text[-500:]}"
