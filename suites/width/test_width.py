"""Every machine replies like a 64-bit machine, and as the documentation specifies."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.protocol import allowed_refusals
from harness.protocol.command_stream import command, line_of
from harness.protocol.resp import Client, info_fields
from suites._shared import long_strings
from suites._shared.checksums import sealed
from suites._shared.long_strings import LARGEST
from suites._shared.needs import require
from suites._shared.paired_servers import differing
from suites.width import requests

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from harness.protocol.allowed_refusals import Release
    from harness.protocol.resp import Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

BATCH = 300
SHOWN = 6
LONG = 64 << 20
"""The length of a value that passes a connection until 2^32 bytes have passed."""
OTHER_BYTES = 1 << 16
"""More than a few other requests and their replies."""


@pytest.mark.parametrize("group", requests.groups())
def test_answers_do_not_depend_on_the_width_of_the_machine(
    both: PairedServers, group: str, cell: CellSpec, release: Release
) -> None:
    """The exceptions are the refusals in harness/protocol/refusals.toml, each of which must occur."""
    chosen = requests.groups()[group]
    width_bits = cell.runner.target.width_bits
    wrong, taken = [], []
    known = False
    for at in range(0, len(chosen), BATCH):
        some = chosen[at : at + BATCH]
        for request, guest_reply, native_reply in zip(
            some, both.guest.pipeline(some), both.oracle.pipeline(some), strict=True
        ):
            one = command(*request)
            errors = error_of(guest_reply), error_of(native_reply)
            known |= not (errors[1] or "").startswith("ERR unknown command")
            if errors[0] is None and allowed_refusals.due(one, release, width_bits):
                taken.append(line_of(one))
            if str(guest_reply) != str(native_reply) and not allowed_refusals.refused(
                one, *errors, release, width_bits
            ):
                wrong.append((request, guest_reply, native_reply))
    if wrong:
        lines = [
            f"{request!s:.100}: {guest_reply!s:.100}, on 64 bits {native_reply!s:.100}"
            for request, guest_reply, native_reply in wrong
        ]
        raise differing(*wrong[0], both.target, f"{len(wrong)} answers differ: " + "; ".join(lines[:SHOWN]))
    if not known:
        pytest.skip("the server knows none of the commands")
    assert not taken, f"listed in harness/protocol/refusals.toml, and not refused: {'; '.join(taken[:SHOWN])}"


def error_of(reply: Reply) -> str | None:
    """An error reply's text."""
    return str(reply) if isinstance(reply, hiredis.ReplyError) else None


def test_an_index_far_beyond_a_list_is_refused_and_changes_nothing(
    both: PairedServers, cell: CellSpec, release: Release
) -> None:
    """The reply does not depend on the width. The test does not compare it with the oracle's, because the oracle may
    also truncate the index.
    """
    elements = [b"a", b"b", b"c"]
    both.ask([("RPUSH", "l", *elements)])
    for index in requests.SIGNED:
        if -3 <= index < 3:
            continue
        request = ("LSET", "l", index, "x")
        reply, stored = both.guest.pipeline([request, ("LRANGE", "l", 0, -1)])
        text = error_of(reply)
        right = text in {"ERR index out of range", "ERR value is not an integer or out of range"}
        if not right and not allowed_refusals.refused(
            command(*request), text, None, release, cell.runner.target.width_bits
        ):
            raise differing(request, reply, b"ERR index out of range", both.target, reader="a model")
        if stored != elements:
            raise differing(("LRANGE", "l", 0, -1), stored, elements, both.target, reader="a model")  # type: ignore[arg-type]


def test_a_set_bit_is_where_it_was_set_beyond_31_bits_of_offset(both: PairedServers) -> None:
    both.expect([("SETBIT", "k", (1 << 27) + 5, 1), ("STRLEN", "k")], [0, (1 << 24) + 1], "a bit of the 17th MiB")
    last = (1 << 27) + 5
    both.expect([("GETBIT", "k", last), ("BITCOUNT", "k"), ("BITPOS", "k", 1)], [1, 1, last], "the same bit")
    both.expect([("GETBIT", "k", (1 << 32) - 1), ("DEL", "k")], [0, 1], "past the end")


