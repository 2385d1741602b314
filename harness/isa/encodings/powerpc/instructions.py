"""PowerPC's loads and stores: of an MPC7447A with AltiVec in 32 bits, of a POWER7 with VSX in 64, and of a POWER8 in
little-endian mode.

Sections are the instructions' names in the Programming Environments Manual for 32-Bit Implementations, 8.2, in
AltiVec's, 6.2, and in Power ISA 2.06 and 2.07, books I and II. Offsets, counts and registers are samples; all
opcodes are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import OFFSETS, AddressForm, Encoding, Move, Opcode, directions
from harness.isa.encodings.powerpc.register_file import (
    BASE,
    CR0,
    DOUBLE,
    INDEX,
    NEGATIVE_INDEX,
    OTHER_QUAD,
    QUAD,
    SINGLE,
    STRING,
    VALUE,
    VECTOR,
    PowerpcTarget,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Direction

INDEX_VALUE = 24
STORED, NOT_STORED = 2, 0
"""What STWCX. makes of CR0 (Power ISA 2.06, book II, 4.4.2)."""


CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word", 8: "dword"}
BY_OFFSET = [AddressForm(f"{by}({BASE})", by) for by in OFFSETS]
BY_REGISTER = [
    AddressForm(f"0,{BASE}"),
    AddressForm(f"{BASE},{INDEX}", INDEX_VALUE, index_register=(INDEX, INDEX_VALUE)),
    AddressForm(f"{NEGATIVE_INDEX},{BASE}", -INDEX_VALUE, index_register=(NEGATIVE_INDEX, -INDEX_VALUE)),
]


def _opcode(name: str, access_class: AccessClass, size: int, moves: tuple[Move, ...], operand: int = VALUE) -> Opcode:
    direction = moves[0].direction
    return Opcode(name, str(operand), name.upper(), access_class, direction, size, moves)


def _updating(addresses: list[AddressForm]) -> list[AddressForm]:
    """The addressing modes with update: those whose first register is the base, which becomes the address."""
    others = (f"{NEGATIVE_INDEX},", "0,")
    return [one._replace(writeback=one.displacement) for one in addresses if not one.text.startswith(others)]


def _all_forms(machine: PowerpcTarget, one: Opcode) -> Iterator[Encoding]:
    """D, D with update, X and X with update."""
    yield from (machine.at(one, address) for address in BY_OFFSET)
    yield from (machine.at(one._replace(name=f"{one.name}x"), address) for address in BY_REGISTER)
    yield from (machine.at(one._replace(name=f"{one.name}u"), address) for address in _updating(BY_OFFSET))
    yield from (machine.at(one._replace(name=f"{one.name}ux"), address) for address in _updating(BY_REGISTER))


def _integers(machine: PowerpcTarget) -> Iterator[Encoding]:
    loads = [("lbz", 1, False), ("lhz", 2, False), ("lha", 2, True), ("lwz", 4, False)]
    stores = [("stb", 1), ("sth", 2), ("stw", 4)]
    if machine.is_wide:
        loads.append(("ld", 8, False))
        stores.append(("std", 8))
    for name, size, is_signed in loads:
        yield from _all_forms(
            machine, _opcode(name, CLASSES[size], size, (machine.moved("load", size, is_signed=is_signed),))
        )
    for name, size in stores:
        yield from _all_forms(machine, _opcode(name, CLASSES[size], size, (machine.moved("store", size),)))
    if machine.is_wide:
        one = _opcode("lwa", "word", 4, (machine.moved("load", 4, is_signed=True),))
        yield from (each for each in _all_forms(machine, one) if not each.text.startswith("lwau "))


def _floats(machine: PowerpcTarget) -> Iterator[Encoding]:
    for name, access_class, size, register in (("lfs", "float", 4, SINGLE), ("lfd", "double", 8, DOUBLE)):
        for each, direction in directions(name, name.replace("l", "st", 1)):
            kind: AccessClass = "float" if access_class == "float" else "double"
            move = Move(direction, 0, machine.float(register), size)
            yield from _all_forms(machine, _opcode(each, kind, size, (move,), register))
    low = machine.low_word(DOUBLE)
    words = [_opcode("stfiwx", "float", 4, (Move("store", 0, low, 4),), DOUBLE)]
    if machine.is_wide:
        words += [
            _opcode("lfiwax", "float", 4, (Move("load", 0, low, 4, 4, True),), DOUBLE),
            _opcode("lfiwzx", "float", 4, (Move("load", 0, low, 4, 4),), DOUBLE),
        ]
        for name, direction in directions("lfdp", "stfdp"):
            pair = machine.halves(direction, (machine.float(DOUBLE), machine.float(DOUBLE + 1)))
            one = _opcode(name, "double", 8, pair, DOUBLE)
            yield from (machine.at(one, address) for address in BY_OFFSET)
            yield from (machine.at(one._replace(name=f"{name}x"), address) for address in BY_REGISTER)
    yield from (machine.at(one, address) for one in words for address in BY_REGISTER)


def _reversed(machine: PowerpcTarget) -> Iterator[Encoding]:
    """What moves bytes in the other order."""
    sizes = {"h": 2, "w": 4, **({"d": 8} if machine.is_wide else {})}
    for letter, size in sizes.items():
        for name, direction in directions(f"l{letter}brx", f"st{letter}brx"):
            whole = machine.moved(direction, size)
            highest = size - 1 if machine.is_big else 0
            moves = tuple(
                Move(direction, i, whole.register + size - 1 - i, 1, whole.extension if i == highest else 0)
                for i in range(size)
            )
            one = _opcode(name, CLASSES[size], size, moves)
            yield from (machine.at(one, address) for address in BY_REGISTER)


def _multiples(machine: PowerpcTarget) -> Iterator[Encoding]:
    """Multiples, which raise an exception at every address in little-endian mode."""
    if not machine.is_big:
        return
    for first in (29, 14):
        for name, direction in directions("lmw", "stmw"):
            moves = tuple(
                machine.moved(direction, 4, register)._replace(memory=4 * i)
                for i, register in enumerate(range(first, 32))
            )
            one = _opcode(name, "multi", 4, moves, first)
            yield from (machine.at(one, address) for address in BY_OFFSET)


def _string_moves(machine: PowerpcTarget, direction: Direction, count: int) -> tuple[Move, ...]:
    """Four bytes a register from the left, and zeros to its right."""
    moves = []
    for at in range(0, count, 4):
        left = machine.integer(STRING + at // 4, 4)
        size = min(4, count - at)
        moves.append(Move(direction, at, left, size, machine.word_bytes - 4 if direction == "load" else 0))
        if size < 4 and direction == "load":
            moves.append(Move("load", at, left + 4, 0, 4 - size))
    return tuple(moves)


def _strings(machine: PowerpcTarget) -> Iterator[Encoding]:
    """Strings of bytes, at any address, and at none in little-endian mode."""
    if not machine.is_big:
        return
    for count in (7, 12):
        for name, direction in directions("lsw", "stsw"):
            moves = _string_moves(machine, direction, count)
            one = _opcode(f"{name}i", "other", 1, moves, STRING)
            yield machine.at(one, AddressForm(f"{BASE},{count}"))
            indexed = one._replace(name=f"{name}x", section=f"{name.upper()}X")
            before = (f"li 0,{count}", "mtxer 0")
            yield from (machine.at(indexed, address._replace(before=before)) for address in BY_REGISTER)


def _hinted(address: AddressForm) -> AddressForm:
    """LWARX and LDARX with the hint that a lock is taken (EH, Power ISA 2.06, book II, 4.4.2)."""
    return address._replace(text=f"{address.text},1")


def _linked(machine: PowerpcTarget) -> Iterator[Encoding]:
    """Load and reserve, a store after it, and a store without it, which nevertheless requires alignment."""
    sizes = {"w": 4, **({"b": 1, "h": 2, "d": 8} if machine.is_wide else {})}
    for letter, size in sizes.items():
        load, store = f"l{letter}arx", f"st{letter}cx."
        access_class: AccessClass = "linked" if size > 1 else "other"
        for address in BY_REGISTER:
            loads = _opcode(load, access_class, size, (machine.moved("load", size),))
            yield machine.at(loads, address)
            if machine.is_wide:
                yield machine.at(loads, _hinted(address))
            one = _opcode(store, access_class, size, (machine.moved("store", size),))
            paired = machine.at(one, address._replace(before=(f"{load} 0,{address.text}",)))
            yield paired._replace(results=((CR0, STORED),))
            alone = machine.at(
                one, address._replace(before=("lwarx 0,0,1", "stwcx. 0,0,1", "lis 0,-0x8000", "mtcrf 0x80,0"))
            )
            yield alone._replace(moves=(), results=((CR0, NOT_STORED),))


def _quadwords(machine: PowerpcTarget) -> Iterator[Encoding]:
    """Two registers, of which the first has an even number and the high doubleword."""
    if not machine.is_power8:
        return
    for name, direction in directions("lq", "stq"):
        one = _opcode(name, "other", 16, machine.quadword(direction, QUAD), QUAD)
        yield from (machine.at(one, AddressForm(f"{by}({BASE})", by)) for by in (0, 16, -32))
    for address in BY_REGISTER:
        loads = _opcode("lqarx", "linked", 16, machine.quadword("load", QUAD), QUAD)
        yield from (machine.at(loads, each) for each in (address, _hinted(address)))
        one = _opcode("stqcx.", "linked", 16, machine.quadword("store", QUAD), QUAD)
        paired = machine.at(one, address._replace(before=(f"lqarx {OTHER_QUAD},{address.text}",)))
        loaded = machine.quadword("load", OTHER_QUAD)
        yield paired._replace(moves=(*loaded, *paired.moves), results=((CR0, STORED),))


def _vectors(machine: PowerpcTarget) -> Iterator[Encoding]:
    """AltiVec drops the low bits of an address. VSX takes any."""
    for name, direction in (*directions("lvx", "stvx"), *directions("lvxl", "stvxl")):
        one = _opcode(name, "other", 16, (Move(direction, 0, machine.vector(VECTOR), 16),), VECTOR)
        yield from (machine.at(one, address, truncates=True) for address in BY_REGISTER)
    if not machine.is_wide:
        return
    at, low = machine.vector(VECTOR), machine.low_word(DOUBLE)
    rows: list[tuple[str, AccessClass, int, tuple[Move, ...], int]] = [
        ("lxsdx", "dword", 8, (Move("load", 0, machine.float(DOUBLE), 8),), DOUBLE),
        ("stxsdx", "dword", 8, (Move("store", 0, machine.float(DOUBLE), 8),), DOUBLE),
        ("lxvdsx", "dword", 8, (Move("load", 0, at, 8), Move("load", 0, at + 8, 8)), 32 + VECTOR),
    ]
    for name, direction in directions("lxvd2x", "stxvd2x"):
        rows.append((name, "dword", 8, machine.elements(direction, at, 8), 32 + VECTOR))
    for name, direction in directions("lxvw4x", "stxvw4x"):
        rows.append((name, "word", 4, machine.elements(direction, at, 4), 32 + VECTOR))
    if machine.is_power8:
        rows += [
            ("lxsspx", "word", 4, (Move("load", 0, machine.float(SINGLE), 4),), SINGLE),
            ("stxsspx", "word", 4, (Move("store", 0, machine.float(SINGLE), 4),), SINGLE),
            ("lxsiwax", "word", 4, (Move("load", 0, low, 4, 4, True),), DOUBLE),
            ("lxsiwzx", "word", 4, (Move("load", 0, low, 4, 4),), DOUBLE),
            ("stxsiwx", "word", 4, (Move("store", 0, low, 4),), DOUBLE),
        ]
    for name, access_class, size, moves, register in rows:
        one = _opcode(name, access_class, size, moves, register)
        yield from (machine.at(one, address) for address in BY_REGISTER)


FORMS = (_integers, _floats, _reversed, _multiples, _strings, _linked, _quadwords, _vectors)
"""Each makes the rows of one kind for a target."""
