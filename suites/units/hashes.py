"""Judges of hashes, checksums and other functions of bytes, by the models of suites._shared.checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.target_model import Endianness
from suites._shared import checksums
from suites.units.values import BIG_WORDS, everywhere, number_everywhere, pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from suites.units.values import Judge

SIPHASH_KEY = pattern(16, 1)
MURMUR2_SEED = 5381
MURMUR64A_SEED = 0xADC83B19
CRC64_START = 0x0123456789ABCDEF


def of_bytes(model: Callable[[bytes], str]) -> Judge:
    """The judge of a function whose result depends only on the input bytes, and is the same on all machines."""
    return lambda key, values: everywhere(values, model(_input(key)))


def siphash(endianness: Endianness, key: str, values: list[str], *, nocase: bool) -> str:
    """The result is a 64-bit number as the paper defines it, not bytes: it is the same on all machines."""
    data = _input(key)
    text = checksums.lower(data) if nocase else data
    hashed = checksums.siphash(text, SIPHASH_KEY)
    complaint = number_everywhere(values, hashed, size_bytes=8)
    if complaint and endianness is Endianness.BIG:
        # Servers read lower-case text byte by byte, but its key in words.
        other = checksums.siphash(text, SIPHASH_KEY, key_words="big", data_words="little" if nocase else "big")
        if not everywhere(values, str(other)):
            return f"{BIG_WORDS}: it is {other}; the model says {hashed}"
    return complaint


def murmurhash2(endianness: Endianness, key: str, values: list[str]) -> str:
    """The hash reads words in the byte order of the machine, so each order has its own result."""
    return everywhere(values, str(checksums.murmurhash2(_input(key), MURMUR2_SEED, byteorder=endianness.value)))


def crc64(key: str, values: list[str]) -> str:
    """The checksum of one call, or of a call that continues from an earlier checksum."""
    continues = key.endswith("from 1")
    return everywhere(values, str(checksums.crc64(_input(key), CRC64_START if continues else 0)))


def bitpos(key: str, values: list[str]) -> str:
    """The position of the only bit that differs from all others, which ends the key."""
    return everywhere(values, key.rpartition(" ")[2])


def _input(key: str) -> bytes:
    """The data that a driver derives from the length in `length N …`."""
    length = int(key.split()[1])
    return pattern(length, length)
