"""A module's values and auxiliary data, saved on one machine and loaded on another, are equal bit by bit."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.formats import rdb, records
from suites._shared.keyspace import server
from suites._shared.keyspace.values import Foreign, Key
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

VALUES = [
    (0, 0, 0.0, b""),
    (-1, 1, -0.1, b"\x80\xff"),
    (-(1 << 63), (1 << 64) - 1, 1.7976931348623157e308, b"text"),
    ((1 << 63) - 1, 1 << 63, 5e-324, bytes(range(256))),
    (-(1 << 31) - 1, 1 << 32, float("inf"), b"x" * 300),
    (1 << 40, 70000, 0.5, b"12345"),
]
NOTE = b"kept beside the keys \xff\x80"
NOTED = 1 << 40
SLACK_BYTES = 1000
"""Maximum memory of a key in addition to its value, in bytes."""


def start(start_guest: StartGuest, cell: CellSpec, target: str, *options: str, **more: object) -> Guest:
    """A server with the module, and with further options."""
    options = (*server.OPTIONS, *options, "--loadmodule", str(cell.module_on(target)))
    return start_guest(target=target, options=options, **more)  # type: ignore[arg-type]


def fill(guest: Guest) -> None:
    """Write all values and the note."""
    with server.client(guest) as client:
        for number, (whole, natural, real, text) in enumerate(VALUES):
            client.command("PLUMB.SET", f"value:{number}", whole, natural, repr(real), text)
        client.command("PLUMB.NOTE", NOTE)


def values_and_note(guest: Guest) -> tuple[list[object], object]:
    """The values and the note, as the module returns them."""
    with server.client(guest) as client:
        values: list[object] = [client.command("PLUMB.GET", f"value:{number}") for number in range(len(VALUES))]
        return values, client.command("PLUMB.NOTE")


def _expected() -> tuple[list[object], object]:
    values: list[object] = []
    for whole, natural, real, text in VALUES:
        exact, small = b"%.17g" % real, b"%.9g" % records.single(real)
        values.append([whole, b"%d" % natural, exact, small, exact, text])
    return values, [NOTED, NOTE]


def test_a_modules_values_and_its_note_are_loaded_by_the_other_machine(
    writer: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    writing = start(start_guest, cell, writer)
    fill(writing)
    assert values_and_note(writing) == _expected()
    content = server.saved(writing)
    reading = start(start_guest, cell, cell.runner.target.name, files={"dump.rdb": content})
    assert values_and_note(reading) == _expected()


def test_a_modules_value_is_restored_from_the_other_machines_dump(
    writer: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    writing = start(start_guest, cell, writer)
    fill(writing)
    reading = start(start_guest, cell, cell.runner.target.name)
    with server.client(writing) as source, server.client(reading) as goal:
        for number in range(len(VALUES)):
            payload = source.command("DUMP", f"value:{number}")
            assert isinstance(payload, bytes)
            assert goal.command("RESTORE", f"value:{number}", 0, payload) == b"OK"
            # The digits depend on the machine's text form of a long double; the value does not.
    assert values_and_note(reading)[0] == _expected()[0]


def test_a_modules_value_is_loaded_from_the_other_machines_string(
    writer: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    require(cell, "api RedisModule_SaveDataTypeToString")
    writing, reading = (start(start_guest, cell, target) for target in (writer, cell.runner.target.name))
    fill(writing)
    with server.client(writing) as source, server.client(reading) as goal:
        for number in range(len(VALUES)):
            content = source.command("PLUMB.PACK", f"value:{number}")
            assert goal.command("PLUMB.UNPACK", f"value:{number}", content) == b"OK"  # type: ignore[arg-type]
    assert values_and_note(reading)[0] == _expected()[0]


def test_a_modules_values_are_written_as_commands_and_read_again(cell: CellSpec, start_guest: StartGuest) -> None:
    guest = start(start_guest, cell, cell.runner.target.name, "--appendonly", "yes", "--aof-use-rdb-preamble", "no")
    fill(guest)
    server.await_rewrite(guest)
    with server.client(guest) as client:
        assert client.command("DEBUG", "LOADAOF") == b"OK"
    assert values_and_note(guest)[0] == _expected()[0]


@pytest.mark.parametrize("number", [(1 << 31) - 1, 1 << 31, 1 << 32, -(1 << 40) - 3, (1 << 63) - 1])
def test_a_number_that_a_module_passes_to_a_command_is_whole(
    number: int, cell: CellSpec, start_guest: StartGuest
) -> None:
    guest = start(start_guest, cell, cell.runner.target.name)
    with server.client(guest) as client:
        assert client.command("PLUMB.PUSH", "list", number) == 3
        expected = [b"%d" % number, b"text", b"%d" % -number]
        assert client.command("LRANGE", "list", 0, -1) == expected


def sha1(content: bytes) -> bytes:
    """The SHA-1 digest of the content."""
    return hashlib.sha1(content, usedforsecurity=False).digest()


def digest_of(whole: int, text: bytes) -> bytes:
    """The reply to DEBUG DIGEST-VALUE for a value that adds these two to its digest in order."""

    def added(digest: bytes, content: bytes) -> bytes:
        """The exclusive or of the digest and the content's SHA-1."""
        return bytes(one ^ other for one, other in zip(digest, sha1(content), strict=True))

    nothing, ordered = bytes(20), bytes(20)
    for part in (b"%d" % whole, text):
        ordered = sha1(added(ordered, part))
    kind = sha1(added(nothing, (5).to_bytes(4, "big")))
    # The end of an ordered sequence adds it to the unordered rest.
    return added(kind, added(nothing, ordered)).hex().encode()


