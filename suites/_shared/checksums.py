"""Independent models of the hash functions and checksums that servers use, each from its published definition."""

from __future__ import annotations

import struct
from functools import cache
from typing import Literal

_64 = (1 << 64) - 1
_32 = (1 << 32) - 1


def lower(data: bytes) -> bytes:
    """The text with ASCII letters in lower case, regardless of the locale; other bytes are unchanged."""
    return bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in data)


def siphash(
    data: bytes,
    key: bytes,
    *,
    compressions: int = 1,
    finalizations: int = 2,
    key_words: Literal["little", "big"] = "little",
    data_words: Literal["little", "big"] = "little",
) -> int:
    """SipHash-c-d (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012); servers use 1-2.

    `key_words` and `data_words`: the byte order in which words of 8 bytes are read. It is little-endian by definition.
    An incomplete last word is always little-endian.
    """
    k0, k1 = int.from_bytes(key[:8], key_words), int.from_bytes(key[8:16], key_words)
    state = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(data) // 8 * 8
    words = [int.from_bytes(data[at : at + 8], data_words) for at in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 255) << 56)
    for word in words:
        state[3] ^= word
        for _ in range(compressions):
            _sip_round(state)
        state[0] ^= word
    state[2] ^= 0xFF
    for _ in range(finalizations):
        _sip_round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & _64
    v[1] = _rotated(v[1], 13) ^ v[0]
    v[0] = _rotated(v[0], 32)
    v[2] = (v[2] + v[3]) & _64
    v[3] = _rotated(v[3], 16) ^ v[2]
    v[0] = (v[0] + v[3]) & _64
    v[3] = _rotated(v[3], 21) ^ v[0]
    v[2] = (v[2] + v[1]) & _64
    v[1] = _rotated(v[1], 17) ^ v[2]
    v[2] = _rotated(v[2], 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _64


def murmurhash2(data: bytes, seed: int, *, byteorder: str = "little") -> int:
    """MurmurHash2 (Appleby, 2008), which reads words in the machine's byte order, and the tail byte by byte."""
    m = 0x5BD1E995
    h = (seed ^ len(data)) & _32
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little" if byteorder == "little" else "big") * m & _32
        h = (h * m & _32) ^ ((k ^ k >> 24) * m & _32)
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & _32
    h = (h ^ h >> 13) * m & _32
    return h ^ h >> 15


def murmurhash64a(data: bytes, seed: int) -> int:
    """MurmurHash64A (Appleby, 2008), on little-endian words: every machine must fill the same HyperLogLog registers."""
    m = 0xC6A4A7935BD1E995
    h = (seed ^ len(data) * m) & _64
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        k = int.from_bytes(data[at : at + 8], "little") * m & _64
        h = (h ^ (k ^ k >> 47) * m & _64) * m & _64
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & _64
    h = (h ^ h >> 47) * m & _64
    return h ^ h >> 47


def bernstein(data: bytes, seed: int) -> int:
    """Bernstein's hash, h * 33 + c, of text in lower case; case-insensitive dictionaries used it before SipHash."""
    h = seed
    for byte in lower(data):
        h = (h * 33 + byte) & _32
    return h


def crc16(data: bytes) -> int:
    """CRC-16/XMODEM (polynomial 0x1021, not reflected, initial value 0): Redis Cluster specification, key slots."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc


@cache
def _crc64_tables() -> list[list[int]]:
    """The checksum of each byte value, followed by zero to seven zero bytes."""
    reflected = int(f"{0xAD93D23594C935A9:064b}"[::-1], 2)
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (reflected if crc & 1 else 0)
        table.append(crc)
    tables = [table]
    for _ in range(7):
        tables.append([crc >> 8 ^ table[crc & 255] for crc in tables[-1]])
    return tables


def crc64(data: bytes, crc: int = 0) -> int:
    """CRC-64/REDIS, Jones' polynomial 0xad93d23594c935a9, reflected (D. T. Jones, "An Improved 64-bit CRC", 2002)."""
    t0, t1, t2, t3, t4, t5, t6, t7 = _crc64_tables()
    whole = len(data) // 8 * 8
    # A checksum is linear: the checksum of eight bytes is the exclusive or of one for each position (Kounavis and
    # Berry, "A Systematic Approach to Building High Performance Software-based CRC Generators", 2005).
    for (word,) in struct.iter_unpack("<Q", memoryview(data)[:whole]):
        a, b, c, d, e, f, g, h = (crc ^ word).to_bytes(8, "little")
        crc = t7[a] ^ t6[b] ^ t5[c] ^ t4[d] ^ t3[e] ^ t2[f] ^ t1[g] ^ t0[h]
    for byte in data[whole:]:
        crc = crc >> 8 ^ t0[(crc ^ byte) & 255]
    return crc


def sealed(content: bytes) -> bytes:
    """The content with its last eight bytes replaced by the CRC-64 of the others: an RDB file, or a DUMP payload."""
    body = content[:-8]
    return body + crc64(body).to_bytes(8, "little")
