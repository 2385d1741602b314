"""A module that calls the module API receives the same results on every machine as natively, and those of models."""

from __future__ import annotations

import ctypes
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.core.target_model import ORACLE
from harness.protocol.command_stream import from_text
from suites._shared import one_by_one
from suites._shared.link import await_that
from suites._shared.paired_servers import differing
from suites.moduleapi.module_server import expect, is_lacking, lacking, start

if TYPE_CHECKING:
    from harness.protocol.resp import Client, Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

LEAST, MOST, MOST_NATURAL = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
# Around the limits of 31, 32, 53, 63 and 64 bits.
NUMBERS = [0, 1, -1, *(sign * (1 << bits) + by for bits in (31, 32, 53) for sign in (1, -1) for by in (-1, 0, 1))]
NUMBERS += [LEAST, LEAST + 1, MOST - 1, MOST]
# The path of the module and, in the reply to HELLO, the client's number and the modules, whose order varies.
_OF_ONE_SERVER = re.compile(r"/[^\s']*moduleapi\.so|(?<=b'id'[,:] )\d+|(?<=b'modules').*")


class ApiRequests(Record, frozen=True):
    """requests.toml."""

    calls: str
    keys: str
    streams: str
    server: str


def shown(reply: Reply) -> str:
    """A reply as text, without parts that differ between two servers."""
    return _OF_ONE_SERVER.sub("...", f"error: {reply}" if isinstance(reply, Exception) else repr(reply))


@pytest.mark.parametrize("group", ["calls", "keys", "streams", "server"])
def test_the_api_answers_as_in_the_native_build(
    group: str, with_module: Guest, start_guest: StartGuest, cell: CellSpec
) -> None:
    requests = getattr(read_toml(Path(__file__).with_name("requests.toml"), ApiRequests), group)
    native = start(start_guest, cell, ORACLE)
    ours, theirs = (one_by_one.answers(each, from_text(requests), shown) for each in (with_module, native))
    one_by_one.compare(ours, theirs, cell.runner.target.name)
    # Both servers answer such a request in the same way, and nothing was compared.
    unasked = [one for one in theirs if is_lacking(one.reply)]
    if unasked:
        names = ", ".join(dict.fromkeys(lacking(one.reply) for one in unasked))
        pytest.skip(f"of {len(theirs)} requests, {len(unasked)} need what the tree's redismodule.h lacks: {names}")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_passes_through_calls_and_strings(number: int, client: Client, cell: CellSpec) -> None:
    text, natural = str(number), ctypes.c_uint64(number).value
    expect(client, cell, ("API.REPLY", "integer", number), number)
    expect(client, cell, ("API.CALL", "l", "API.ECHO", number), [b"array", [b"string", text.encode()]])
    opposite = ctypes.c_int64(-number).value
    words = [number, "text", opposite, "\x00\x7f", "\x00\x7f", number, number, number, "\x00\x7f", number]
    mixed: list[Reply] = [[b"string", str(word).encode()] for word in words]
    if number != LEAST:
        expect(client, cell, ("API.MIX", number, "\x00\x7f"), [b"array", *mixed])
    client.command("SET", "counter", number)
    expect(client, cell, ("API.CALL", "v", "INCRBY", "counter", 0), [b"integer", number, text.encode()])
    made = client.command("API.COMPOSE", number, "0.5")
    assert isinstance(made, list)
    assert made[:2] == [text.encode(), str(natural).encode()], made
    assert made[4] == b"%d-%d" % (natural, MOST_NATURAL - natural), made
    assert made[5] == b"-1 %d text %d 0.5 c" % (number, natural), made
    assert made[6] == text.encode() + b"\x00and", made


