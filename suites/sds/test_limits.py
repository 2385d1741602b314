"""Limits of length. Servers refuse excessive lengths at once. Strings of half a GiB need the tier full, and memory for
each cell that the tests refuse to take from the machine's last; strings of 4 GiB need the tier thorough.
"""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest
from hiredis import ReplyError

from harness.protocol import allowed_refusals
from harness.protocol.command_stream import command
from suites._shared.needs import require
from suites._shared.paired_servers import PairedServers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.allowed_refusals import Release
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

LARGEST = 512 * 2**20
"""Default limit of a string (proto-max-bulk-len)."""
HEADER_LIMIT = 2**32
"""From this length on a string needs the 17-byte header, which 32-bit machines do not have."""
PATIENCE = 30
COPIES = 3
"""While a string grows it can exist twice, and the other server has a copy too."""


def _needs_memory(length: int) -> None:
    available: int = psutil.virtual_memory().available
    if available < COPIES * length:
        pytest.skip(f"{COPIES * length >> 20} MiB of memory are needed, {available >> 20} are available")


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
    with (
        guest.client(deadline_seconds=PATIENCE * guest.deadline_seconds) as guest_client,
        oracle.client(deadline_seconds=PATIENCE * oracle.deadline_seconds) as oracle_client,
    ):
        pair = PairedServers(
            guest_client, oracle_client, target=cell.runner.target.name, seed=cell.seed, tier=cell.tier
        )
        pair.ask([["FLUSHALL"]])
        yield pair
        pair.ask([["FLUSHALL"]])


@pytest.fixture
def half_a_gib(patient: PairedServers, cell: CellSpec) -> Iterator[PairedServers]:
    """The same, for strings of half a GiB. Such tests of a run's targets run one at a time."""
    if cell.tier == "quick":
        pytest.skip("512 MiB in each server: only in the tier full")
    cell.shared.mkdir(parents=True, exist_ok=True)
    with (cell.shared / "half-a-gib").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield patient
        patient.ask([["FLUSHALL"]])


def test_the_longest_string_that_needs_no_configuration(half_a_gib: PairedServers) -> None:
    _needs_memory(LARGEST)
    requests = [["SETBIT", "k", LARGEST * 8 - 1, 1], ["STRLEN", "k"], ["GETBIT", "k", LARGEST * 8 - 1]]
    requests += [["GETRANGE", "k", LARGEST - 3, -1], ["BITPOS", "k", 1], ["BITCOUNT", "k"], ["DEL", "k"]]
    half_a_gib.expect(requests, [0, LARGEST, 1, b"\0\0\1", LARGEST * 8 - 1, 1, 1], "512 MiB")


def test_numbers_of_bits_beyond_32_bits(half_a_gib: PairedServers) -> None:
    """A string of half a GiB has 2^32 bits: offsets and counts of bits need more than the `size_t` of a 32-bit machine
    (redis 6251c3e66, redis #9191).
    """
    _needs_memory(2 * LARGEST)
    first, bits = 2**32, (LARGEST + 2) * 8
    if half_a_gib.ask([["CONFIG", "SET", "proto-max-bulk-len", 2 * LARGEST]])[0] != b"OK":
        pytest.skip("the server's longest string cannot be configured")
    try:
        if half_a_gib.ask([["SETBIT", "k", first + 11, 1]])[0] != 0:
            pytest.skip("the server's bits end at 2^32, whatever its longest string")
        what = "bits beyond 2^32"
        half_a_gib.expect([["STRLEN", "k"], ["GETBIT", "k", 11]], [LARGEST + 2, 0], what)
        half_a_gib.expect([["GETBIT", "k", first + 11], ["BITPOS", "k", 1]], [1, first + 11], what)
        field = [["BITFIELD", "k", "GET", "u8", first + 8], ["BITFIELD", "k", "SET", "u8", first, 255]]
        half_a_gib.expect(field, [[16], [0]], what)
        counts = [["BITCOUNT", "k"], ["BITCOUNT", "k", LARGEST, -1], ["BITCOUNT", "k", 0, LARGEST - 1]]
        half_a_gib.expect(counts, [9, 9, 0], what)
        inverted = [["BITOP", "NOT", "n", "k"], ["BITCOUNT", "n"], ["BITPOS", "n", 0], ["GETRANGE", "n", -3, -1]]
        half_a_gib.expect(inverted, [LARGEST + 2, bits - 9, first, b"\xff\0\xef"], what)
        half_a_gib.expect([["BITPOS", "n", 0, LARGEST + 1], ["BITPOS", "n", 1, 3]], [first + 11, 24], what)
    finally:
        half_a_gib.ask([["FLUSHALL"], ["CONFIG", "SET", "proto-max-bulk-len", LARGEST]])


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
    _needs_memory(HEADER_LIMIT)
    if patient.ask([["CONFIG", "SET", "proto-max-bulk-len", 2 * HEADER_LIMIT]])[0] != b"OK":
        pytest.skip("the server's longest string cannot be configured")
    requests = [["SETRANGE", "k", HEADER_LIMIT + 3, "end"], ["STRLEN", "k"], ["GETRANGE", "k", -4, -1], ["DEL", "k"]]
    patient.expect(requests, [HEADER_LIMIT + 6, HEADER_LIMIT + 6, b"\0end", 1], "4 GiB")
    patient.ask([["CONFIG", "SET", "proto-max-bulk-len", LARGEST]])
