"""Strings with every size of header survive DUMP and RESTORE, on the same server and on the other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.paired_servers import LENGTHS_BY_HEADER

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

every_header = pytest.mark.parametrize("lengths", LENGTHS_BY_HEADER.values(), ids=LENGTHS_BY_HEADER)
FORMS = ["random", "compressible", "number"]


def a_value(both: PairedServers, form: str, length: int) -> bytes:
    """A value of that length: incompressible, compressible, or digits."""
    if form == "random":
        return both.some_bytes(length)
    if form == "compressible":
        return (both.some_bytes(5) * length)[:length]
    return b"1" * length


@every_header
@pytest.mark.parametrize("form", FORMS)
def test_a_string_is_restored_by_either_server(both: PairedServers, form: str, lengths: list[int]) -> None:
    """The payload has the same format on every machine, and a CRC covers it."""
    for length in lengths:
        text = a_value(both, form, length)
        _passes_over(both, [["SET", "k", text]], ["GET", "k"], text)


@every_header
def test_elements_are_restored_by_either_server(both: PairedServers, lengths: list[int]) -> None:
    for length in lengths:
        text = both.some_bytes(length)
        _passes_over(both, [["RPUSH", "k", text, b"1" * length]], ["LRANGE", "k", 0, -1], [text, b"1" * length])
        _passes_over(both, [["HSET", "k", text, b"v" + text]], ["HGETALL", "k"], [text, b"v" + text])
        _passes_over(both, [["ZADD", "k", length / 8, text]], ["ZRANGE", "k", 0, -1], [text])


@pytest.mark.parametrize("edge", [2**7, 2**12, 2**15, 2**16, 2**23, 2**24, 2**31, 2**32, 2**63 - 1])
def test_integers_are_restored_by_either_server(both: PairedServers, edge: int) -> None:
    """Compact encodings store them in 7 to 64 bits."""
    numbers = [number for number in (edge - 1, edge, edge + 1, -edge, -edge - 1, -edge + 1) if number < 2**63]
    texts = [b"%d" % number for number in dict.fromkeys(numbers)]
    in_order = sorted(texts, key=int)
    _passes_over(both, [["RPUSH", "k", *texts]], ["LRANGE", "k", 0, -1], texts)
    _passes_over(both, [["SADD", "k", *texts]], ["SMEMBERS", "k"], in_order)
    _passes_over(both, [["SET", "k", edge]], ["GET", "k"], b"%d" % edge)


def _passes_over(both: PairedServers, make: list[list[Any]], read: list[Any], expected: Any) -> None:
    both.expect([["DEL", "k"], *make, read], [expected], "made")
    payloads = [server.command("DUMP", "k") for server in (both.guest, both.oracle)]
    for whose, payload in zip(("the guest's own", "the native build's"), payloads, strict=True):
        what = f"{make!r:.100} restored from {whose} payload"
        both.expect([["DEL", "k"], ["RESTORE", "k", 0, payload], read], [b"OK", expected], what)
