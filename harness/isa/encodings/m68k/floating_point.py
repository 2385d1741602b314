"""Instructions of a 68040 that have a floating-point number or a control register in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.isa.encodings.encoding import Move
from harness.isa.encodings.m68k.addressing import INDEX, VALUE, Mode, goes_up, is_control
from harness.isa.encodings.m68k.instruction import FLOATS, MEMORY, NOTHING, SIGN, M68kInstruction, constant, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.core.target_model import AccessClass


def _number(
    text: str,
    size: int,
    moves: tuple[Move, ...],
    access_class: AccessClass,
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> M68kInstruction:
    """An instruction that has a number in memory."""
    return M68kInstruction(text, size, moves, words=1, access_class=access_class, chapter=5, before=before, after=after)


def _floats() -> Iterator[M68kInstruction]:
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
        loaded = kept(size, "quiet" if letter == "s" else "")
        for name in ("fmove", "fsmove" if size < 4 else "fdmove"):
            yield _number(f"{name}.{letter} {{}},%fp0", size, loaded, of, after=shown)
        place = MEMORY if size == 8 else 4 * VALUE + 4 - size
        fetched = (f"fmove.{letter} {place}(%a5),%fp0",)
        yield _number(f"fmove.{letter} %fp0,{{}}", size, (Move("store", 0, place, size),), of, before=fetched)
        zero, one = ("fmove.b #0,%fp0",), ("fmove.b #1,%fp0",)
        yield _number(f"fadd.{letter} {{}},%fp0", size, loaded, of, before=zero, after=shown)
        yield _number(f"fmul.{letter} {{}},%fp0", size, loaded, of, before=one, after=shown)
        tested = ("fslt %d3", "extb.l %d3")
        yield _number(f"ftst.{letter} {{}}", size, SIGN, of, after=tested)
        yield _number(f"fcmp.{letter} {{}},%fp0", size, NOTHING, of)
        if letter in "bwl":
            for name in ("fint", "fintrz"):
                yield _number(f"{name}.{letter} {{}},%fp0", size, loaded, of, after=shown)
            negative = kept(size, "sub", 0)
            yield _number(f"fneg.{letter} {{}},%fp0", size, negative, of, after=shown)
            yield _number(f"fsub.{letter} {{}},%fp0", size, negative, of, before=zero, after=shown)
    yield from _extended_floats()
    yield _number("fst {}", 1, constant(1, -1), "other")
    yield _number("fsf {}", 1, constant(1, 0), "other")


def _float(number: int) -> int:
    return FLOATS + 12 * number


def _extended_floats() -> Iterator[M68kInstruction]:
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
    ) -> M68kInstruction:
        return M68kInstruction(
            text,
            size,
            moves,
            words=1,
            unit=4,
            access_class="float",
            chapter=5,
            only=only,
            index_register=(INDEX, listed),
        )

    yield each("fmove.x {},%fp1", 12, load, lambda _: True)
    yield each("fmove.x %fp1,{}", 12, stored(1, 0), lambda _: True)
    two = (*load, Move("load", 12, _float(2), 2), Move("load", 16, _float(2) + 4, 8))
    for listed in ("%fp1-%fp2", "%d4"):
        # gas does not take PC for these.
        yield each(f"fmovem.x {{}},{listed}", 24, two, lambda mode: goes_up(mode) and not mode.is_read_only)
        moves = (*stored(1, 0), *stored(2, 12))
        yield each(f"fmovem.x {listed},{{}}", 24, moves, is_control)
        # The bits of %d4 are reversed.
        yield each(f"fmovem.x {listed},{{}}", 24, moves, lambda mode: mode.address.text == "-(%a0)", 6)


def _controls() -> Iterator[M68kInstruction]:
    """The control registers of floating point, which hold 0 here. What is loaded into FPIAR cannot be seen in QEMU."""
    clear = ("fmove.l #0,%fpsr", "fmove.l #0,%fpiar")
    for name, letter in (("fpcr", "l"), ("fpsr", "l"), ("fpiar", "l")):
        yield M68kInstruction(
            f"fmove.{letter} %{name},{{}}", 4, constant(4, 0), words=1, access_class="float", chapter=5, before=clear
        )
    yield M68kInstruction("fmove.l {},%fpiar", 4, NOTHING, words=1, access_class="float", chapter=5, only=goes_up)
    two = (Move("store", 0, MEMORY, 8, constant=0),)
    yield M68kInstruction(
        "fmovem.l %fpcr/%fpsr,{}", 8, two, words=1, unit=4, access_class="float", chapter=5, before=clear
    )


def floating_point() -> Iterator[M68kInstruction]:
    """Everything of floating point."""
    yield from _floats()
    yield from _controls()
