"""Limits of length. Servers refuse excessive lengths at once. Strings of half a GiB need the tier full, and memory for
each cell that the tests refuse to take from the machine's last; strings of 4 GiB need the tier thorough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hiredis import ReplyError

from harness.protocol import allowed_refusals
from harness.protocol.command_stream import command
from suites._shared import long_strings
from suites._shared.long_strings import LARGEST
from suites._shared.needs import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.allowed_refusals import Release
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

HEADER_LIMIT = 2**32
"""From this length on a string needs the 17-byte header, which 32-bit machines do not have."""


@pytest.mark.parametrize(
    "request_",
    [
        ["SETRANGE", "k", LARGEST, "x"],
        ["SETRANGE", "k", LARGEST - 1, "xy"],
        ["SETRANGE", "k", 2**31 - 1, "x"],
        ["SETRANGE", "k", 2**32, "x"],
        ["SETRANGE", "k", 2**63 - 1, "x"],
        ["SETRANGE", "k", -1, "x"],
        ["SETBIT", "k", LARGEST * 8, 1],
        ["SETBIT", "k", 2**32, 1],
        ["SETBIT", "k", 2**63 - 1, 1],
    ],
    ids=lambda request_: f"{request_[0]}-{request_[2]}",
)
def test_what_would_be_too_long_is_refused_and_changes_nothing(
    both: PairedServers, request_: list[str | int], cell: CellSpec, release: Release
) -> None:
    """The message equals the oracle's for the smallest excessive length, or is in harness/protocol/refusals.toml.

    The oracle receives no larger length: SETRANGE at 2^63 - 1 ends a 64-bit server up to Redis 6.0 (docs/FOUND.md).
    """
    name, _, number, *_ = request_
    least = number if number == -1 else LARGEST * 8 if name == "SETBIT" else LARGEST
    (words,) = both.oracle.pipeline([[name, "k", least, 1]])
    assert isinstance(words, ReplyError), f"the native build accepts {name} at {least}"
    refusal, value = both.guest.pipeline([["SET", "k", "value"], request_, ["GET", "k"]])[1:]
    assert isinstance(refusal, ReplyError), f"{request_}: answered {refusal!r:.100}"
    sent = command(*(str(word).encode() for word in request_))
    width_bits = cell.runner.target.width_bits
    listed = allowed_refusals.refused(sent, str(refusal), str(words), release, width_bits)
    if listed is None and allowed_refusals.due(sent, release, width_bits):
        pytest.fail(f"{request_}: listed in harness/protocol/refusals.toml, and answered {refusal}", pytrace=False)
    assert listed is not None or str(refusal) == str(words), f"{request_}: {refusal}, natively {words}"
    assert value == b"value"


@pytest.mark.parametrize(("first", "last"), [(0, 2**31), (2**31, 2**32), (-(2**31), -1), (2**32 - 1, 2**32 + 9)])
def test_ranges_beyond_32_bits_are_clamped(both: PairedServers, first: int, last: int) -> None:
    text = both.some_bytes(300)
    expected = text if first <= 0 else b""
    both.expect([["SET", "k", text], ["GETRANGE", "k", first, last]], [expected], f"{first} to {last}")


@pytest.fixture
def patient(guest: Guest, oracle: Guest, cell: CellSpec) -> Iterator[PairedServers]:
    """Guest and oracle with enough time for gigabytes, emptied again afterwards."""
    with long_strings.patient(guest, oracle, cell) as pair:
        yield pair


def test_the_longest_string_that_needs_no_configuration(patient: PairedServers, cell: CellSpec) -> None:
    long_strings.need_memory(LARGEST)
    requests = [["SETBIT", "k", LARGEST * 8 - 1, 1], ["STRLEN", "k"], ["GETBIT", "k", LARGEST * 8 - 1]]
    requests += [["GETRANGE", "k", LARGEST - 3, -1], ["BITPOS", "k", 1], ["BITCOUNT", "k"], ["DEL", "k"]]
    with long_strings.one_at_a_time(cell):
        patient.expect(requests, [0, LARGEST, 1, b"\0\0\1", LARGEST * 8 - 1, 1, 1], "512 MiB")


def test_a_string_beyond_31_bits_of_length_is_written_and_read_at_its_end(guest: Guest, cell: CellSpec) -> None:
    """On a 32-bit machine beyond 2^30, because a string may have no more than 2^31 bytes there."""
    limit = 2**30 if cell.runner.target.width_bits == 32 else 2**31
    long_strings.need_memory(limit)
    patience = long_strings.PATIENCE * guest.deadline_seconds
    with long_strings.one_at_a_time(cell), guest.client(deadline_seconds=patience) as client:

        def expect(expected: object, *words: str | int) -> None:
            reply = client.command(*words)
            assert reply == expected, f"{words}: answered {reply!r:.100}, not {expected!r}"

        if client.pipeline([("CONFIG", "SET", "proto-max-bulk-len", 2 * limit - 1)]) != [b"OK"]:
            pytest.skip("the server's longest string cannot be configured")
        try:
            expect(limit + 3, "SETRANGE", "k", limit - 3, "abcdef")
            expect(limit + 3, "STRLEN", "k")
            expect(limit + 6, "APPEND", "k", "ghi")
            expect(b"\0abcdefghi", "GETRANGE", "k", limit - 4, limit + 5)
            expect(b"hi", "GETRANGE", "k", -2, -1)
            expect(b"\0a", "GETRANGE", "k", -10, limit - 3)
            expect(limit + 6, "SETRANGE", "k", 5, "q")
            expect(b"\0q\0", "GETRANGE", "k", 4, 6)
            expect(limit + 6, "SETRANGE", "k", limit, "DE")
            expect(b"cDEf", "GETRANGE", "k", limit - 1, limit + 2)
            expect(b"", "GETRANGE", "k", limit + 6, limit + 9)
        finally:
            client.pipeline([("DEL", "k"), ("CONFIG", "SET", "proto-max-bulk-len", LARGEST)])


def test_a_table_whose_size_wraps_in_32_bits_is_refused(both: PairedServers, cell: CellSpec) -> None:
    """LCS multiplies the lengths of its texts and the size of a cell, here to a multiple of 2^32 (redis #9011)."""
    require(cell, "command lcs")
    texts = [["SET", name, bytes(2**16 - 1)] for name in ("one", "other")]
    for client in (both.oracle, both.guest):
        (reply,) = client.pipeline([*texts, ["LCS", "one", "other"]])[2:]
        assert str(reply).startswith("ERR Insufficient memory, "), f"LCS of 65,535 bytes each: {reply!r:.100}"


def test_a_string_behind_the_largest_header(patient: PairedServers, cell: CellSpec) -> None:
    if cell.tier != "thorough" or cell.runner.target.width_bits == 32:
        pytest.skip("4 GiB in each server: only in the thorough tier, on 64-bit targets")
    long_strings.need_memory(HEADER_LIMIT)
    if patient.ask([["CONFIG", "SET", "proto-max-bulk-len", 2 * HEADER_LIMIT]])[0] != b"OK":
        pytest.skip("the server's longest string cannot be configured")
    requests = [["SETRANGE", "k", HEADER_LIMIT + 3, "end"], ["STRLEN", "k"], ["GETRANGE", "k", -4, -1], ["DEL", "k"]]
    patient.expect(requests, [HEADER_LIMIT + 6, HEADER_LIMIT + 6, b"\0end", 1], "4 GiB")
    patient.ask([["CONFIG", "SET", "proto-max-bulk-len", LARGEST]])
