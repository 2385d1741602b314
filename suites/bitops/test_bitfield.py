"""BITFIELD GET, SET and INCRBY at every width, across bytes and words, against the model and the native build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites.bitops import model
from suites.bitops.both import EDGE_LENGTHS

if TYPE_CHECKING:
    from harness.resp import Argument
    from suites.bitops.both import Both

WIDTHS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 63, 64]


def _kind(*, signed: bool, width: int) -> str:
    return f"{'i' if signed else 'u'}{width}"


@pytest.fixture(autouse=True)
def _needs_bitfield(both: Both) -> None:
    if both.ask([["COMMAND", "INFO", "BITFIELD"]])[0] in ([None], [[]]):
        pytest.skip("the server has no BITFIELD (it came with Redis 3.2)")


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_get_reads_any_width_at_any_offset(both: Both, signed: bool) -> None:
    widths = [width for width in WIDTHS if signed or width < 64]
    for length in EDGE_LENGTHS[1:20]:
        text = both.some_bytes(length)
        both.ask([["SET", "k", text]])
        for width in widths:
            offsets = [both.random.randrange(length * 8 + 16) for _ in range(6)]
            request: list[Argument] = ["BITFIELD", "k"]
            for offset in offsets:
                request += ["GET", _kind(signed=signed, width=width), offset]
            expected = [model.field_get(text, signed=signed, width=width, offset=offset) for offset in offsets]
            assert both.ask([request]) == [expected], (
                f"{_kind(signed=signed, width=width)} at {offsets} of {length} bytes"
            )


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_set_replaces_just_those_bits(both: Both, signed: bool) -> None:
    for length in EDGE_LENGTHS[:20]:
        text = both.some_bytes(length)
        both.ask([["SET", "k", text] if text else ["DEL", "k"]])
        for width in (width for width in WIDTHS if signed or width < 64):
            offset = both.random.randrange(length * 8 + 16)
            value = model.wrap(both.random.getrandbits(width), signed=signed, width=width)
            replies = both.ask(
                [["BITFIELD", "k", "SET", _kind(signed=signed, width=width), offset, value], ["GET", "k"]]
            )
            old = model.field_get(text, signed=signed, width=width, offset=offset)
            text = model.field_set(text, value, width=width, offset=offset)
            assert replies == [[old], text], f"{_kind(signed=signed, width=width)} at {offset} of {length} bytes"


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_incrby_wraps_as_twos_complement(both: Both, signed: bool) -> None:
    for width in (width for width in WIDTHS if signed or width < 64):
        text = both.some_bytes(24)
        both.ask([["SET", "k", text]])
        for _ in range(4):
            offset = both.random.randrange(24 * 8 - width + 1)
            step = both.random.choice([1, -1, 7, -(1 << 31), (1 << 31), (1 << 62), -(1 << 62)])
            old = model.field_get(text, signed=signed, width=width, offset=offset)
            new = model.wrap(old + step, signed=signed, width=width)
            request = ["BITFIELD", "k", "INCRBY", _kind(signed=signed, width=width), offset, step]
            replies = both.ask([request, ["GET", "k"]])
            text = model.field_set(text, new, width=width, offset=offset)
            assert replies == [[new], text], f"{request} from {old}"
