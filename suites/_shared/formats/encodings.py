"""Decoders of the servers' compact encodings, from their published layouts. Most numbers in them are little-endian.

They raise EncodingError for every violation of the layout, including wrong totals and wrong lengths of neighbours.
"""

from __future__ import annotations

import struct


class EncodingError(ValueError):
    """The bytes violate the layout."""


def demand(ok: bool, message: str) -> None:
    """Raise EncodingError unless the condition holds."""
    if not ok:
        raise EncodingError(message)


def intset(values: list[int]) -> bytes:
    """An intset: the width of its values, their count, and the values in order (intset.h). There is only one valid
    form.
    """
    ordered = sorted(set(values))
    width = max((_width(value) for value in ordered), default=2)
    return struct.pack("<II", width, len(ordered)) + b"".join(v.to_bytes(width, "little", signed=True) for v in ordered)


def _width(value: int) -> int:
    return next(size for size in (2, 4, 8) if -(1 << size * 8 - 1) <= value < 1 << size * 8 - 1)


def lzf(data: bytes) -> bytes:
    """LibLZF's format: literal runs 000LLLLL, short matches LLLooooo oooooooo, long ones 111ooooo LLLLLLLL oooooooo."""
    out = bytearray()
    at = 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            demand(at + control < len(data), "a literal run extends past the end")
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[at]
            at += 1
        distance = ((control & 31) << 8 | data[at]) + 1
        at += 1
        demand(distance <= len(out), "a match begins before the start of the output")
        begin, count = len(out) - distance, length + 2
        # A match that is longer than its distance repeats its own output.
        out += (out[begin : begin + count] * (count // distance + 1))[:count]
    return bytes(out)


def messagepack(values: list[bytes | float]) -> bytes:
    """Strings and numbers, each in the shortest form of the MessagePack specification, concatenated.

    As in lua-cmsgpack, whole numbers become integers. Other numbers get single precision if that is exact.
    """
    return b"".join(_messagepack(value) for value in values)


def _messagepack(value: bytes | float) -> bytes:
    if isinstance(value, bytes):
        demand(len(value) < 32, "this encoder supports only strings of fewer than 32 bytes")
        return bytes([0xA0 | len(value)]) + value
    if not value.is_integer() or abs(value) >= 1 << 63:
        single = abs(value) < 1 << 127 and struct.unpack(">f", struct.pack(">f", value))[0] == value
        return b"\xca" + struct.pack(">f", value) if single else b"\xcb" + struct.pack(">d", value)
    number = int(value)
    if -32 <= number < 128:
        return struct.pack(">b", number) if number < 0 else bytes([number])
    first, signed = (0xCC, False) if number > 0 else (0xD0, True)
    half = 1 if signed else 0
    width = next(size for size in (1, 2, 4, 8) if -(1 << size * 8 - 1) <= number < 1 << size * 8 - half)
    return bytes([first + width.bit_length() - 1]) + number.to_bytes(width, "big", signed=signed)


def ziplist(blob: bytes, *, uncounted: bool = False) -> list[bytes]:
    """A ziplist's entries as text. The layout is size, offset of the last entry, count, entries, 255 (ziplist.c).
    `uncounted`: accept 65535 as any count, as in a list that was longer once.
    """
    demand(len(blob) >= 11, "shorter than an empty one")
    total, tail, count = struct.unpack_from("<IIH", blob)
    demand(total == len(blob), f"it says that it has {total} bytes, and has {len(blob)}")
    demand(blob[-1] == 255, "the last byte is not 255")
    entries = []
    at, last, before = 10, 10, 0
    while at < len(blob) - 1:
        demand(blob[at] != 255, f"it ends too early, at {at}")
        last = at
        previous, at = (blob[at], at + 1) if blob[at] < 254 else (_unsigned(blob, at + 1, 4), at + 5)
        demand(
            previous == before,
            f"the entry at {last} gives {previous} as the length of the entry before it, which has {before} bytes",
        )
        content, at = _ziplist_content(blob, at)
        entries.append(content)
        before = at - last
    demand(at == len(blob) - 1, "an entry passes the end")
    demand(tail == last, f"the last entry is at {last}, but the header says {tail}")
    _demand_count(count, len(entries), uncounted=uncounted)
    return entries


def _demand_count(said: int, counted: int, *, uncounted: bool) -> None:
    """Check a list's count, which has 16 bits. 65535 means 65535 or more."""
    right = said == min(counted, 65535) or (uncounted and said == 65535)
    demand(right, f"it has {counted} entries, but its count is {said}")


_ZIPLIST_INTEGERS = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}


def _ziplist_content(blob: bytes, at: int) -> tuple[bytes, int]:
    head = blob[at]
    if head >> 6 == 3:
        if head in _ZIPLIST_INTEGERS:
            size = _ZIPLIST_INTEGERS[head]
            return b"%d" % _signed(blob, at + 1, size), at + 1 + size
        demand(0xF1 <= head <= 0xFD, f"unknown encoding byte {head:#x}")
        return b"%d" % (head - 0xF1), at + 1
    # Lengths of strings are the only big-endian numbers.
    if head >> 6 == 0:
        length, at = head & 63, at + 1
    elif head >> 6 == 1:
        length, at = (head & 63) << 8 | blob[at + 1], at + 2
    else:
        length, at = int.from_bytes(blob[at + 1 : at + 5], "big"), at + 5
    return blob[at : at + length], at + length


def listpack(blob: bytes, *, uncounted: bool = False) -> list[bytes]:
    """A listpack's entries as text. The layout is size, count, entries with lengths, 255 (the listpack specification).
    `uncounted`: accept 65535 as any count, as in a list that was longer once.
    """
    demand(len(blob) >= 7, "shorter than an empty one")
    total, count = struct.unpack_from("<IH", blob)
    demand(total == len(blob), f"it says that it has {total} bytes, and has {len(blob)}")
    demand(blob[-1] == 255, "the last byte is not 255")
    entries = []
    at = 6
    while at < len(blob) - 1:
        start = at
        content, at = _listpack_content(blob, at)
        entries.append(content)
        back = _backlen(at - start)
        found = blob[at : at + len(back)]
        demand(found == back, f"the entry at {start} has {at - start} bytes, but the length after it is {found.hex()}")
        at += len(back)
    demand(at == len(blob) - 1, "an entry passes the end")
    _demand_count(count, len(entries), uncounted=uncounted)
    return entries


_LISTPACK_INTEGERS = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}


