"""Loads and stores of PA-RISC 1.1, in 32-bit programs.

Sections are the instructions' names in the PA-RISC 1.1 Architecture and Instruction Set Reference Manual, third
edition, 5 and 6. Displacements, registers, spaces and cache hints are samples; all opcodes are made, with every way to
modify the base.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import (
    AddressForm,
    DecoderTable,
    EncodingTable,
    Exempt,
    Move,
    Opcode,
    SlotForm,
    directions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction, Encoding

FOLDER = Path(__file__).parent
VALUE, BASE, INDEX, NEGATIVE_INDEX = 3, 4, 5, 6
"""%r3 is moved, %r4 is the base, %r5 and %r6 are the index."""
SINGLE, DOUBLE = 4, 5
INDEX_VALUE = 24
LONG = (0x11, -0x12, 0x1FF8, -0x2000)
"""Displacements of 14 bits. The assembler takes the short form for those that fit 5 bits."""
SHORT = (0, 8, -8, 15, -16)


def _integer(register: int, size: int) -> int:
    """The position of an integer register's lowest bytes."""
    return 4 * register + 4 - size


def _float(number: int) -> int:
    return 128 + 8 * number


def _moved(direction: Direction, size: int) -> tuple[Move, ...]:
    """What a plain load or store moves. Loads of less than a word fill it with zeros."""
    return (Move(direction, 0, _integer(VALUE, size), size, 4 - size if direction == "load" else 0),)


def _long() -> list[AddressForm]:
    return [AddressForm(f"{by}(%r{BASE})", by) for by in LONG]


def _modifying() -> list[AddressForm]:
    """LDWM and STWM: a negative displacement is added before, another one after."""
    return [AddressForm(f"{by}(%r{BASE})", min(by, 0), writeback=by) for by in LONG]


def _short() -> list[AddressForm]:
    forms = []
    for by in SHORT:
        forms += [
            AddressForm(f" {by}(%r{BASE})", by),
            AddressForm(f",ma {by}(%r{BASE})", writeback=by),
            AddressForm(f",mb {by}(%r{BASE})", by, writeback=by),
        ]
    return forms


def _indexed(shift: int) -> list[AddressForm]:
    """Indexed accesses. With `s`, the index counts units of the moved size; with `m`, it is added to the base
    afterwards.
    """
    forms = []
    for register, value in ((INDEX, INDEX_VALUE), (NEGATIVE_INDEX, -INDEX_VALUE)):
        index, scaled, operand = (register, value), value << shift, f"%r{register}(%r{BASE})"
        forms += [
            AddressForm(f" {operand}", value, index_register=index),
            AddressForm(f",s {operand}", scaled, index_register=index),
            AddressForm(f",m {operand}", writeback=value, index_register=index),
            AddressForm(f",sm {operand}", writeback=scaled, index_register=index),
        ]
    return forms


def _at(one: Opcode, address: AddressForm, suffix: str) -> Encoding:
    """`address.text`: a completer, if it has one, and the operand."""
    completer, _, operand = address.text.rpartition(" ")
    loads = one.moves[0].direction == "load"
    first, second = (operand, one.operand) if loads else (one.operand, operand)
    return one.at(address, f"{one.name}{suffix}{completer} {first},{second}", base=BASE)


def _integers() -> Iterator[Encoding]:
    rows: list[tuple[str, AccessClass, int]] = [("b", "other", 1), ("h", "half", 2), ("w", "word", 4)]
    for letter, access_class, size in rows:
        for name, direction in directions(f"ld{letter}", f"st{letter}"):
            one = Opcode(name, f"%r{VALUE}", name.upper(), access_class, direction, size, _moved(direction, size))
            yield from (_at(one, address, "") for address in _long())
            yield from (_at(one, address, "s") for address in _short())
            if direction == "load":
                yield from (_at(one, address, "x") for address in _indexed(size.bit_length() - 1))
            if letter == "w":
                yield from (_at(one, address, "m") for address in _modifying())


