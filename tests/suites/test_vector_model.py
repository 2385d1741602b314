"""The model of vector sets: known similarities and projections, components of each kind, and the saved format."""

from __future__ import annotations

import math
import random
import struct

import pytest

from suites._shared.formats import rdb
from suites._shared.keyspace.values import Foreign
from suites.vectors import model

# DUMP of a set that redis-8.0.6 made on x86-64: VALUES 3 1 2 4 a, and VALUES 3 -1 2 4 b with the attribute {"n":1}.
PAYLOAD = bytes.fromhex(
    "0781bde72da2bb1eb4000203020202500102020501620507"
    "7b226e223a317d0503e03f7f02070203028001000000020102200202"
    "02813dcab56800000000"
    "02813f5f74824092a4760501610500"
    "0503203f7f0210020202800100000302010220020302813dcab56800000000"
    "02000210020002000210020002000210020002813f5f74824092a476"
    "000c0087fd7de7c7063da0"
)


@pytest.mark.parametrize(
    ("one", "other", "similarity", "signs"),
    [
        ((1.0, 2.0), (2.0, 4.0), 1.0, 1.0),
        ((1.0, 2.0), (-1.0, -2.0), 0.0, 0.0),
        ((1.0, 0.0), (0.0, 3.0), 0.5, 0.0),
        ((1.0, 1.0), (0.0, -5.0), (1 - math.sqrt(0.5)) / 2, 0.0),
        ((1.0, 1.0), (1.0, -1.0), 0.5, 0.5),
        ((0.0, 0.0), (1.0, -1.0), 0.5, 0.5),
    ],
)
def test_similarities_range_from_opposite_to_equal_directions(
    one: model.Vector, other: model.Vector, similarity: float, signs: float
) -> None:
    assert model.cosine(one, other) == pytest.approx(similarity)
    assert model.agreement(one, other) == signs


def test_a_projection_without_loss_preserves_lengths() -> None:
    assert model.projected((1.0, 2.0, 3.0), 2) == pytest.approx((6 / math.sqrt(3), 2 / math.sqrt(3)))
    (vector,) = model.some_vectors(random.Random(1), 1, 64)
    assert model.length(model.projected(vector, 64)) == pytest.approx(model.length(vector))


def test_a_blob_is_little_endian() -> None:
    assert model.blob((1.0, -2.0)) == bytes.fromhex("0000803f000000c0")


def test_each_word_is_byte_swapped_separately() -> None:
    assert model.turned(b"abcdefgh", 4) == b"dcbahgfe"
    assert model.turned(b"abcdefgh", 8) == b"hgfedcba"
    assert model.turned(b"abc", 1) == b"abc"


def test_each_kind_stores_components_with_its_precision() -> None:
    vector = (0.5, -1.0, 0.001)
    assert model.KINDS["BIN"].kept(vector) == ((1.0, -1.0, 1.0), 0.0)
    (exact, fine), (_, coarse) = (model.KINDS[kind].kept(vector) for kind in ("NOQUANT", "Q8"))
    assert exact == vector
    # The tolerance is half a step of 127 plus the rounding of single precision.
    assert fine == pytest.approx(1e-5)
    assert 0.5 / 127 < coarse < 0.51 / 127


@pytest.mark.parametrize("reply", [Exception("ERR"), [b"1"], [b"1", b"2.2"], [b"1", b"nan"], [b"inf", b"2"]])
def test_a_reply_that_is_not_such_a_vector_does_not_agree(reply: object) -> None:
    assert model.agrees([b"1", b"2.05"], (1.0, 2.0), 0.1)
    assert not model.agrees(reply, (1.0, 2.0), 0.1)


def test_the_saved_form_of_a_set_is_read() -> None:
    value = rdb.read_dump(PAYLOAD)[1]
    assert isinstance(value, Foreign)
    found = model.saved_set(value.items)
    assert (found.dimension, found.option, found.matrix) == (3, "Q8", b"")
    assert found.vectors == {b"a": struct.pack("3b", 32, 63, 127), b"b": struct.pack("3b", -32, 63, 127)}
    assert found.attributes == {b"b": b'{"n":1}'}
    assert struct.unpack("<f", found.norms[b"a"]) == pytest.approx([model.length((1.0, 2.0, 4.0))])


def test_bytes_after_a_saved_set_are_refused() -> None:
    value = rdb.read_dump(PAYLOAD)[1]
    assert isinstance(value, Foreign)
    with pytest.raises(ValueError, match="1 items are left over"):
        model.saved_set([*value.items, 0])