def test_numbers_of_bits_up_to_2_to_the_32nd(guest: Guest, oracle: Guest, cell: CellSpec) -> None:
    """The longest string without configuration, which old releases lack: counts and positions beyond 31 bits, the count
    of all bits, and the position after the last one.
    """
    long_strings.need_memory(2 * LARGEST)
    with long_strings.one_at_a_time(cell), long_strings.patient(guest, oracle, cell) as pair:
        bits, what = LARGEST * 8, "2^32 bits"
        pair.expect([["SETBIT", "k", bits - 1, 1], ["STRLEN", "k"]], [0, LARGEST], what)
        pair.expect([["GETBIT", "k", bits - 1], ["BITPOS", "k", 1], ["BITCOUNT", "k"]], [1, bits - 1, 1], what)
        pair.expect([["SETBIT", "k", bits - 1, 0], ["BITOP", "NOT", "n", "k"]], [1, LARGEST], what)
        for length in (LARGEST // 2 - 1, LARGEST // 2, 275 << 20, LARGEST):
            pair.expect([["BITCOUNT", "n", 0, length - 1]], [length * 8], f"bits of {length} bytes")
        positions = [["BITPOS", "n", 0], ["BITPOS", "n", 1, LARGEST - 1], ["BITPOS", "n", 0, 0, -1]]
        pair.expect(positions, [bits, bits - 8, -1], what)
        if not cell.lacks("command bitfield"):
            field = [["BITFIELD", "k", "SET", "u8", bits - 8, 129, "GET", "i16", bits - 16], ["BITPOS", "k", 1]]
            pair.expect(field, [[0, 129], bits - 8], what)


def test_numbers_of_bits_beyond_32_bits(guest: Guest, oracle: Guest, cell: CellSpec) -> None:
    """A string of half a GiB has 2^32 bits: offsets and counts of bits need more than the `size_t` of a 32-bit machine
    (redis 6251c3e66, redis #9191).
    """
    long_strings.need_memory(2 * LARGEST)
    with long_strings.one_at_a_time(cell), long_strings.patient(guest, oracle, cell) as pair:
        first, bits = 2**32, (LARGEST + 2) * 8
        if pair.ask([["CONFIG", "SET", "proto-max-bulk-len", 2 * LARGEST]])[0] != b"OK":
            pytest.skip("the server's longest string cannot be configured")
        try:
            if pair.ask([["SETBIT", "k", first + 11, 1]])[0] != 0:
                pytest.skip("the server's bits end at 2^32, whatever its longest string")
            what = "bits beyond 2^32"
            pair.expect([["STRLEN", "k"], ["GETBIT", "k", 11]], [LARGEST + 2, 0], what)
            pair.expect([["GETBIT", "k", first + 11], ["BITPOS", "k", 1]], [1, first + 11], what)
            field = [["BITFIELD", "k", "GET", "u8", first + 8], ["BITFIELD", "k", "SET", "u8", first, 255]]
            pair.expect(field, [[16], [0]], what)
            counts = [["BITCOUNT", "k"], ["BITCOUNT", "k", LARGEST, -1], ["BITCOUNT", "k", 0, LARGEST - 1]]
            pair.expect(counts, [9, 9, 0], what)
            inverted = [["BITOP", "NOT", "n", "k"], ["BITCOUNT", "n"], ["BITPOS", "n", 0], ["GETRANGE", "n", -3, -1]]
            pair.expect(inverted, [LARGEST + 2, bits - 9, first, b"\xff\0\xef"], what)
            pair.expect([["BITPOS", "n", 0, LARGEST + 1], ["BITPOS", "n", 1, 3]], [first + 11, 24], what)
        finally:
            pair.ask([["FLUSHALL"], ["CONFIG", "SET", "proto-max-bulk-len", LARGEST]])


def test_bytes_of_replies_are_counted_beyond_32_bits(guest: Guest, cell: CellSpec) -> None:
    """INFO, and where clients have counts of their own, CLIENT LIST. The replies together exceed 2^32 bytes."""
    require(cell, "info total_net_output_bytes")
    buffer = bytearray(1 << 20)
    whole = len(b"$%d\r\n" % LONG) + LONG + 2
    count = (1 << 32) // whole + 2
    long_strings.need_memory(LONG)
    with long_strings.one_at_a_time(cell), talking(guest) as (asking, reading):
        asking.pipeline([("SETRANGE", "k", LONG - 1, b"\0"), ("CONFIG", "RESETSTAT")])
        for _ in range(count):
            reading.sendall(b"GET k\r\n")
            left = whole
            while left:
                received = reading.recv_into(buffer, min(left, len(buffer)))
                assert received, f"the server closed the connection, {left} bytes before the end of a reply"
                left -= received
        counted = bytes_counted(asking, "output", "out")
    wrong = {where: number for where, number in counted.items() if not 0 <= number - count * whole < OTHER_BYTES}
    assert not wrong, f"{count * whole} bytes were sent, and {wrong} counted"


def test_bytes_of_requests_are_counted_beyond_32_bits(guest: Guest, cell: CellSpec) -> None:
    require(cell, "info total_net_input_bytes")
    request = Client.pack([("SET", "k", bytes(LONG))])
    count = (1 << 32) // len(request) + 2
    long_strings.need_memory(LONG)
    with long_strings.one_at_a_time(cell), talking(guest) as (asking, writing):
        asking.command("CONFIG", "RESETSTAT")
        for _ in range(count):
            # Unlike sendall, this does not record the bytes.
            left = memoryview(request)
            while left:
                left = left[writing.send(left) :]
            assert writing.recv(100) == b"+OK\r\n"
        counted = bytes_counted(asking, "input", "in")
    sent = count * len(request)
    wrong = {where: number for where, number in counted.items() if not 0 <= number - sent < OTHER_BYTES}
    assert not wrong, f"{sent} bytes were received, and {wrong} counted"


@contextlib.contextmanager
def talking(guest: Guest) -> Iterator[tuple[Client, socket.socket]]:
    """A client, and a connection that moves gigabytes. The key `k` is removed afterwards."""
    patience = long_strings.PATIENCE * guest.deadline_seconds
    with (
        guest.client(deadline_seconds=patience) as asking,
        guest.access.connection(deadline_seconds=patience) as moving,
    ):
        yield asking, moving
        asking.command("DEL", "k")


def bytes_counted(client: Client, direction: str, suffix: str) -> dict[str, int]:
    """The bytes that INFO counts and, if clients have counts of their own, the largest of these."""
    counted = {"INFO": int(info_fields(client.command("INFO", "stats"))[f"total_net_{direction}_bytes"])}
    clients = bytes(client.command("CLIENT", "LIST")).split()  # type: ignore[arg-type]
    key = f"tot-net-{suffix}=".encode()
    by_client = [int(word.partition(b"=")[2]) for word in clients if word.startswith(key)]
    return counted | ({"CLIENT LIST": max(by_client)} if by_client else {})


def test_the_clock_is_the_hosts_in_seconds_and_microseconds(both: PairedServers) -> None:
    for client in (both.guest, both.oracle):
        before = time.time()
        seconds, microseconds = (int(word) for word in client.command("TIME"))  # type: ignore[union-attr, arg-type]
        assert before - 2 <= seconds + microseconds / 1e6 <= time.time() + 2
        assert 0 <= microseconds < 1_000_000
        assert abs(client.command("LASTSAVE") - before) < 3600  # type: ignore[operator]


@pytest.mark.parametrize("milliseconds", [(1 << 31) + 5, (1 << 32) + 5, (1 << 41) + 5, (1 << 44) + 5])
def test_time_that_is_left_is_told_whole(both: PairedServers, milliseconds: int) -> None:
    for client in (both.guest, both.oracle):
        client.command("SET", "k", "v")
        started = time.monotonic()
        client.command("PEXPIRE", "k", milliseconds)
        left = client.command("PTTL", "k")
        passed = (time.monotonic() - started) * 1000 + 1
        assert milliseconds - passed <= left <= milliseconds  # type: ignore[operator]
        assert abs(client.command("TTL", "k") - milliseconds / 1000) <= passed / 1000 + 1  # type: ignore[operator]


def _dumped(client: Client) -> Reply:
    """The payload of a string whose key is then gone."""
    return client.pipeline([("SET", "k", "v"), ("DUMP", "k"), ("DEL", "k")])[1]


def test_an_idle_time_and_a_frequency_that_were_restored_are_told_again(both: PairedServers, cell: CellSpec) -> None:
    require(cell, "form RESTORE IDLETIME")
    # Less than the 194 days after which the 24-bit clock wraps (redis.conf, maxmemory-samples). Before 7.0, a key that
    # was idle when the clock last wrapped counts as idle for half of that time. This shows only for some values of the
    # clock, so a server cannot be asked.
    idle = 10_000_000
    least = idle if cell.version >= (7,) else 1 << 23
    for client in (both.guest, both.oracle):
        payload = _dumped(client)
        client.command("RESTORE", "k", 0, payload, "IDLETIME", idle)  # type: ignore[arg-type]
        assert least <= client.command("OBJECT", "IDLETIME", "k") <= idle + 60  # type: ignore[operator]


def test_a_time_to_live_of_restore_is_kept(both: PairedServers) -> None:
    """Without an option of RESTORE, which old releases lack."""
    milliseconds = (1 << 40) + 0x1_0203_0405
    for client in (both.guest, both.oracle):
        payload = _dumped(client)
        started = time.monotonic()
        assert client.command("RESTORE", "k", milliseconds, payload) == b"OK"  # type: ignore[arg-type]
        left = client.command("PTTL", "k")
        passed = (time.monotonic() - started) * 1000 + 1
        assert milliseconds - passed <= left <= milliseconds  # type: ignore[operator]


def test_an_absolute_time_of_restore_is_kept_to_the_millisecond(both: PairedServers, cell: CellSpec) -> None:
    require(cell, "command pexpiretime", "form RESTORE ABSTTL")
    expires = (1 << 43) + 0x1_0203_0405
    for client in (both.guest, both.oracle):
        payload = _dumped(client)
        client.command("RESTORE", "k", expires, payload, "ABSTTL")  # type: ignore[arg-type]
        assert client.command("PEXPIRETIME", "k") == expires


@pytest.mark.parametrize("length", [(1 << 32) - 1, (1 << 32) - 16, (1 << 62) + 3], ids=["all-ones", "sum", "cut"])
@pytest.mark.parametrize("before", [b"\0", b"\1\1"], ids=["string", "list"])
def test_a_payload_with_a_string_longer_than_it_is_refused(
    both: PairedServers, cell: CellSpec, before: bytes, length: int
) -> None:
    """The payload ends after three bytes. In 32 bits such a length, or its sum with a header's size, wraps to a small
    number.
    """
    payload = longer_than_it_is(both, cell, before, length)
    both.expect([("DEL", "k"), ("RESTORE", "k", 0, payload)], [1, b"error: ERR Bad data format"], "a string too long")


def test_a_payload_with_a_string_as_long_as_64_bits_can_say_is_refused(both: PairedServers, cell: CellSpec) -> None:
    """The same sum wraps in a 64-bit `size_t`. The oracle does not receive the payload, because it would crash."""
    payload = longer_than_it_is(both, cell, b"\0", (1 << 64) - 16)
    (reply,) = both.guest.pipeline([("RESTORE", "k", 0, payload, "REPLACE")])
    assert str(reply) == "ERR Bad data format"


def longer_than_it_is(both: PairedServers, cell: CellSpec, before: bytes, length: int) -> bytes:
    """A payload with the first bytes of a type, then a string of three bytes whose length field is larger."""
    require(cell, "option sanitize-dump-payload")
    both.ask([("SET", "k", "v")])
    (payload,) = both.ask([("DUMP", "k")])
    assert isinstance(payload, bytes)
    encoded_length = b"\x80" + length.to_bytes(4) if length < 1 << 32 else b"\x81" + length.to_bytes(8)
    return sealed(before + encoded_length + b"abc" + payload[-10:])


def test_a_stream_keeps_what_a_limit_beyond_32_bits_lets_it_keep(both: PairedServers, cell: CellSpec) -> None:
    """XTRIM and XADD with MAXLEN: a limit of 2^32 must not become zero."""
    require(cell, "command xadd")
    for limit in ((1 << 32) - 1, 1 << 32, (1 << 32) + 5, 1 << 40, (1 << 63) - 1):
        what = f"a limit of {limit}"
        both.expect([("DEL", "s"), ("XADD", "s", "1-1", "f", 1), ("XTRIM", "s", "MAXLEN", limit)], [b"1-1", 0], what)
        both.expect([("XADD", "s", "MAXLEN", limit, "2-1", "f", 1), ("XLEN", "s")], [b"2-1", 2], what)


def test_scripts_pack_and_unpack_integers_of_8_bytes(both: PairedServers) -> None:
    """Lua's struct library: `i8` is a signed integer of 8 bytes on every machine."""
    for number in ((1 << 31) - 1, 1 << 31, -(1 << 31) - 1, 1 << 32, 1 << 52):
        packed = number.to_bytes(8, "big", signed=True)
        script = "return struct.pack('>i8', tonumber(ARGV[1]))"
        both.expect([("EVAL", script, 0, number)], [packed], f"struct.pack of {number}")
        script = "return (struct.unpack('>i8', ARGV[1]))"
        both.expect([("EVAL", script, 0, packed)], [number], f"struct.unpack of {number}")
