"""Calculates the replies of vector sets with Python's floats, and reads the saved form of a vector set. Sources:
https://redis.io/docs/latest/develop/data-types/vector-sets/ and the pages of its commands define the similarity, the
kinds of quantisation, and the byte order of a blob; the servers' vset.c and hnsw.c specify the projection and the saved
form.
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
    """Vectors of random directions, whose components fit single precision exactly."""
    return [tuple(single(draw.gauss(0, 1)) for _ in range(dimension)) for _ in range(count)]


def blob(vector: Vector) -> bytes:
    """A vector in the form of FP32: little-endian on every machine."""
    return struct.pack(f"<{len(vector)}f", *vector)


def turned(content: bytes, size: int) -> bytes:
    """The content with the bytes of each of its words in reverse order. `size`: the size of a word in bytes."""
    return b"".join(content[at : at + size][::-1] for at in range(0, len(content), size))


def length(vector: Vector) -> float:
    """The vector's Euclidean norm."""
    return math.sqrt(math.fsum(x * x for x in vector))


def cosine(one: Vector, other: Vector) -> float:
    """The similarity of two vectors: 1 for equal directions, 0 for opposite ones, and 0.5 for a zero vector."""
    lengths = length(one) * length(other)
    return (1 + math.fsum(x * y for x, y in zip(one, other, strict=True)) / lengths) / 2 if lengths else 0.5


def agreement(one: Vector, other: Vector) -> float:
    """The similarity of two vectors of which only the signs are stored: the share of components with equal signs."""
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
    """How a vector set stores its vectors."""

    option: str
    """The option of VADD."""
    name: str
    """The name in VINFO."""
    similarity: Callable[[Vector, Vector], float]
    tolerance: float
    """The largest allowed difference between a similarity and the exact value."""

    def kept(self, vector: Vector) -> tuple[Vector, float]:
        """The components that VEMB returns, and the largest allowed difference of a component."""
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
    """Whether a reply is a list of numbers that differ from the expected ones by no more than the tolerance."""
    if not isinstance(actual, list) or len(actual) != len(expected):
        return False
    # Comparisons with NaN are false.
    return all(abs(float(one) - due) <= tolerance for one, due in zip(actual, expected, strict=True))


@dataclass
class SavedSet:
    """A vector set as DUMP and RDB files hold it."""

    dimension: int
    option: str
    matrix: bytes
    """The matrix of the projection, row by row; empty without a projection."""
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
