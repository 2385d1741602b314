"""Draws words for the fuzzer's commands near the limits of headers, encodings and machine words, where bugs occur."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from suites._shared.checksums import sealed
from suites._shared.paired_servers import EDGE_LENGTHS, HEADER_LENGTHS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Hashable, Sequence

    from suites.fuzz.turns import Choice, Turns

# Around the limits of integer encodings: 7 and 13 bits in listpacks, 4 in ziplists, 16, 24, 32 and 64 in both.
_BITS = (3, 7, 8, 12, 13, 15, 16, 23, 24, 31, 32, 53, 62, 63)
INTEGERS = sorted(
    {
        value
        for bits in _BITS
        for edge in (1 << bits, -(1 << bits))
        for value in (edge - 1, edge, edge + 1)
        if -(1 << 63) <= value < 1 << 63
    }
    | {0, 12, 10000, -10000}
)
# The lengths at which a string in a listpack or ziplist needs another header (6, 12, 14 bits), and at which a ziplist
# entry's length no longer fits the single byte that the next entry has for it (254).
_ELEMENT_LENGTHS = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    11,
    15,
    16,
    17,
    31,
    32,
    33,
    61,
    62,
    63,
    64,
    65,
    66,
    127,
    128,
    248,
    249,
    252,
    253,
    254,
    255,
    256,
)
_LONG_ELEMENTS = (4094, 4095, 4096, 16383, 16384)
_KEY_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 24, 27, 31, 32, 33, 44, 45, 63, 64, 65, 255, 256)
_WIDTHS = (7, 15, 31, 63, 63, 63)
"""Bits of integers, without the sign, that fit an encoding. Half of the streams have values that no `long` of 32 bits
holds.
"""
_FILLERS = (b"\x00", b"\xff", b"a", b"\x80", b"ab", b"\r\n")
# The first letter of a key names the kind of its value.
KEY_LETTERS = {
    "string": "s",
    "list": "l",
    "hash": "h",
    "set": "e",
    "zset": "z",
    "stream": "x",
    "estimate": "p",
    "place": "g",
    "float": "f",
    "lexical": "y",
    "brief": "b",
    "fading": "i",
    "vectors": "v",
}
_APART = ("float", "lexical", "brief", "fading", "vectors")
"""Kinds whose replies are predictable only if commands of other kinds do not touch their keys."""
_MIXED = [kind for kind in KEY_LETTERS if kind not in _APART]
_EXACT_INTEGERS = [value for value in INTEGERS if abs(value) < 1 << 53]
_OFFSETS = (*EDGE_LENGTHS, *HEADER_LENGTHS[:3])

SCRIPT = "return {#KEYS, ARGV[1]}"
"""The script that streams call by its digest."""
_DIGEST = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest().encode()
# Payloads of RDB 6, which every release accepts: a string of 3 bytes, and one stored as a 16-bit integer. The library
# of functions is of RDB 10.
_PAYLOADS = [sealed(form + bytes(8)) for form in (b"\x00\x03abc\x06\x00", b"\x00\xc1\x39\x30\x06\x00")]
_LIBRARY_CODE = b"#!lua name=f\nredis.register_function('put', function(keys, args) return {#keys, args[1]} end)"
_LIBRARY = sealed(b"\xf5\x40" + bytes([len(_LIBRARY_CODE)]) + _LIBRARY_CODE + b"\x0a\x00" + bytes(8))


_REMEMBERED = {
    "element": "member",
    "int": "member",
    "narrow": "member",
    "field": "known",
    "id": "entry",
    "score": "score",
}
"""Kind -> the kind of the words that repeat it."""
_AGAIN = 0.75
"""Share of the words for what a value contains that were drawn before: few commands would find anything otherwise."""


class Draw:
    """Draws the words of one stream, so that all its commands use the same keys, fields and ids."""

    def __init__(self, random: random.Random, turns: Turns | None = None) -> None:
        """`turns`: those of the session; without them, the draws are independent of other streams."""
        self.random = random
        self.turns = turns
        self.place: Hashable = None
        """The place in the grammar of the word that is drawn: what is drawn for each place takes turns."""
        self._identity = random.choice((1, 1, 1, 1 << 31, 1 << 32, (1 << 63) - 40))
        self._tail = random.choice(("a", "key:", "\x00", "K"))
        lengths = random.choices(_KEY_LENGTHS[:-2], k=3)
        # Occasionally a key is so long that its header grows.
        self._keys = [*lengths, random.choice(_KEY_LENGTHS)]
        self._bits = random.choice(_WIDTHS)
        self.drawn: dict[str, list[bytes]] = {}
        """The words that were drawn before, by the kind of those that repeat them."""

    def choice(self, choices: Sequence[Choice]) -> Choice:
        """One of the choices for the present place."""
        if self.turns is None:
            return self.random.choice(choices)
        return self.turns.next((self.place, len(choices)), choices, self.random)

    def word(self, kind: str) -> bytes:
        """A word of a kind that the grammar names. Raises KeyError for an unknown kind."""
        if kind in KEY_LETTERS:
            return self.key(kind)
        word = KINDS[kind](self)
        if kind in _REMEMBERED:
            self.drawn.setdefault(_REMEMBERED[kind], []).append(word)
        return word

    def again(self, kind: str, fresh: Callable[[Draw], bytes], share: float = _AGAIN) -> bytes:
        """Usually a word that was drawn before, and otherwise a fresh one."""
        drawn = self.drawn.get(kind)
        return self.random.choice(drawn) if drawn and self.random.random() < share else fresh(self)

    def key(self, kind: str) -> bytes:
        """One of the stream's few keys, which share prefixes. One in thirty has another kind, for WRONGTYPE."""
        if kind not in _APART and self.random.random() < 1 / 30:
            kind = self.random.choice(_MIXED)
        letter = KEY_LETTERS[kind]
        length = self.random.choice(self._keys)
        return (letter + (self._tail * length))[:length].encode("latin-1")

    def text(self, length: int) -> bytes:
        """A text of that length: random bytes, or repeated ones, which compress well and share long prefixes."""
        if self.random.random() < 0.5:
            return self.random.randbytes(length)
        return (self.random.choice(_FILLERS) * length)[:length]

    def value(self) -> bytes:
        """A string's value."""
        chance = self.random.random()
        if chance < 0.1:
            return self.integer()
        lengths = HEADER_LENGTHS[:3] if chance < 0.2 else HEADER_LENGTHS[3:] if chance > 0.995 else EDGE_LENGTHS
        return self.text(self.choice(lengths))

    def sparse(self) -> bytes:
        """Equal bytes, except for one with a different bit."""
        text = bytearray(self.random.choice((b"\x00", b"\xff")) * self.choice(EDGE_LENGTHS))
        if text:
            text[self.random.randrange(len(text))] ^= 1 << self.random.randrange(8)
        return bytes(text)

    def element(self) -> bytes:
        """An element of a collection: an integer, a repeated field name, or a string near an encoding's limit."""
        chance = self.random.random()
        if chance < 0.35:
            return self.integer()
        if chance < 0.6:
            return self.field()
        return self.text(self.choice(_LONG_ELEMENTS if chance > 0.99 else _ELEMENT_LENGTHS))

    def field(self) -> bytes:
        """One of about a dozen names with a common prefix."""
        return b"field:name"[: self.random.choice((1, 3, 7, 10))] + b"%d" % self.random.randrange(12)

    def integer(self) -> bytes:
        """A 64-bit integer near a power of two; half of them are small."""
        value = self.choice(INTEGERS) if self.random.random() < 0.5 else self.random.randrange(-200, 300)
        return b"%d" % value

    def narrow(self) -> bytes:
        """An integer of the stream's width: sets of such integers have encodings of different widths."""
        top = 1 << self._bits
        edge = self.random.choice((-top, 1 - top, top - 2, top - 1))
        value = edge if self.random.random() < 0.3 else self.random.randrange(-top, top)
        return b"%d" % value

    def number(self) -> bytes:
        """An integer that a double represents exactly."""
        return b"%d" % self.choice(_EXACT_INTEGERS)

    def index(self) -> bytes:
        """A position from the start or the end, rarely far outside, within the range of C's `long` on every target."""
        if self.random.random() < 0.05:
            return b"%d" % self.random.choice((-(1 << 31), (1 << 31) - 1, 65536))
        return b"%d" % self.random.choice((self.random.randrange(-10, 20), self.choice(EDGE_LENGTHS)))

    def offset(self) -> bytes:
        """The offset of a byte in a string, limited so that the string remains short."""
        return b"%d" % self.choice(_OFFSETS)

    def bit_offset(self) -> bytes:
        """The offset of a bit in a string."""
        return b"%d" % max(0, self.choice(EDGE_LENGTHS) * 8 + self.random.randrange(-8, 9))

    def bitfield(self) -> bytes:
        """A type of BITFIELD: `i64` is the widest signed one, `u63` the widest unsigned one."""
        letter = self.random.choice("iu")
        width = self.random.choice((1, 3, 5, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64 if letter == "i" else 62))
        return f"{letter}{width}".encode()

    def score(self) -> bytes:
        """A double whose text is the same on every machine."""
        chance = self.random.random()
        if chance > 0.8 and "score" in self.drawn:
            # Members with equal scores, and ranges that end at one.
            return self.random.choice(self.drawn["score"])
        if chance < 0.1:
            return self.random.choice((b"inf", b"-inf", b"0", b"-0", b"1e300", b"9007199254740993", b"2147483648"))
        return self.integer() if chance < 0.4 else self.fraction()

    def fraction(self) -> bytes:
        """A multiple of 1/8: exact in a `long double` of 64, 80 or 128 bits, and so are sums of such numbers."""
        return f"{self.random.randrange(-8000, 8000) / 8:.15g}".encode()

    def identity(self) -> bytes:
        """A stream entry's id: usually later than the earlier ones, with up to 64 bits."""
        if self.random.random() < 0.25:
            return b"%d-%d" % (self._identity, self.random.randrange(5))
        self._identity = min(self._identity + self.random.randrange(3), (1 << 64) - 2)
        return b"%d-%d" % (self._identity, self.random.choice((0, 1, 2, 255, 65536, (1 << 32) + 1)))

    def time(self) -> bytes:
        """Milliseconds since 1970 in the far future: even as seconds they exceed a signed 32-bit integer."""
        return b"%d" % self.random.choice((4102444800000, (1 << 31) * 1000, (1 << 32) * 1000 + 1, 1 << 50))


