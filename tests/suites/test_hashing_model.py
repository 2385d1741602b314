"""The model of HyperLogLog's registers has known values, and reads both forms."""

from __future__ import annotations

import pytest

from harness.protocol.resp import Client
from suites._shared.paired_servers import OFFSETS, at_every_offset, moved_on
from suites.hashing import model

HEADER = b"HYLL\1" + bytes(11)
SPARSE_END = bytes([0x40 | 0x3F, 0xFF])
"""16384 zeros."""


def test_an_empty_sparse_form_has_no_register() -> None:
    assert model.registers(HEADER + SPARSE_END) == {}


def test_runs_of_zeros_and_values_are_decoded() -> None:
    # 3 zeros, two registers with the value 5, and then 16384 - 5 zeros.
    rest = 16384 - 5 - 1
    code = bytes([3 - 1, 0x80 | (5 - 1) << 2 | (2 - 1), 0x40 | rest >> 8, rest & 255])
    assert model.registers(HEADER + code) == {3: 5, 4: 5}


def test_the_dense_form_has_six_bits_for_each_register() -> None:
    packed = bytearray(16384 * 6 // 8)
    packed[0] = 0b01_000011  # register 0 is 3; the low two bits of register 1 are 01
    packed[1] = 0b0000_0001  # its high four bits are 0001: 5 in all
    assert model.registers(b"HYLL\0" + bytes(11) + bytes(packed)) == {0: 3, 1: 5}


@pytest.mark.parametrize("text", [b"", b"HYLM" + bytes(12), b"HYLL\2" + bytes(11), HEADER, HEADER + b"\x05"])
def test_a_string_that_is_not_a_hyperloglog_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        model.registers(text)


def test_each_request_is_placed_one_byte_later() -> None:
    requests = moved_on([["GET", "k" * length] for length in range(40)])
    starts, position = [], 0
    for number, request in enumerate(requests):
        starts += [position % OFFSETS] if number % 2 else []
        position += len(Client.pack([request]))
    assert starts == [number % OFFSETS for number in range(40)]


@pytest.mark.parametrize("size", [1, 9, 10, 99, 100, 3000])
def test_one_request_occurs_at_every_offset(size: int) -> None:
    requests = at_every_offset(["SET", "k", "v" * size])
    assert len(requests) == 2 * OFFSETS
    assert {tuple(request) for request in requests[1::2]} == {("SET", "k", "v" * size)}


def test_a_request_with_its_own_buffer_is_sent_once() -> None:
    assert len(at_every_offset(["SET", "k", "v" * 40_000])) == 2
