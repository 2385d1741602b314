"""BITFIELD GET, SET and INCRBY at every width, across bytes and words, against the model and the native build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import bit_model
from suites._shared.paired_servers import EDGE_LENGTHS

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers

WIDTHS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 63, 64]
STEPS = [1, -1, 7, -(1 << 31), 1 << 31, 1 << 62, -(1 << 62)]
# 64 unsigned bits do not exist: a RESP integer is signed.
KINDS = [
    (f"{letter}{width}", letter == "i", width) for letter in "iu" for width in WIDTHS if letter == "i" or width < 64
]

every_kind = pytest.mark.parametrize(("kind", "signed", "width"), KINDS, ids=[kind for kind, _, _ in KINDS])


@pytest.fixture(autouse=True)
def _needs_bitfield(both: PairedServers) -> None:
    if not both.has("BITFIELD"):
        pytest.skip("the server has no BITFIELD (it came with Redis 3.2)")


@every_kind
def test_get_reads_at_any_offset(both: PairedServers, kind: str, signed: bool, width: int) -> None:
    for length in EDGE_LENGTHS[1:20]:
        text = both.some_bytes(length)
        offsets = [both.random.randrange(length * 8 + 16) for _ in range(6)]
        request: list[Any] = ["BITFIELD", "k"]
        for offset in offsets:
            request += ["GET", kind, offset]
        expected = [bit_model.field_get(text, signed=signed, width=width, offset=offset) for offset in offsets]
        both.expect([["SET", "k", text], request], [expected], f"{length} bytes")


@every_kind
def test_set_replaces_just_those_bits(both: PairedServers, kind: str, signed: bool, width: int) -> None:
    for length in EDGE_LENGTHS[:20]:
        text = both.some_bytes(length)
        offset = both.random.randrange(length * 8 + 16)
        value = bit_model.wrap(both.random.getrandbits(width), signed=signed, width=width)
        old = bit_model.field_get(text, signed=signed, width=width, offset=offset)
        new = bit_model.field_set(text, value, width=width, offset=offset)
        requests = [["SET", "k", text], ["BITFIELD", "k", "SET", kind, offset, value], ["GET", "k"]]
        both.expect(requests, [[old], new], f"{length} bytes")


@every_kind
def test_incrby_wraps_as_twos_complement(both: PairedServers, kind: str, signed: bool, width: int) -> None:
    for step in STEPS:
        text = both.some_bytes(24)
        offset = both.random.randrange(24 * 8 - width + 1)
        old = bit_model.field_get(text, signed=signed, width=width, offset=offset)
        new = bit_model.wrap(old + step, signed=signed, width=width)
        requests = [["SET", "k", text], ["BITFIELD", "k", "INCRBY", kind, offset, step], ["GET", "k"]]
        both.expect(requests, [[new], bit_model.field_set(text, new, width=width, offset=offset)], f"from {old}")