def _listpack_content(blob: bytes, at: int) -> tuple[bytes, int]:
    head = blob[at]
    if head < 0x80:
        return b"%d" % head, at + 1
    if head < 0xC0:
        length, at = head & 63, at + 1
    elif head < 0xE0:
        value = (head & 31) << 8 | blob[at + 1]
        return b"%d" % (value - (1 << 13) if value & 1 << 12 else value), at + 2
    elif head < 0xF0:
        length, at = (head & 15) << 8 | blob[at + 1], at + 2
    elif head == 0xF0:
        length, at = _unsigned(blob, at + 1, 4), at + 5
    else:
        demand(head in _LISTPACK_INTEGERS, f"unknown encoding byte {head:#x}")
        size = _LISTPACK_INTEGERS[head]
        return b"%d" % _signed(blob, at + 1, size), at + 1 + size
    return blob[at : at + length], at + length


def _backlen(length: int) -> bytes:
    """An entry's length for readers that move backwards: 7 bits a byte, with bit 7 set in every byte but the first."""
    parts = [length & 127]
    while length := length >> 7:
        parts[-1] |= 128
        parts.append(length & 127)
    return bytes(reversed(parts))


def zipmap(blob: bytes, *, uncounted: bool = False, shortest: bool = False) -> dict[bytes, bytes]:
    """A zipmap's keys and values. The layout is count, lengths and bytes, free bytes after values, 255 (zipmap.c).
    `uncounted`: accept 254 as any count, as in a map that was larger once. `shortest`: refuse a length in five bytes
    that fits in one.
    """
    demand(len(blob) >= 2, "shorter than an empty one")
    found = {}
    at = 1
    while blob[at] != 255:
        length, at = _zipmap_length(blob, at, shortest=shortest)
        key, at = blob[at : at + length], at + length
        length, at = _zipmap_length(blob, at, shortest=shortest)
        free, at = blob[at], at + 1
        found[key] = blob[at : at + length]
        at += length + free
    demand(at == len(blob) - 1, "bytes follow the end")
    right = blob[0] == min(len(found), 254) or (uncounted and blob[0] == 254)
    demand(right, f"it has {len(found)} pairs, but its count is {blob[0]}")
    return found


def _zipmap_length(blob: bytes, at: int, *, shortest: bool) -> tuple[int, int]:
    if blob[at] < 254:
        return blob[at], at + 1
    length = _unsigned(blob, at + 1, 4)
    demand(length >= 254 or not shortest, f"the length {length} takes five bytes")
    return length, at + 5


def _unsigned(blob: bytes, at: int, size: int) -> int:
    return int.from_bytes(blob[at : at + size], "little")


def _signed(blob: bytes, at: int, size: int) -> int:
    return int.from_bytes(blob[at : at + size], "little", signed=True)
