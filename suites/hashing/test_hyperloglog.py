"""HyperLogLog counts an element in the register that its hash selects, on every machine and at every offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites.hashing import model
from suites.hashing.test_keys import every_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suites._shared.paired_servers import PairedServers

DENSE = 2000
"""Number of elements that no longer fit the sparse form (hll-sparse-max-bytes, 3000)."""
TOLERANCE = 0.05
"""Six times the standard error of 16384 registers, 0.81 %."""


@pytest.fixture(autouse=True)
def _needs_hyperloglog(both: PairedServers) -> None:
    if not both.has("PFADD"):
        pytest.skip("the server has no HyperLogLog (it came with Redis 2.8.9)")


def counted(elements: Sequence[bytes]) -> dict[int, int]:
    """The registers that the model expects."""
    expected: dict[int, int] = {}
    for index, value in map(model.register_of, elements):
        expected[index] = max(value, expected.get(index, 0))
    return expected


def stored(both: PairedServers, key: str) -> dict[int, int]:
    """The registers on guest and oracle, whose strings must be equal byte for byte."""
    (text,) = both.ask([["GET", key]])
    assert isinstance(text, bytes)
    return model.registers(text)


@every_length
def test_an_element_counts_once_at_whatever_offset_it_lies(both: PairedServers, lengths: Sequence[int]) -> None:
    for length in lengths:
        element = both.some_bytes(length)
        both.expect([["DEL", "p"], ["PFADD", "p", element]], [1], f"element of {length} bytes")
        assert stored(both, "p") == counted([element]), f"element of {length} bytes: {element.hex()}"
        both.expect_at_every_offset(["PFADD", "p", element], 0, f"element of {length} bytes again")
        both.expect([["PFCOUNT", "p"]], [1], f"element of {length} bytes")


def test_many_elements_fill_the_registers_that_their_hashes_say(both: PairedServers) -> None:
    elements = [both.some_bytes(both.random.randrange(1, 30)) for _ in range(DENSE * both.effort)]
    for start in range(0, len(elements), 100):
        both.ask([["PFADD", "p", *elements[start : start + 100]]])
        if start in {0, 200, 600}:
            assert stored(both, "p") == counted(elements[: start + 100])
    assert stored(both, "p") == counted(elements)
    (count,) = both.ask([["PFCOUNT", "p"]])
    distinct = len(set(elements))
    assert isinstance(count, int)
    assert abs(count - distinct) <= TOLERANCE * distinct, f"{distinct} elements are counted as {count}"


def test_a_union_has_the_larger_of_every_register(both: PairedServers) -> None:
    few = [both.some_bytes(12) for _ in range(50)]
    many = [both.some_bytes(12) for _ in range(DENSE)]
    both.ask([["PFADD", "few", *few], ["PFADD", "many", *many], ["PFMERGE", "union", "few", "many"]])
    assert stored(both, "union") == counted(few + many)
    (counts,) = [both.ask([["PFCOUNT", "few", "many"], ["PFCOUNT", "union"]])]
    assert counts[0] == counts[1]
