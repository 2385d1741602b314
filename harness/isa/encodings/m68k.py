"""Instructions of a 68040's user programs that have an operand in memory.

Sections are those of the M68000 Family Programmer's Reference Manual (M68000PM/AD): chapter 4 has the integer
instructions, 5 those of floating point; the addressing modes are in 2.2. Displacements, registers, immediate data and
conditions are samples; all opcodes are made, in every size and addressing mode whose address a register can hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings import m68k_rows
from harness.isa.encodings.encoding import (
    AddressForm,
    DecoderTable,
    Encoding,
    EncodingTable,
    Exempt,
    Move,
    SlotForm,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.core.target_model import AccessClass
    from harness.isa.encodings.encoding import Change, Direction

FOLDER = Path(__file__).parent
VALUE, OTHER, INDEX, BASE, TARGET = 2, 3, 4, 8, 11
"""%d2 and %d3 are moved, %d4 is the index, %a0 the base; %a3 is what address registers are loaded by."""
MEMORY, FLOATS = 64, 80
"""Where m68k.S has the memory of the other operand, and %fp0."""
INDEX_VALUE = 8
SIZES = {"b": 1, "w": 2, "l": 4, "s": 4, "d": 8}
CLASSES: dict[int, AccessClass] = {1: "other", 2: "half", 4: "word"}
LENGTHS = (1, 2, 3, 4, 5, 6)
"""In words of 16 bits. An instruction has a state for its length."""


class Mode(NamedTuple):
    """An addressing mode: 2.2."""

    address: AddressForm
    words: int
    """Words behind those of the opcode."""
    is_automatic: bool = False
    """Whether it changes the base."""
    is_read_only: bool = False
    """Whether only loads have it."""


def _modes(size: int, index: tuple[int, int]) -> list[Mode]:
    """Every mode, for so many bytes; `index` is the number of the index register and what it holds."""
    number, value = index
    long, word = f"%d{number}.l", f"%d{number}.w"
    short = (value & 0xFFFF ^ 0x8000) - 0x8000
    own = f"%a5,{long}"
    return [
        Mode(AddressForm("(%a0)"), 0),
        Mode(AddressForm("(%a0)+", writeback=size), 0, is_automatic=True),
        Mode(AddressForm("-(%a0)", -size, writeback=-size), 0, is_automatic=True),
        Mode(AddressForm("8(%a0)", 8), 1),
        Mode(AddressForm("0x7ff0(%a0)", 0x7FF0), 1),
        Mode(AddressForm("-0x8000(%a0)", -0x8000), 1),
        Mode(AddressForm(f"(8,%a0,{long})", 8 + value), 1),
        Mode(AddressForm(f"(-128,%a0,{word}*4)", -128 + 4 * short), 1),
        Mode(AddressForm(f"(127,%a0,{long}*8)", 127 + 8 * value), 1),
        # The base may stand in the place of the index.
        Mode(AddressForm("(0x1234,%za1,%a0.l)", 0x1234), 2),
        Mode(AddressForm(f"(0x1234,%a0,{long}*2)", 0x1234 + 2 * value), 2),
        Mode(AddressForm("(0x12345678,%a0)", 0x12345678), 3),
        Mode(AddressForm(f"(-0x12345678,%a0,{word})", -0x12345678 + short), 3),
        # The register file holds the base, so that it is where a pointer lies.
        Mode(AddressForm("([32,%a5])"), 2),
        Mode(AddressForm("([32,%a5],0x1234)", 0x1234), 3),
        Mode(AddressForm(f"([32,%a5],{long}*4,0x1234)", 0x1234 + 4 * value), 3),
        Mode(AddressForm(f"([{32 - value:#x},{own}],-8)", -8), 3),
        Mode(AddressForm(f"([{32 - 2 * value:#x},{own}*2])"), 2),
        Mode(AddressForm("(%zpc,%a0.l)"), 1, is_read_only=True),
        Mode(AddressForm("(0x1234,%zpc,%a0.l)", 0x1234), 2, is_read_only=True),
    ]


def _data(direction: Direction, size: int, register: int = VALUE, change: Change = "") -> tuple[Move, ...]:
    """What moves the lowest bytes of a register."""
    return (Move(direction, 0, _low(register, size), size, change=change),)


def _low(register: int, size: int) -> int:
    return 4 * register + 4 - size


def _extended(register: int, size: int, *, is_signed: bool = True, change: Change = "") -> tuple[Move, ...]:
    """A load that fills a register."""
    return (Move("load", 0, _low(register, size), size, 4 - size, is_signed, change),)


def _constant(size: int, value: int, change: Change = "") -> tuple[Move, ...]:
    """What stores a constant, or combines memory with one."""
    return (Move("store", 0, MEMORY, size, change=change, constant=value),)


def _kept(size: int, change: Change = "", constant: int | None = None) -> tuple[Move, ...]:
    """What is loaded and shows in the memory of the other operand."""
    return (Move("load", 0, MEMORY, size, change=change, constant=constant),)


SIGN = (Move("load", 0, 4 * OTHER + 4, 0, 4, True),)
"""%d3 is filled with the sign of what is there."""
SHOWN_SIGN = ("smi %d3", "extb.l %d3")
NOTHING = (Move("load", 0, 0, 0),)


def _each(
    text: str,
    size: int,
    moves: tuple[Move, ...],
    *,
    words: int = 0,
    unit: int = 0,
    access_class: AccessClass | None = None,
    index: tuple[int, int] = (INDEX, INDEX_VALUE),
    chapter: int = 4,
    only: Callable[[Mode], bool] = lambda _: True,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    results: tuple[tuple[int, int], ...] = (),
    is_read_only: bool | None = None,
) -> Iterator[Encoding]:
    """An instruction in each mode; a `{}` in its text is the address, as in what is before it.

    `words`: those of the opcode beside the first. `unit`: 0 for all of its bytes.
    """
    stores = any(move.direction == "store" for move in moves)
    loads_only = not stores if is_read_only is None else is_read_only
    for mode in _modes(size, index):
        if not only(mode) or (mode.is_read_only and not loads_only):
            continue
        address = mode.address
        yield Encoding(
            state=str(16 * (1 + words + mode.words)),
            text=text.format(address.text),
            section=f"{chapter}, {text.split(maxsplit=1)[0].partition('.')[0].upper()}",
            access_class=access_class or CLASSES[unit or size],
            direction="store" if stores else "load",
            unit_bytes=unit or size,
            base=BASE,
            moves=moves,
            displacement=address.displacement,
            index_register=index,
            writeback=address.writeback,
            results=results,
            before=tuple(line.format(address.text) for line in before),
            after=after,
        )


def _is_control(mode: Mode) -> bool:
    return not mode.is_automatic


def _goes_up(mode: Mode) -> bool:
    """What loads several registers has it."""
    return not mode.address.text.startswith("-(")


def _goes_down(mode: Mode) -> bool:
    """What stores several registers has it."""
    return not mode.address.text.endswith("+")


def _moves() -> Iterator[Encoding]:
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        yield from _each(f"move.{letter} {{}},%d2", size, _data("load", size))
        yield from _each(f"move.{letter} %d2,{{}}", size, _data("store", size))
        if size > 1:
            yield from _each(f"movea.{letter} {{}},%a3", size, _extended(TARGET, size))
            yield from _each(f"move.{letter} %a3,{{}}", size, _data("store", size, TARGET))
        yield from _each(f"move.{letter} {{}},64(%a5)", size, (Move("load", 0, MEMORY, size),), words=1)
        yield from _each(f"move.{letter} 64(%a5),{{}}", size, (Move("store", 0, MEMORY, size),), words=1)
        for there, place in (("(%a1)", 64), ("(%a1)+", 64), ("-(%a1)", 64 + size)):
            point = (f"lea {place}(%a5),%a1",)
            moved = (Move("load", 0, MEMORY, size), Move("store", 0, MEMORY, size))
            yield from _each(f"move.{letter} {{}},{there}", size, moved[:1], before=point)
            yield from _each(f"move.{letter} {there},{{}}", size, moved[1:], before=point)
        value = -0x5B if size == 1 else -0x5BCD if size == 2 else -0x5BCDEF12
        words = max(size // 2, 1)
        yield from _each(f"move.{letter} #{value},{{}}", size, _constant(size, value), words=words)
        yield from _each(f"clr.{letter} {{}}", size, _constant(size, 0))
    yield from _each("move.w %ccr,{}", 2, _constant(2, 21), before=("move.w #21,%ccr",))
    flags = _kept(2, "and", 0x1F)
    yield from _each("move.w {},%ccr", 2, flags, after=("move.w %ccr,64(%a5)",))


def _peripherals() -> Iterator[Encoding]:
    """MOVEP: every second byte."""
    for letter, size in (("w", 2), ("l", 4)):
        for text, direction in (("movep.{} {}(%a0),%d2", "load"), ("movep.{} %d2,{}(%a0)", "store")):
            for by in (0, 8, 0x7FF0, -0x8000):
                moves = tuple(Move(_direction(direction), 2 * i, _low(VALUE, size) + i, 1) for i in range(size))
                yield _alone(text.format(letter, by), 1, moves, displacement=by, unit=1)


def _direction(name: str) -> Direction:
    return "load" if name == "load" else "store"


def _alone(
    text: str,
    words: int,
    moves: tuple[Move, ...],
    *,
    unit: int,
    displacement: int = 0,
    writeback: int = 0,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    results: tuple[tuple[int, int], ...] = (),
    truncates: bool = False,
) -> Encoding:
    """An instruction that has one form of its address."""
    stores = any(move.direction == "store" for move in moves)
    return Encoding(
        state=str(16 * (1 + words)),
        text=text,
        section=f"4, {text.split(maxsplit=1)[0].partition('.')[0].upper()}",
        access_class=CLASSES.get(unit, "other"),
        direction="store" if stores else "load",
        unit_bytes=unit,
        base=BASE,
        moves=moves,
        displacement=displacement,
        writeback=writeback,
        before=before,
        after=after,
        results=results,
        truncates=truncates,
    )


def _multiples() -> Iterator[Encoding]:
    for letter, size in (("w", 2), ("l", 4)):
        for listed, registers in (("%d2-%d3", (2, 3)), ("%d3/%d7/%a3", (3, 7, TARGET))):
            count = len(registers)
            stores, loads = [], []
            for i, register in enumerate(registers):
                stores.append(Move("store", size * i, _low(register, size), size))
                loads.append(Move("load", size * i, _low(register, size), size, 4 - size, is_signed=True))
            yield from _each(
                f"movem.{letter} {listed},{{}}",
                count * size,
                tuple(stores),
                words=1,
                unit=size,
                only=_goes_down,
            )
            yield from _each(
                f"movem.{letter} {{}},{listed}",
                count * size,
                tuple(loads),
                words=1,
                unit=size,
                only=_goes_up,
            )


def _lines() -> Iterator[Encoding]:
    """MOVE16: 16 bytes, wherever in them the address lies."""
    load = tuple(Move("load", 4 * i, MEMORY + 4 * i, 4) for i in range(4))
    store = tuple(Move("store", 4 * i, MEMORY + 4 * i, 4) for i in range(4))
    point = ("lea 64(%a5),%a1",)
    fetch = tuple(f"move.l sweep_line+{4 * i},{64 + 4 * i}(%a5)" for i in range(4))
    bring = tuple(f"move.l {64 + 4 * i}(%a5),sweep_line+{4 * i}" for i in range(4))
    for text, words, moves, writeback, before, after in (
        ("(%a0)+,(%a1)+", 1, load, 16, point, ()),
        ("(%a1)+,(%a0)+", 1, store, 16, point, ()),
        ("(%a0)+,sweep_line", 2, load, 16, (), fetch),
        ("(%a0),sweep_line", 2, load, 0, (), fetch),
        ("sweep_line,(%a0)+", 2, store, 16, bring, ()),
        ("sweep_line,(%a0)", 2, store, 0, bring, ()),
    ):
        yield _alone(
            f"move16 {text}", words, moves, unit=16, writeback=writeback, before=before, after=after, truncates=True
        )


def _arithmetic() -> Iterator[Encoding]:
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        changes: list[tuple[str, Change]] = [
            ("add", "add"),
            ("sub", "sub"),
            ("and", "and"),
            ("or", "or"),
            ("eor", "xor"),
        ]
        value = -0x5B if size == 1 else -0x5BCD if size == 2 else -0x5BCDEF12
        for name, change in changes:
            if name != "eor":
                yield from _each(f"{name}.{letter} {{}},%d2", size, _data("load", size, change=change))
            yield from _each(f"{name}.{letter} %d2,{{}}", size, _data("store", size, change=change))
            immediate = f"{name}i.{letter} #{value},{{}}"
            yield from _each(immediate, size, _constant(size, value, change), words=max(size // 2, 1))
        for name, change in changes[:2]:
            yield from _each(f"{name}q.{letter} #5,{{}}", size, _constant(size, 5, change))
            if size > 1:
                moves = _extended(TARGET, size, change=change)
                yield from _each(f"{name}a.{letter} {{}},%a3", size, moves)
            both = f"{name}x.{letter} "
            clear, point = "move.w #0,%ccr", f"lea {64 + size}(%a5),%a1"
            for text, moves in (
                ("-(%a0),-(%a1)", (Move("load", 0, MEMORY, size, change=change),)),
                ("-(%a1),-(%a0)", (Move("store", 0, MEMORY, size, change=change),)),
            ):
                yield _alone(
                    both + text,
                    0,
                    moves,
                    unit=size,
                    displacement=-size,
                    writeback=-size,
                    before=(point, clear),
                )
        yield from _each(f"neg.{letter} {{}}", size, _constant(size, 0, "from"))
        yield from _each(f"negx.{letter} {{}}", size, _constant(size, 0, "from"), before=("move.w #0,%ccr",))
        yield from _each(f"not.{letter} {{}}", size, _constant(size, -1, "xor"))


def _comparisons() -> Iterator[Encoding]:
    """With what was fetched before, so that they are equal, where the address is the same again."""
    equal = ("seq %d3", "extb.l %d3")
    yes = ((OTHER, -1),)
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        fetch = (f"move.{letter} {{}},%d2",)
        got = _data("load", size)
        yield from _each(f"cmp.{letter} {{}},%d2", size, got, before=fetch, after=equal, results=yes, only=_is_control)
        yield from _each(f"cmp.{letter} {{}},%d2", size, NOTHING, only=lambda mode: mode.is_automatic)
        words = max(size // 2, 1)
        yield from _each(f"cmpi.{letter} #-77,{{}}", size, NOTHING, words=words)
        yield from _each(f"tst.{letter} {{}}", size, SIGN, after=SHOWN_SIGN)
        both = f"cmpm.{letter} "
        point = ("lea 64(%a5),%a1",)
        yield _alone(f"{both}(%a0)+,(%a1)+", 0, NOTHING, unit=size, writeback=size, before=point)
        yield _alone(f"{both}(%a1)+,(%a0)+", 0, NOTHING, unit=size, writeback=size, before=point)
        if size > 1:
            fetch = (f"movea.{letter} {{}},%a3",)
            moves = _extended(TARGET, size)
            text = f"cmpa.{letter} {{}},%a3"
            yield from _each(text, size, moves, before=fetch, after=equal, results=yes, only=_is_control)
            yield from _each(text, size, NOTHING, only=lambda mode: mode.is_automatic)
    # The lower bound lies at the lower address. What is equal to it lies between the bounds.
    yield from _each(
        "chk2.b {},%d2",
        2,
        _data("load", 1),
        words=1,
        unit=1,
        before=("move.b {},%d2",),
        after=equal,
        results=yes,
        only=_is_control,
    )


def _products() -> Iterator[Encoding]:
    """Multiplications by 1, and divisions of 0."""
    one, zero = (VALUE, 1), (VALUE, 0)
    for name, is_signed in (("mulu", False), ("muls", True)):
        moves = _extended(VALUE, 2, is_signed=is_signed)
        yield from _each(f"{name}.w {{}},%d2", 2, moves, index=one)
        yield from _each(f"{name}.l {{}},%d2", 4, _data("load", 4), index=one, words=1)
        high = Move("load", 0, 4 * OTHER + 4, 0, 4, is_signed)
        yield from _each(f"{name}.l {{}},%d3:%d2", 4, (*_data("load", 4), high), index=one, words=1)
    for name in ("divu", "divs"):
        yield from _each(f"{name}.w {{}},%d2", 2, NOTHING, index=zero, results=((VALUE, 0),))
        yield from _each(f"{name}.l {{}},%d2", 4, NOTHING, index=zero, results=((VALUE, 0),), words=1)
        both = ((VALUE, 0), (OTHER, 0))
        yield from _each(f"{name}l.l {{}},%d3:%d2", 4, NOTHING, index=zero, results=both, words=1)


def _shifts() -> Iterator[Encoding]:
    """Of a word in memory, by one; those through X with X clear. ASR and LSR: see `unmade`."""
    rows: list[tuple[str, Change]] = [("asl", "shl"), ("lsl", "shl"), ("rol", "rol"), ("ror", "ror")]
    through: list[tuple[str, Change]] = [("roxl", "shl"), ("roxr", "shr")]
    for name, change in (*rows, *through):
        yield from _each(f"{name}.w {{}}", 2, _constant(2, 0, change), before=("move.w #0,%ccr",))


def _bits() -> Iterator[Encoding]:
    """Of a byte, and fields of several bytes."""
    rows: list[tuple[str, int, Change]] = [("bset", 0x80, "or"), ("bclr", 0x7F, "and"), ("bchg", 0x80, "xor")]
    for name, value, change in rows:
        yield from _each(f"{name} #7,{{}}", 1, _constant(1, value, change), words=1)
        moves = _constant(1, value, change)
        yield from _each(f"{name} %d5,{{}}", 1, moves, before=("moveq #7,%d5",), results=((5, 7),))
    shown = ("sne %d3", "extb.l %d3")
    yield from _each("btst #7,{}", 1, SIGN, words=1, after=shown)
    yield from _each("btst %d5,{}", 1, SIGN, before=("moveq #7,%d5",), results=((5, 7),), after=shown)
    yield from _each("tas {}", 1, _constant(1, 0x80, "or"))
    yield from _each("st {}", 1, _constant(1, -1))
    yield from _each("sf {}", 1, _constant(1, 0))
    yield from _each("seq {}", 1, _constant(1, -1), before=("move.w #4,%ccr",))
    yield from _fields()


def _fields() -> Iterator[Encoding]:
    """Bit fields: of whole bytes, so that there is something to compare them with."""

    def each(text: str, moves: tuple[Move, ...], after: tuple[str, ...] = ()) -> Iterator[Encoding]:
        yield from _each(text, 1, moves, words=1, unit=1, only=_is_control, after=after)

    def memory(first: int, size: int, change: Change) -> tuple[Move, ...]:
        return (Move("store", first, MEMORY, size, change=change, constant=-1),)

    yield from each("bfextu {}{{#0:#32}},%d2", (Move("load", 0, 8, 4),))
    yield from each("bfextu {}{{#8:#16}},%d2", (Move("load", 1, 10, 2, 2),))
    yield from each("bfextu {}{{#24:#24}},%d2", (Move("load", 3, 9, 3, 1),))
    yield from each("bfexts {}{{#8:#16}},%d2", (Move("load", 1, 10, 2, 2, True),))
    yield from each("bfexts {}{{#24:#8}},%d2", (Move("load", 3, 11, 1, 3, True),))
    yield from each("bfins %d2,{}{{#0:#32}}", (Move("store", 0, 8, 4),))
    yield from each("bfins %d2,{}{{#24:#24}}", (Move("store", 3, 9, 3),))
    yield from each("bfchg {}{{#8:#24}}", memory(1, 3, "xor"))
    yield from each("bfset {}{{#16:#32}}", memory(2, 4, ""))
    yield from each("bfclr {}{{#8:#16}}", (Move("store", 1, MEMORY, 2, constant=0),))
    yield from each("bftst {}{{#8:#16}}", (Move("load", 1, 16, 0, 4, True),), SHOWN_SIGN)


def _exchanges() -> Iterator[Encoding]:
    """CAS with what is not there, and with what is; CAS2 twice with the same place."""
    for letter, size in (("b", 1), ("w", 2), ("l", 4)):
        got, put = Move("load", 0, _low(VALUE, size), size), Move("store", 0, _low(OTHER, size), size)
        nothing = Move("store", 0, 0, 0)
        # The lowest byte of %d7 is none of those that are accessed.
        moves = (Move("load", 0, _low(7, size), size), nothing)
        yield from _each(f"cas.{letter} %d7,%d3,{{}}", size, moves, words=1)
        fetch, text = (f"move.{letter} {{}},%d2",), f"cas.{letter} %d2,%d3,{{}}"
        yield from _each(text, size, (got, put), words=1, before=fetch, only=_is_control)
        if size > 1:
            both = (got, Move("load", 0, _low(OTHER, size), size), nothing)
            yield _alone(f"cas2.{letter} %d2:%d3,%d6:%d7,(%a0):(%a0)", 2, both, unit=size)


def _stack() -> Iterator[Encoding]:
    """What pushes and pops beside MOVE: with the stack where the base points to."""
    push = ("lea 4(%a0),%a1", "move.l %a1,%sp")
    yield _alone("pea (%a3)", 0, (Move("store", 0, 4 * TARGET, 4),), unit=4, before=push)
    # The base is what is pushed, and the new frame pointer.
    yield _alone("link.w %a0,#-8", 1, (Move("store", 0, 4 * BASE, 4),), unit=4, before=push)
    yield _alone("link.l %a0,#-80000", 2, (Move("store", 0, 4 * BASE, 4),), unit=4, before=push)
    yield _alone("unlk %a0", 0, (Move("load", 0, 4 * BASE, 4),), unit=4)


def _float_each(
    text: str,
    size: int,
    moves: tuple[Move, ...],
    access_class: AccessClass,
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> Iterator[Encoding]:
    """An instruction of floating point in each mode."""
    yield from _each(text, size, moves, words=1, access_class=access_class, chapter=5, before=before, after=after)


def _floats() -> Iterator[Encoding]:
    """Numbers are loaded into %fp0 and shown in memory, in the format that they had there."""
    formats: list[tuple[str, int, AccessClass]] = [
        ("b", 1, "other"),
        ("w", 2, "other"),
        ("l", 4, "float"),
        ("s", 4, "float"),
        ("d", 8, "double"),
    ]

    for letter, size, of in formats:
        shown = (f"fmove.{letter} %fp0,64(%a5)",)
        loaded = _kept(size, "quiet" if letter == "s" else "")
        for name in ("fmove", "fsmove" if size < 4 else "fdmove"):
            yield from _float_each(f"{name}.{letter} {{}},%fp0", size, loaded, of, after=shown)
        place = MEMORY if size == 8 else 4 * VALUE + 4 - size
        fetched = (f"fmove.{letter} {place}(%a5),%fp0",)
        yield from _float_each(f"fmove.{letter} %fp0,{{}}", size, (Move("store", 0, place, size),), of, before=fetched)
        zero, one = ("fmove.b #0,%fp0",), ("fmove.b #1,%fp0",)
        yield from _float_each(f"fadd.{letter} {{}},%fp0", size, loaded, of, before=zero, after=shown)
        yield from _float_each(f"fmul.{letter} {{}},%fp0", size, loaded, of, before=one, after=shown)
        tested = ("fslt %d3", "extb.l %d3")
        yield from _float_each(f"ftst.{letter} {{}}", size, SIGN, of, after=tested)
        yield from _float_each(f"fcmp.{letter} {{}},%fp0", size, NOTHING, of)
        if letter in "bwl":
            for name in ("fint", "fintrz"):
                yield from _float_each(f"{name}.{letter} {{}},%fp0", size, loaded, of, after=shown)
            negative = _kept(size, "sub", 0)
            yield from _float_each(f"fneg.{letter} {{}},%fp0", size, negative, of, after=shown)
            yield from _float_each(f"fsub.{letter} {{}},%fp0", size, negative, of, before=zero, after=shown)
    yield from _extended_floats()
    yield from _float_each("fst {}", 1, _constant(1, -1), "other")
    yield from _float_each("fsf {}", 1, _constant(1, 0), "other")


def _float(number: int) -> int:
    return FLOATS + 12 * number


def _extended_floats() -> Iterator[Encoding]:
    """Numbers of 96 bits, of which 16 are 0: two units of 4 bytes at least."""
    load = (Move("load", 0, _float(1), 2), Move("load", 4, _float(1) + 4, 8))

    def stored(number: int, place: int) -> tuple[Move, ...]:
        at = _float(number)
        return (
            Move("store", place, at, 2),
            Move("store", place + 2, MEMORY, 2, constant=0),
            Move("store", place + 4, at + 4, 8),
        )

    def each(
        text: str, size: int, moves: tuple[Move, ...], only: Callable[[Mode], bool], listed: int = 0x60
    ) -> Iterator[Encoding]:
        yield from _each(
            text,
            size,
            moves,
            words=1,
            unit=4,
            access_class="float",
            chapter=5,
            only=only,
            index=(INDEX, listed),
        )

    yield from each("fmove.x {},%fp1", 12, load, lambda _: True)
    yield from each("fmove.x %fp1,{}", 12, stored(1, 0), lambda _: True)
    two = (*load, Move("load", 12, _float(2), 2), Move("load", 16, _float(2) + 4, 8))
    for listed in ("%fp1-%fp2", "%d4"):
        # gas does not take PC for these.
        yield from each(f"fmovem.x {{}},{listed}", 24, two, lambda mode: _goes_up(mode) and not mode.is_read_only)
        moves = (*stored(1, 0), *stored(2, 12))
        yield from each(f"fmovem.x {listed},{{}}", 24, moves, _is_control)
        # The bits of %d4 are the other way round.
        yield from each(f"fmovem.x {listed},{{}}", 24, moves, lambda mode: mode.address.text == "-(%a0)", 6)


def _controls() -> Iterator[Encoding]:
    """The control registers of floating point, which hold 0 here. What is loaded into FPIAR cannot be seen in QEMU."""
    clear = ("fmove.l #0,%fpsr", "fmove.l #0,%fpiar")
    for name, letter in (("fpcr", "l"), ("fpsr", "l"), ("fpiar", "l")):
        yield from _each(
            f"fmove.{letter} %{name},{{}}", 4, _constant(4, 0), words=1, access_class="float", chapter=5, before=clear
        )
    yield from _each("fmove.l {},%fpiar", 4, NOTHING, words=1, access_class="float", chapter=5, only=_goes_up)
    two = (Move("store", 0, MEMORY, 8, constant=0),)
    yield from _each("fmovem.l %fpcr/%fpsr,{}", 8, two, words=1, unit=4, access_class="float", chapter=5, before=clear)


def _all() -> Sequence[Encoding]:
    return [
        *_moves(),
        *_peripherals(),
        *_multiples(),
        *_lines(),
        *_arithmetic(),
        *_comparisons(),
        *_products(),
        *_shifts(),
        *_bits(),
        *_exchanges(),
        *_stack(),
        *_floats(),
        *_controls(),
    ]


_PRIVILEGED = "Only the kernel may use it (6)."
TABLE = EncodingTable(
    encodings=_all(),
    preamble={"m68k": ".cpu 68040"},
    syntax="",
    states={
        str(16 * length): SlotForm(
            "",
            "jmp sweep_return",
            ("-m", "m68k:68040", "-EB"),
            lambda word, _, length=length: word.to_bytes(2 * length, "big"),  # type: ignore[misc]
            assembler=("-m68040",),
            bits=16 * length,
            padding=b"\x4e\x71" * 6,
        )
        for length in LENGTHS
    },
    assembly=FOLDER / "m68k.S",
    header=FOLDER / "m68k.h",
    names=r"(?!lea |jmp |jsr )[a-z]\w* .*@|link|unlk",
    decoder_names=r"\w+ (memory|.*\(.*)",
    decoders=[
        DecoderTable(
            "target/m68k/translate.c",
            str(16 * length),
            form=m68k_rows.row_form(16 * length),
        )
        for length in LENGTHS
    ],
    unread=[
        Exempt(
            r"\d+ .*(,PC|full).*",
            "The row takes modes that the instruction lacks. What stands relative to PC is no destination.",
        ),
        Exempt(
            r"\d+ fpu (load (several 0|as listed 1)|store (several 0|as listed 1)) .*",
            "Only what stores on the way down has a list of that form.",
        ),
        Exempt(r"\d+ move (An,.*|.*,An)", "A byte is none of an address register's."),
        Exempt(
            r"\d+ (pea|chk2|bf\w+|movem|fpu (load|store) (several|as listed) \d) (\(An\)\+|-\(An\))",
            "The row takes modes that the instruction lacks: those that change the base, or one of the two.",
        ),
    ],
    unassembled=[
        Exempt(
            r"\d+ .*(\)@\(|@\((?![1-9],)-?[\da-f]+,|@\([\da-f]{8}\)).*",
            "objdump prints displacements of extension words in hexadecimal, and gas takes them for decimal.",
        ),
        Exempt(r"48 move16 .*", "objdump prints the absolute address as a symbol, and without it in hexadecimal."),
    ],
    unmade=[
        Exempt(
            r"\d+ .*(@\(.*[,)]@|@\([-\da-f]+,|@\([\da-f]{8}\)|@\(0\)).*",
            "Which index, scale and displacements an address has are samples. Every instruction is made with several.",
        ),
        Exempt(r"\d+ .*%z?pc@.*", "Its address is where its code lies. Without PC, %zpc, each load is made."),
        Exempt(r"\d+ move[bwl] .*@.*,.*@.*", "It has two operands in memory. Each is made beside a simple one."),
        Exempt(r"\d+ ([an]bcd|sbcd|pack|unpk) .*", "Decimal digits by bytes: no address is misaligned for them."),
        Exempt(r"\d+ chk[wl] .*", "It traps where what is there is negative, and has no effect elsewhere."),
        Exempt(
            r"\d+ (cmp2[bwl]|chk2[wl]) .*",
            "No compiler writes it. QEMU 10.0.13 raises SIGILL: it has no CMP2, and its rows of undefined instructions "
            "take CHK2.W and CHK2.L (target/m68k/translate.c, disas_chk2 and register_m68k_insns).",
        ),
        Exempt(
            r"\d+ move[bwl] (0x\w+,.*|.*,0x\w+)",
            "An absolute address is a constant of the code, which the sweep cannot change from offset to offset.",
        ),
        Exempt(r"\d+ pea .*@\(.*", "It calculates an address, as LEA does. What it stores, and where, is made."),
        Exempt(
            r"\d+ f[a-z\d]+p .*@.*",
            "Packed decimal numbers, which a 68040 leaves to the kernel's software (1.6, and FMOVE in 5).",
        ),
        Exempt(
            r"\d+ (asr|lsr)w .*",
            "No compiler writes it. QEMU 10.0.13 tells the two apart by a bit of the addressing mode "
            "(target/m68k/translate.c, disas_shift_mem).",
        ),
        Exempt(
            r"\d+ fmovem?l %\w+@-,.*",
            "No compiler writes it. QEMU 10.0.13 leaves the base as it was "
            "(target/m68k/translate.c, gen_op_fmove_fcr).",
        ),
        Exempt(r"\d+ bfffo .*", "What it finds depends on what is there."),
        Exempt(
            r"\d+ (fsave|frestore|ptest[rw]|pflush\w*|cpush\w*|cinv\w*|moves[bwl]|movew (%sr,.*|.*,%sr)).*", _PRIVILEGED
        ),
    ],
    registers=("--insn-width=24",),
    comment=r";",
    compiler_flags=("-malign-int",),
)
