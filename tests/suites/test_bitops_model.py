"""The model of the bit commands agrees with strings of 0 and 1, and obeys algebraic laws."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


def load_model() -> Any:
    specification = importlib.util.spec_from_file_location("bitops_model", ROOT / "suites" / "_shared" / "bit_model.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


model = load_model()
TEXTS = st.binary(max_size=40)
FIELDS = st.tuples(st.integers(1, 64), st.integers(0, 200))
NAIVE: dict[str, Callable[[str, str], str]] = {
    "AND": lambda a, b: "1" if a == b == "1" else "0",
    "OR": lambda a, b: "0" if a == b == "0" else "1",
    "XOR": lambda a, b: "0" if a == b else "1",
}


def bits(text: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in text)


def from_bits(digits: str) -> bytes:
    return bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8))


@pytest.mark.parametrize("operation", list(NAIVE))
@given(one=TEXTS, other=TEXTS)
def test_bitop_is_the_digit_by_digit_operation_on_padded_strings(operation: str, one: bytes, other: bytes) -> None:
    longest = max(len(one), len(other))
    pairs = zip(bits(one.ljust(longest, b"\0")), bits(other.ljust(longest, b"\0")), strict=True)
    assert from_bits("".join(NAIVE[operation](a, b) for a, b in pairs)) == model.bitop(operation, [one, other])


@pytest.mark.parametrize("operation", list(NAIVE))
@given(operands=st.lists(TEXTS, min_size=1, max_size=5), data=st.data())
def test_bitop_does_not_depend_on_the_order_of_its_operands(
    operation: str, operands: list[bytes], data: st.DataObject
) -> None:
    assert model.bitop(operation, operands) == model.bitop(operation, data.draw(st.permutations(operands)))


@given(TEXTS)
def test_not_twice_is_identity_and_once_is_xor_with_ones(text: bytes) -> None:
    inverted = model.bitop("NOT", [text])
    assert text == model.bitop("NOT", [inverted])
    assert inverted == model.bitop("XOR", [text, b"\xff" * len(text)])


@given(text=TEXTS, start=st.integers(-50, 50), end=st.integers(-50, 50))
def test_bitcount_counts_the_digits_of_the_slice(text: bytes, start: int, end: int) -> None:
    chosen = [
        byte
        for index, byte in enumerate(text)
        if index >= max(0, start + len(text) if start < 0 else start)
        and index <= max(0, end + len(text) if end < 0 else end)
    ]
    assert bits(bytes(chosen)).count("1") == model.bitcount(text, start, end)


@given(text=TEXTS, bit=st.integers(0, 1))
def test_bitpos_is_the_first_index_in_the_string_of_digits(text: bytes, bit: int) -> None:
    found = bits(text).find(str(bit))
    if found < 0 and bit == 0 and text:
        found = len(text) * 8
    assert found == model.bitpos(text, bit)


@given(text=st.binary(min_size=1, max_size=40), bit=st.integers(0, 1), data=st.data())
def test_bitpos_in_a_range_is_the_first_index_in_its_digits(text: bytes, bit: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, len(text) + 3))
    found = bits(text)[: (end + 1) * 8].find(str(bit), start * 8)
    assert found == model.bitpos(text, bit, start, end)


@given(text=TEXTS, offset=st.integers(0, 400), bit=st.integers(0, 1))
def test_a_set_bit_is_read_back_and_no_other_bit_changes(text: bytes, offset: int, bit: int) -> None:
    changed = model.setbit(text, offset, bit)
    length = max(len(text), offset // 8 + 1)
    digits = bits(text.ljust(length, b"\0"))
    assert digits[:offset] + str(bit) + digits[offset + 1 :] == bits(changed)
    assert bit == model.getbit(changed, offset)


@given(text=TEXTS, offset=st.integers(0, 400))
def test_getbit_is_the_digit_and_zero_beyond_the_end(text: bytes, offset: int) -> None:
    assert int((bits(text) + "0" * 401)[offset]) == model.getbit(text, offset)


@given(text=TEXTS, field=FIELDS, value=st.integers(-(2**63), 2**64 - 1))
def test_a_set_field_is_read_back_modulo_its_width_and_no_other_bit_changes(
    text: bytes, field: tuple[int, int], value: int
) -> None:
    width, offset = field
    changed = model.field_set(text, value, width=width, offset=offset)
    assert value % 2**width == model.field_get(changed, signed=False, width=width, offset=offset)
    before, after = bits(text.ljust(len(changed), b"\0")), bits(changed)
    assert before[:offset] == after[:offset]
    assert before[offset + width :] == after[offset + width :]


@given(text=TEXTS, field=FIELDS)
def test_a_field_is_its_digits_read_as_a_number(text: bytes, field: tuple[int, int]) -> None:
    width, offset = field
    digits = (bits(text) + "0" * 300)[offset : offset + width]
    unsigned = int(digits, 2)
    signed = unsigned - 2**width if digits[0] == "1" else unsigned
    assert unsigned == model.field_get(text, signed=False, width=width, offset=offset)
    assert signed == model.field_get(text, signed=True, width=width, offset=offset)


@given(value=st.integers(-(2**70), 2**70), width=st.integers(1, 64), signed=st.booleans())
def test_wrapping_stays_in_range_and_is_congruent(value: int, width: int, *, signed: bool) -> None:
    wrapped = model.wrap(value, signed=signed, width=width)
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    assert low <= wrapped <= high
    assert (wrapped - value) % 2**width == 0