def test_a_modules_value_has_the_same_digest_everywhere(cell: CellSpec, start_guest: StartGuest) -> None:
    guest = start(start_guest, cell, cell.runner.target.name)
    fill(guest)
    with server.client(guest) as client:
        digests = client.command("DEBUG", "DIGEST-VALUE", *(f"value:{number}" for number in range(len(VALUES))))
    assert digests == [digest_of(whole, text) for whole, _, _, text in VALUES]


def test_a_modules_value_is_measured_copied_and_unlinked(cell: CellSpec, start_guest: StartGuest) -> None:
    guest = start(start_guest, cell, cell.runner.target.name)
    fill(guest)
    with server.client(guest) as client:
        for number, (_, _, _, text) in enumerate(VALUES):
            usage: Any = client.command("MEMORY", "USAGE", f"value:{number}")
            assert 0 < usage - (1 << 20) - len(text) < SLACK_BYTES, usage
        if cell.lacks("command copy"):
            return
        for number in range(len(VALUES)):
            assert client.command("COPY", f"value:{number}", f"copied:{number}") == 1
            assert client.command("UNLINK", f"value:{number}") == 1
            assert client.command("COPY", f"copied:{number}", f"value:{number}") == 1
        assert client.command("PLUMB.UNLINKED") == sum(len(text) for _, _, _, text in VALUES)
    assert values_and_note(guest) == _expected()


def test_an_independent_reader_passes_over_what_a_module_saved_and_finds_its_numbers(
    cell: CellSpec, start_guest: StartGuest
) -> None:
    guest = start(start_guest, cell, cell.runner.target.name)
    fill(guest)
    with server.client(guest) as client:
        client.command("SET", "plain", "1")
    found = rdb.read(server.saved(guest))
    assert len(found.entries) == len(VALUES) + 1
    for number, (whole, natural, real, text) in enumerate(VALUES):
        value = found.entries[Key(0, b"value:%d" % number)].value
        assert isinstance(value, Foreign)
        assert (value.module, value.encoding) == ("plumbline", 3)
        # A signed integer is saved as the unsigned integer with the same 64 bits.
        assert value.items[:2] == (whole % (1 << 64), natural)
        assert value.items[2:4] == (real, records.single(real))
        assert value.items[-1] == text
    # Data before the keys and after them, each with the number of its position.
    assert found.modules == [
        Foreign("plumbline", 3, (1, NOTED, NOTE), when=1),
        Foreign("plumbline", 3, (2, NOTED, NOTE), when=2),
    ]