@pytest.mark.parametrize("number", [*NUMBERS, MOST + 1, MOST_NATURAL, MOST_NATURAL + 1])
def test_a_string_is_read_as_a_number_of_each_kind(number: int, client: Client, cell: CellSpec) -> None:
    real = b"%.17g" % number
    whole = number if LEAST <= number <= MOST else b"ERR"
    natural = str(number).encode() if 0 <= number <= MOST_NATURAL else b"ERR"
    moment: Reply = [natural, b"0"] if natural != b"ERR" else b"ERR"
    reply = client.command("API.CONVERT", number)
    assert isinstance(reply, list)
    expected: list[Reply] = [whole, natural, real, moment]
    actual = [reply[0], reply[1], reply[2], reply[4]]
    if actual != expected:
        message = f"{number} is read as {actual}, expected {expected}"
        raise differing(("API.CONVERT", number), actual, expected, cell.runner.target.name, message, reader="a model")


@pytest.mark.parametrize("milliseconds", [60_000, 1 << 31, (1 << 32) + 60_000, 1 << 40, 1 << 50])
def test_a_timer_tells_what_remains_of_it(milliseconds: int, client: Client, cell: CellSpec) -> None:
    reply = client.command("API.TIMER", milliseconds)
    assert isinstance(reply, list)
    remaining = int(bytes(reply[1]))  # type: ignore[arg-type]
    if not milliseconds - 60_000 < remaining <= milliseconds:
        message = f"immediately after its start, a timer of {milliseconds} ms has {remaining} ms left"
        request = ("API.TIMER", milliseconds)
        raise differing(request, remaining, milliseconds, cell.runner.target.name, message, reader="a model")
    # The timer's data, the data of the earlier timer when it is stopped, and the error for the stopped timer.
    assert [reply[0], *reply[2:]] == [b"OK", 100, b"OK", 200, b"ERR"], reply


def test_timers_fire_in_time(client: Client, with_module: Guest) -> None:
    client.command("API.TICK", 1 << 40)
    # The only other timer never ends. If one event fired both timers, the count would rise to two at once.
    client.command("API.TICK", 1)
    await_that(lambda: client.command("API.TICK", -1) == 1, [with_module], "one timer to fire")
    for milliseconds in (1, 20, 5):
        client.command("API.TICK", milliseconds)
    await_that(lambda: client.command("API.TICK", -1) == 4, [with_module], "three more timers to fire")


def test_a_blocked_client_is_answered_by_a_thread_or_by_its_time_out(client: Client, cell: CellSpec) -> None:
    expect(client, cell, ("API.BLOCK", 0, 10, LEAST), LEAST)
    expect(client, cell, ("GET", "waited"), str(LEAST).encode())
    # More milliseconds than 32 bits hold. Truncated to 32 bits, the timeout would be 0.
    expect(client, cell, ("API.BLOCK", 1 << 32, 200, MOST), MOST)
    expect(client, cell, ("API.BLOCK", 10, 1500, 1), b"timed out")


def test_a_dictionary_is_in_the_order_of_bytes(client: Client, cell: CellSpec) -> None:
    keys = [b"", b"\x00", b"a", b"a\x00", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"x" * 300]
    position = {key: at for at, key in enumerate(keys, 3)}
    for operator, seek in itertools.product(["^", ">=", ">", "=="], [b"a", b"\x80", b"\xfe", b""]):
        onward = sorted(key for key in keys if operator == "^" or key > seek or (operator != ">" and key == seek))
        if operator == "==" and seek not in keys:
            onward = []
        reply = client.command("API.DICT", operator, seek, *keys)
        assert isinstance(reply, list)
        expected: list[Reply] = list(itertools.chain.from_iterable((key, position[key]) for key in onward))
        if reply[:2] != [str(len(keys)).encode(), expected]:
            message = f"keys {operator} {seek!r}: {reply[1]!r:.300}, the model says {expected!r:.300}"
            raise differing(("API.DICT", operator, seek), reply[1], expected, cell.runner.target.name, message)
        assert reply[3:] == [-1, -1, 1], "replaced by -1, deleted, and then missing"