KINDS: dict[str, Callable[[Draw], bytes]] = {
    "value": Draw.value,
    "tiny": lambda draw: draw.text(draw.random.randrange(1, 10)),
    "sparse": Draw.sparse,
    "element": Draw.element,
    "field": Draw.field,
    "int": Draw.integer,
    "narrow": Draw.narrow,
    "member": lambda draw: draw.again("member", Draw.element),
    "known": lambda draw: draw.again("known", Draw.field),
    "entry": lambda draw: draw.again("entry", Draw.identity),
    "number": Draw.number,
    "index": Draw.index,
    "offset": Draw.offset,
    "bit": lambda draw: draw.random.choice((b"0", b"1")),
    "bitoffset": Draw.bit_offset,
    "bitfield": Draw.bitfield,
    "score": Draw.score,
    "fraction": Draw.fraction,
    "digit": lambda draw: b"%d" % draw.random.randrange(10),
    "count": lambda draw: b"%d" % draw.random.randrange(1, 9),
    "id": Draw.identity,
    "time": Draw.time,
    "channel": lambda draw: b"c%d" % draw.random.randrange(3),
    "payload": lambda draw: draw.random.choice(_PAYLOADS),
    "library": lambda _: _LIBRARY,
    "digest": lambda _: _DIGEST,
    "coordinate": lambda draw: f"{draw.random.randrange(-64, 64) / 8:.9g}".encode(),
    "longitude": lambda draw: f"{draw.random.randrange(-1790, 1790) / 10 + 0.03125:.9g}".encode(),
    "latitude": lambda draw: f"{draw.random.randrange(-840, 840) / 10 + 0.03125:.9g}".encode(),
}
