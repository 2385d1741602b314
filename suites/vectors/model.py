"""Calculates what vector sets must answer, in Python's floats, and reads what a server saves of one.

Sources: https://redis.io/docs/latest/develop/data-types/vector-sets/ and the pages of its commands say what a
similarity is, what the kinds of quantisation keep, and in which byte order a blob is; the servers' vset.c and hnsw.c
specify the projection and the saved form.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from suites._shared.formats.records import single

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

Vector = tuple[float, ...]


def some_vectors(draw: random.Random, count: int, dimension: int) -> list[Vector]:
    """Vectors of every direction, whose components a single-precision number holds."""
    return [tuple(single(draw.gauss(0, 1)) for _ in range(dimension)) for _ in range(count)]


def blob(vector: Vector) -> bytes:
    """A vector in the form that FP32 announces: little-endian, whatever the machine."""
    return struct.pack(f"<{len(vector)}f", *vector)


def length(vector: Vector) -> float:
    """The vector's Euclidean norm."""
    return math.sqrt(math.fsum(x * x for x in vector))


def cosine(one: Vector, other: Vector) -> float:
    """The similarity of two vectors: 1 for one direction, 0 for opposite ones. A zero vector has no direction: 0.5."""
    lengths = length(one) * length(other)
    return (1 + math.fsum(x * y for x, y in zip(one, other, strict=True)) / lengths) / 2 if lengths else 0.5


def agreement(one: Vector, other: Vector) -> float:
    """The similarity of two vectors of which only the signs were kept: the share of components that agree."""
    return sum((x > 0) == (y > 0) for x, y in zip(one, other, strict=True)) / len(one)


def projected(vector: Vector, dimension: int) -> Vector:
    """A vector reduced by a Hadamard matrix whose rows have the length 1."""
    scale = 1 / math.sqrt(len(vector))
    return tuple(
        scale * math.fsum(-x if (row & column).bit_count() % 2 else x for column, x in enumerate(vector))
        for row in range(dimension)
    )


@dataclass(frozen=True)
class Quantisation:
    """How a vector set keeps its vectors."""

    option: str
    """The word of VADD."""
    name: str
    """The word of VINFO."""
    similarity: Callable[[Vector, Vector], float]
    tolerance: float
    """The largest difference of a similarity from the exact one."""

    def kept(self, vector: Vector) -> tuple[Vector, float]:
        """The components that VEMB returns, and the largest difference of one."""
        largest = max(map(abs, vector))
        if self.option == "BIN":
            return tuple(1.0 if x > 0 else -1.0 for x in vector), 0.0
        # A signed byte holds 127 steps up to the largest component; single precision has 24 bits.
        return vector, largest * (0.501 / 127 if self.option == "Q8" else 1e-5)


KINDS = {
    one.option: one
    for one in (
        Quantisation("NOQUANT", "f32", cosine, 1e-5),
        Quantisation("Q8", "int8", cosine, 0.005),
        Quantisation("BIN", "bin", agreement, 1e-6),
    )
}


def agrees(actual: Any, expected: Sequence[float], tolerance: float) -> bool:
    """Whether a reply is a list of numbers that are as near to the expected ones as the tolerance says."""
    if not isinstance(actual, list) or len(actual) != len(expected):
        return False
    # A difference from NaN is smaller than nothing.
    return all(abs(float(one) - due) <= tolerance for one, due in zip(actual, expected, strict=True))


@dataclass
class SavedSet:
    """A vector set as DUMP and RDB files hold it."""

    dimension: int
    option: str
    matrix: bytes
    """The projection's, row by row; empty without a projection."""
    vectors: dict[bytes, bytes] = field(default_factory=dict)
    attributes: dict[bytes, bytes] = field(default_factory=dict)
    norms: dict[bytes, bytes] = field(default_factory=dict)
    """Name -> the vector's length before it was normalised, little-endian."""


def saved_set(items: Sequence[Any]) -> SavedSet:
    """Read the numbers and texts that the module saves. Raises ValueError for any others."""
    rest = iter(items)
    dimension, count, settings, flags = (next(rest) for _ in range(4))
    matrix = b""
    if flags & 1:
        next(rest)
        matrix = next(rest)
    found = SavedSet(dimension, tuple(KINDS)[settings & 0xFF], matrix)
    for _ in range(count):
        name = next(rest)
        if flags & 2 and (attribute := next(rest)):
            found.attributes[name] = attribute
        found.vectors[name] = next(rest)
        parameters = [next(rest) for _ in range(next(rest))]
        found.norms[name] = parameters[-1].to_bytes(8, "little")[:4]
    if left := len(list(rest)):
        raise ValueError(f"{left} items are left over")
    return found