def test_a_scan_tells_every_key_and_every_element(client: Client) -> None:
    fields = {b"%d" % (number << 33): b"%d" % -(number << 33) for number in range(1000)}
    for number in range(1000):
        client.command("SET", b"key:\x80:%d" % number, number)
    client.command("HSET", "hash", *itertools.chain.from_iterable(fields.items()))
    client.command("SADD", "set", *range(1 << 40, (1 << 40) + 100))
    keys = client.command("API.SCAN")
    assert isinstance(keys, list)
    assert set(keys) == {b"hash", b"set", *(b"key:\x80:%d" % number for number in range(1000))}
    found: Any = client.command("API.SCAN", "hash")
    assert dict(zip(found[::2], found[1::2], strict=True)) == fields
    members: Any = client.command("API.SCAN", "set")
    assert sorted(map(int, members[::2])) == list(range(1 << 40, (1 << 40) + 100))


CONFIGURED: list[tuple[str, int | str | bytes, int | str | bytes | None]] = [
    ("any", LEAST, LEAST),
    ("any", MOST, MOST),
    ("any", -(1 << 32) - 1, -(1 << 32) - 1),
    ("any", MOST + 1, None),
    ("few", 1 << 32, 1 << 32),
    ("few", (1 << 32) - 1, None),
    ("few", 1 << 40, 1 << 40),
    ("few", (1 << 40) + 1, None),
    ("memory", "5gb", 5 << 30),
    ("memory", MOST, MOST),
    ("memory", "-1", None),
    ("flag", "no", "no"),
    ("flag", "maybe", None),
    ("one", "most", "most"),
    ("one", "least", "least"),
    ("one", "other", None),
    ("several", "first last", "first last"),
    ("several", "middle", "middle"),
    ("text", b"\x80\x00text", b"\x80\x00text"),
]
DEFAULTS: dict[str, int | str] = {
    "any": -(1 << 32) - 1,
    "few": 5 * 10**9,
    "memory": 1 << 33,
    "flag": "yes",
    "one": "least",
}
DEFAULTS |= {"several": "first", "text": "default text"}


def test_a_modules_parameters_have_their_defaults_and_limits(client: Client, cell: CellSpec) -> None:
    def shown_value(name: str, value: int | str | bytes) -> list[Reply]:
        return [f"moduleapi.{name}".encode(), value if isinstance(value, bytes) else str(value).encode()]

    for name, default in DEFAULTS.items():
        expect(client, cell, ("CONFIG", "GET", f"moduleapi.{name}"), shown_value(name, default))
    for name, value, kept in CONFIGURED:
        reply = client.pipeline([("CONFIG", "SET", f"moduleapi.{name}", value)])[0]
        assert (reply == b"OK") == (kept is not None), f"{name} {value!r}: {reply!r}"
        if kept is not None:
            expect(client, cell, ("CONFIG", "GET", f"moduleapi.{name}"), shown_value(name, kept))


def test_clocks_advance_and_random_bytes_differ(client: Client) -> None:
    seconds: Any = client.command("TIME")
    reply: Any = client.command("API.CLOCK")
    assert abs(int(seconds[0]) * 1000 - reply[0]) < 60_000, f"milliseconds {reply[0]}, seconds {seconds[0]}"
    assert 2000 <= reply[1] < 60_000_000, f"{reply[1]} microseconds passed in 2 ms"
    for microseconds in reply[2:]:
        assert abs(int(seconds[0]) * 1_000_000 - microseconds) < 60_000_000, f"since 1970 {microseconds} microseconds"
    drawn: Any = [client.command("API.RANDOM") for _ in range(2)]
    assert drawn[0][0] != drawn[1][0]
    assert drawn[0][1] != drawn[1][1]
    assert all(re.fullmatch(rb"[0-9a-f]{32}", digits) for _, digits in drawn)


# This test comes last because some servers fail it, and the search for a planted bug ends at the first failure.
def test_a_negative_number_is_no_unsigned_one(client: Client) -> None:
    for number in (-1, LEAST, LEAST - 1, -MOST_NATURAL):
        reply: Any = client.command("API.CONVERT", number)
        assert reply[1] == b"ERR", f"{number} is read as the unsigned number {reply[1]!r}"


def test_a_stream_is_trimmed_to_a_length_beyond_32_bits(client: Client, cell: CellSpec) -> None:
    for number in (1, 2):
        client.command("XADD", "stream", number, "field", number)
    expect(client, cell, ("API.STREAM.CUT", "stream", "LENGTH", 1 << 32), [0, b"0"])
