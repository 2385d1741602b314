"""The judge of each unit, and the choice of the wrong line that is reported."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from suites._shared import checksums
from suites._shared.formats import encodings
from suites.units import containers, conversions, data_formats, hashes, integrity, server_parts, twister, ziplists
from suites.units.hashes import of_bytes
from suites.units.values import BIG_WORDS, OPPOSITE, WRAPS, digest, hexadecimal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.target_model import Endianness
    from suites.units.values import Judge


def judge_of(unit: str, endianness: Endianness) -> Judge:
    """A new judge of a unit's lines on a target. Raises KeyError for an unknown unit."""
    return _JUDGES[unit](endianness)


def units() -> list[str]:
    """The units that have judges."""
    return list(_JUDGES)


def wrong_line(unit: str, endianness: Endianness, lines: Sequence[str]) -> tuple[str, str] | None:
    """The line to report from a unit's output, and its complaint; None if all lines are correct.

    A reversed byte order is one fault that affects every line, and so are words of the wrong byte order and a size that
    wraps. Any other wrong line takes precedence, so that such a fault does not hide it.
    """
    judge = judge_of(unit, endianness)
    alike = None
    for line in lines:
        key, _, values = line.partition(":")
        complaint = judge(key, values.split())
        if complaint and not complaint.startswith((OPPOSITE, BIG_WORDS, WRAPS)):
            return line, complaint
        if complaint:
            alike = alike or (line, complaint)
    return alike


def _on_all(judge: Judge) -> Callable[[Endianness], Judge]:
    """A judge without state that expects the same results on all machines."""
    return lambda _: judge


def _by_order(judge: Callable[[Endianness, str, list[str]], str]) -> Callable[[Endianness], Judge]:
    """A judge without state that knows the machine's byte order."""
    return lambda endianness: partial(judge, endianness)


_JUDGES: dict[str, Callable[[Endianness], Judge]] = {
    "siphash": _by_order(partial(hashes.siphash, nocase=False)),
    "siphash_nocase": _by_order(partial(hashes.siphash, nocase=True)),
    "murmurhash2": _by_order(hashes.murmurhash2),
    "casehash": _on_all(of_bytes(lambda data: str(checksums.bernstein(data, hashes.MURMUR2_SEED)))),
    "murmurhash64a": _on_all(of_bytes(lambda data: str(checksums.murmurhash64a(data, hashes.MURMUR64A_SEED)))),
    "popcount": _on_all(of_bytes(lambda data: str(int.from_bytes(data).bit_count()))),
    "bitpos": _on_all(hashes.bitpos),
    "crc16": _on_all(of_bytes(lambda data: str(checksums.crc16(data)))),
    "crc64": _on_all(hashes.crc64),
    "sha1": _on_all(of_bytes(lambda data: hexadecimal(hashlib.sha1(data, usedforsecurity=False).digest()))),
    "sha256": _on_all(of_bytes(lambda data: hexadecimal(hashlib.sha256(data).digest()))),
    "lzf": _on_all(data_formats.lzf),
    "endianconv": _by_order(conversions.endianconv),
    "string2ll": _on_all(conversions.string2ll),
    "ll2string": _on_all(conversions.ll2string),
    "d2string": _on_all(conversions.d2string),
    "string2d": _on_all(conversions.string2d),
    "intset": containers.Intset,
    "ziplist": partial(containers.List, decode=encodings.ziplist, heads=True, texts=False),
    "listpack": partial(containers.List, decode=encodings.listpack, heads=False, texts=True),
    "zipmap": containers.Zipmap,
    "sds": _on_all(containers.sds),
    "hisds": _on_all(containers.sds),
    "rax": containers.Rax,
    "ziplist_pairs": ziplists.Pairs,
    "ziplist_merge": _on_all(ziplists.merge),
    "intset_integrity": integrity.judge(integrity.INTSET, wraps=integrity.intset_wraps),
    "ziplist_integrity": integrity.judge(integrity.ZIPLIST, wraps=integrity.ziplist_wraps),
    "listpack_integrity": integrity.judge(integrity.LISTPACK),
    "zipmap_integrity": integrity.judge(integrity.ZIPMAP, undecided=integrity.longer_than_needed),
    "lua": _on_all(of_bytes(digest)),
    "cmsgpack": _on_all(data_formats.cmsgpack),
    "memtest": _on_all(server_parts.memtest),
    "timers": _on_all(server_parts.timers),
    "slowlog": _on_all(server_parts.slowlog),
    "reader": _on_all(data_formats.reader),
    "rdb_counts": _on_all(server_parts.rdb_counts),
    "syncio": _on_all(server_parts.syncio),
    "twister": _on_all(twister.judge),
}
