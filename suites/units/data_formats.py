"""Judges of units that write or read a data format: LZF, MessagePack and RESP."""

from __future__ import annotations

from suites._shared.formats import encodings
from suites.units.values import bits_of, digest, double_of, everywhere, exactly, hexadecimal, pattern


def lzf(key: str, values: list[str]) -> str:
    """For every offset, the compressed data, and a digest of the decompressed data."""
    length, period = (int(word) for word in key.split()[1::2])
    data = bytes((i % period * 31 + (i >> 3 if i % 7 == 6 else 0)) & 255 for i in range(length))
    complaint = everywhere(values[1::2], digest(data))
    if complaint:
        return f"the data after compression and decompression: {complaint}"
    # Compression may choose any matches, but they must be correct.
    for offset, packed in enumerate(values[::2]):
        try:
            found = encodings.lzf(bytes.fromhex(packed[1:]))
        except (encodings.EncodingError, IndexError) as error:
            return f"at offset {offset} the compressed data is not LZF: {error}"
        if found != data:
            return f"at offset {offset} the compressed data contains {found.hex():.80}, expected {data.hex():.80}"
    return ""


def cmsgpack(key: str, values: list[str]) -> str:
    """A string and doubles in packed form, and then the bits of the unpacked doubles."""
    _, lead, *words = key.split()
    numbers = [double_of(int(word, 16)) for word in words]
    packed = encodings.messagepack([pattern(int(lead), int(lead)), *numbers])
    return exactly(values, [hexadecimal(packed), *(str(bits_of(number)) for number in numbers)])


def reader(key: str, values: list[str]) -> str:
    """The values of the reply in the input, twice: read at once, and byte by byte."""
    data = bytes.fromhex(key.removeprefix("input "))
    return exactly(values, 2 * (_reply(data)[0] if data[:1] in b"+-:$*" and data[0] else [_refused(data[0])]))


def _reply(data: bytes) -> tuple[list[str], bytes]:
    """The first reply in RESP data, as its type in hiredis.h and its value, and the data after it."""
    head, _, rest = data.partition(b"\r\n")
    kind, text = head[:1], head[1:]
    if kind == b":":
        return ["3", str(int(text))], rest
    if kind in b"+-":
        return ["5" if kind == b"+" else "6", hexadecimal(text)], rest
    size = int(text)
    if size < 0:
        return ["4"], rest
    if kind == b"$":
        return ["1", hexadecimal(rest[:size])], rest[size + 2 :]
    values = ["2", text.decode()]
    for _ in range(size):
        more, rest = _reply(rest)
        values += more
    return values, rest


def _refused(byte: int) -> str:
    """The error for an unknown first byte, which it shows in the notation of C."""
    names = {ord("\\"): "\\\\", ord('"'): '\\"', 7: r"\a", 8: r"\b", 9: r"\t", 10: r"\n", 13: r"\r"}
    shown = names.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}")
    return hexadecimal(f'Protocol error, got "{shown}" as reply type byte'.encode())