def _swaps() -> Iterator[Encoding]:
    """LDCW: it loads a word and clears it. The zeros that it stores are those before the index in its register."""
    cleared = tuple(Move("store", i, _integer(INDEX, 4), 1) for i in range(4))
    one = Opcode("ldcw", f"%r{VALUE}", "LDCW", "swap", "store", 4, (*_moved("load", 4), *cleared))
    index = (INDEX, INDEX_VALUE)
    for address in _short():
        yield _at(one, address, "s")._replace(index_register=index)
    for address in _indexed(2):
        # QEMU 10.0.13 shifts the index of LDCWX,S by 3 in place of 2 (target/hppa/translate.c, trans_ldc).
        if address.index_register == index and not address.text.startswith(",s"):
            yield _at(one, address, "x")


def _floats() -> Iterator[Encoding]:
    rows: list[tuple[str, AccessClass, int, str, int]] = [
        ("w", "float", 4, f"%fr{SINGLE}", _float(SINGLE)),
        ("w", "float", 4, f"%fr{SINGLE}R", _float(SINGLE) + 4),
        ("d", "double", 8, f"%fr{DOUBLE}", _float(DOUBLE)),
    ]
    for letter, access_class, size, operand, register in rows:
        for name, direction in directions(f"fld{letter}", f"fst{letter}"):
            one = Opcode(
                name, operand, name.upper(), access_class, direction, size, (Move(direction, 0, register, size),)
            )
            yield from (_at(one, address, "s") for address in _short())
            yield from (_at(one, address, "x") for address in _indexed(size.bit_length() - 1))


_NAMES = {f"r{number}": number for number in range(32)} | {
    "rp": 2,
    "arg3": 23,
    "arg2": 24,
    "arg1": 25,
    "arg0": 26,
    "dp": 27,
    "ret0": 28,
    "ret1": 29,
    "sp": 30,
}
"""Names of the integer registers, as objdump prints them."""
_FLOATS = [f"fr{number}{half}" for number in range(32) for half in ("", "R")]
_LATER = "Of PA-RISC 2.0: no target's CPU has it."
_ABSOLUTE = "Its address is absolute: only the kernel may use it (5, LDWAX)."
_PART = "Which part of the register it stores depends on the address, which no row of this table can say (5, STBYS)."

TABLE = EncodingTable(
    encodings=[*_integers(), *_swaps(), *_floats()],
    preamble={"hppa": ".level 1.1"},
    syntax="",
    states={
        "": SlotForm(
            "",
            "b sweep_return\nnop",
            ("-m", "hppa2.0", "-EB"),
            lambda word, _: word.to_bytes(4, "big"),
            assembler=(
                *(f"-D{name}=%r{number}" for name, number in _NAMES.items()),
                *(f"-D{name}=%{name}" for name in _FLOATS),
            ),
        )
    },
    assembly=FOLDER / "hppa.S",
    header=FOLDER / "hppa.h",
    names=r"(?!ldil|ldo|ldsid)(f|c)?(ld|st)\w*(,\w+)* ",
    decoder_names=r"(?!ldil|ldo|ldsid)f?(ld|st)\w*",
    decoders=[DecoderTable("target/hppa/insns.decode", "")],
    unread=[],
    unassembled=[
        Exempt(
            r" .*[ ,]-?([a-f]|[\da-f]{2,})\(.*",
            "objdump prints displacements in hexadecimal, and gas takes them for decimal.",
        ),
        Exempt(r" \w+,o .*", "`ma` with a displacement of 0 is `o` in PA-RISC 2.0, which gas does not take for 1.1."),
    ],
    unmade=[
        Exempt(r" (ldwa|stwa)(,\w+)* .*", _ABSOLUTE),
        Exempt(r" stby(,\w+)* .*", _PART),
        Exempt(r" (ldd|std|ldda|stda|ldcd|stdby)(,\w+)* .*", _LATER),
        Exempt(r" f(ld|st)[wd](,m[ab])? (\w+,)?-?[\da-f]{2,}\(.*", f"A long displacement. {_LATER}"),
        # LDWM and STWM add what is negative before, and the rest afterwards.
        Exempt(r" (ldw|stw),(ma (\w+,)?-|mb (\w+,)?)(?!10\()[\da-f]{2,}\(.*", _LATER),
        Exempt(r" c(ld|st)[wd],.*", "Of coprocessors beside floating point, which the target does not have (6)."),
        Exempt(
            r" fstqx\b.*", "objdump and gas have it, without a load. The manual (6) has words and doublewords alone."
        ),
    ],
)
