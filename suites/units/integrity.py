"""The expected results of the servers' own integrity checks: whether bytes are a valid container, according to its head
or to all entries.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from suites._shared.formats import encodings
from suites.units.values import WRAPS, everywhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.target_model import Endianness

Check = tuple["Callable[[bytes], bool]", "Callable[[bytes], bool]"]
"""Whether bytes are valid according to the head, and according to every entry."""


def judge(
    check: Check,
    *,
    undecided: Callable[[bytes], bool] = lambda _: False,
    wraps: Callable[[bytes], bool] = lambda _: False,
) -> Callable[[Endianness], Callable[[str, list[str]], str]]:
    """The judge of a check's results for `shallow BYTES` and `deep BYTES`. A deep check may refuse valid bytes that are
    `undecided`, if it refuses them at every offset. If bytes pass because a size `wraps` in 32 bits, the complaint
    begins with WRAPS.
    """
    shallow, deep = check

    def answer(key: str, values: list[str]) -> str:
        how, text = key.split()
        blob = bytes.fromhex(text[1:])
        passes = {"shallow": shallow, "deep": deep}[how](blob)
        if how == "deep" and passes and undecided(blob) and not everywhere(values, "0"):
            return ""
        complaint = everywhere(values, str(int(passes)))
        return f"{WRAPS}: {complaint}" if complaint and not passes and wraps(blob) else complaint

    return lambda _: answer


def _decodes(decode: Callable[[bytes], object]) -> Callable[[bytes], bool]:
    def passes(blob: bytes) -> bool:
        try:
            decode(blob)
        except (encodings.EncodingError, IndexError, struct.error):
            return False
        return True

    return passes


def _intset_head(blob: bytes) -> bool:
    if len(blob) < 8:
        return False
    width, count = struct.unpack_from("<II", blob)
    return width in {2, 4, 8} and count > 0 and len(blob) == 8 + width * count


def intset_wraps(blob: bytes) -> bool:
    """Whether an intset matches the size in its head only in 32-bit arithmetic."""
    width, count = struct.unpack_from("<II", blob) if len(blob) >= 8 else (0, 0)
    return width in {2, 4, 8} and len(blob) == (8 + width * count) % 2**32 != 8 + width * count


def ziplist_wraps(blob: bytes) -> bool:
    """Whether a ziplist has a string for which the sum of its length and its header wraps in 32 bits."""
    places = (at + 1 for at, byte in enumerate(blob) if byte == 0x80)
    return any(int.from_bytes(blob[at : at + 4]) > 2**32 - len(blob) for at in places)


def _intset(blob: bytes) -> bool:
    if not _intset_head(blob):
        return False
    width = int.from_bytes(blob[:4], "little")
    values = [int.from_bytes(blob[at : at + width], "little", signed=True) for at in range(8, len(blob), width)]
    return all(one < other for one, other in itertools.pairwise(values))


def _ziplist_head(blob: bytes) -> bool:
    """Whether the head is valid: the last entry must begin within the list (ziplist.c, head comment)."""
    if len(blob) < 11 or blob[-1] != 255:
        return False
    total, tail = struct.unpack_from("<II", blob)
    return bool(total == len(blob) and tail < len(blob))


def _listpack_head(blob: bytes) -> bool:
    return len(blob) >= 7 and blob[-1] == 255 and int.from_bytes(blob[:4], "little") == len(blob)


INTSET: Check = (_intset_head, _intset)
ZIPLIST: Check = (_ziplist_head, _decodes(lambda blob: encodings.ziplist(blob, uncounted=True)))
LISTPACK: Check = (_listpack_head, _decodes(lambda blob: encodings.listpack(blob, uncounted=True)))
ZIPMAP: Check = (
    lambda blob: len(blob) >= 2 and blob[-1] == 255,
    # An empty zipmap is well-formed, but no key has an empty value.
    lambda blob: blob[1:2] != b"\xff" and _decodes(lambda one: encodings.zipmap(one, uncounted=True))(blob),
)


def longer_than_needed(zipmap: bytes) -> bool:
    """Whether a valid zipmap has a length in five bytes that fits in one. Valkey 9 refuses it, other servers do not."""
    return not _decodes(lambda one: encodings.zipmap(one, uncounted=True, shortest=True))(zipmap)
