"""Loads and stores of structures of NEON: VLD1 to VLD4 and VST1 to VST4, of whole registers and of lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.isa.encodings.arm.addressing import BASE, INDEX, INDEX_VALUE, V7, double
from harness.isa.encodings.encoding import Encoding, Move, directions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.isa.encodings.encoding import Direction


def _lists(first: int, spacing: int, count: int, lane: str = "") -> str:
    return "{" + ", ".join(f"d{first + spacing * i}{lane}" for i in range(count)) + "}"


class _NeonStructures(NamedTuple):
    """A form of VLD1 to VLD4: structures of so many elements, in registers."""

    elements: int
    bits: int
    registers: str
    moves: tuple[Move, ...]
    hints: tuple[int, ...]
    section: str
    is_load_alone: bool = False


# Elements of a structure, groups of such registers, spacing -> what may be hinted, in bits (A8.8.320, 323, 326, 329).
MULTIPLE = {
    (1, 1, 1): (64,),
    (1, 2, 1): (64, 128),
    (1, 3, 1): (64,),
    (1, 4, 1): (64, 128, 256),
    (2, 1, 1): (64, 128),
    (2, 1, 2): (64, 128),
    (2, 2, 2): (64, 128, 256),
    (3, 1, 1): (64,),
    (3, 1, 2): (64,),
    (4, 1, 1): (64, 128, 256),
    (4, 1, 2): (64, 128, 256),
}
# Elements, bits of one -> the same for one lane, and for all lanes (A8.8.321 and 322, 324, 325, 327, 328, 330, 331).
LANE_HINTS = {
    (1, 16): (16,),
    (1, 32): (32,),
    (2, 8): (16,),
    (2, 16): (32,),
    (2, 32): (64,),
    (4, 8): (32,),
    (4, 16): (64,),
    (4, 32): (64, 128),
}
_MULTIPLE_SECTIONS = {
    1: "A8.8.320, A8.8.404",
    2: "A8.8.323, A8.8.406",
    3: "A8.8.326, A8.8.408",
    4: "A8.8.329, A8.8.410",
}
_LANE_SECTIONS = {1: "A8.8.321, A8.8.405", 2: "A8.8.324, A8.8.407", 3: "A8.8.327, A8.8.409", 4: "A8.8.330, A8.8.411"}
_ALL_LANES_SECTIONS = {1: "A8.8.322", 2: "A8.8.325", 3: "A8.8.328", 4: "A8.8.331"}


def _multiple() -> Iterator[_NeonStructures]:
    for (elements, groups, spacing), hints in MULTIPLE.items():
        for bits in (8, 16, 32, 64) if elements == 1 else (8, 16, 32):
            size, moves, at = bits // 8, [], 0
            for group in range(groups):
                for lane in range(8 // size):
                    for element in range(elements):
                        register = element * spacing + group
                        moves.append(Move("load", at, double(register) + lane * size, size))
                        at += size
            # Of two pairs, the registers of each lie two apart, and together they are four in a row.
            in_a_row = groups > 1
            text = _lists(0, 1 if in_a_row else spacing, elements * groups)
            yield _NeonStructures(elements, bits, text, tuple(moves), hints, _MULTIPLE_SECTIONS[elements])


def _one_lane() -> Iterator[_NeonStructures]:
    for elements in (1, 2, 3, 4):
        for bits in (8, 16, 32):
            size = bits // 8
            for spacing in (1, 2) if elements > 1 and bits > 8 else (1,):
                for lane in (0, 8 // size - 1):
                    moves = tuple(
                        Move("load", i * size, double(spacing * i) + lane * size, size) for i in range(elements)
                    )
                    text = _lists(0, spacing, elements, f"[{lane}]")
                    hints = LANE_HINTS.get((elements, bits), ())
                    yield _NeonStructures(elements, bits, text, moves, hints, _LANE_SECTIONS[elements])


def _all_lanes() -> Iterator[_NeonStructures]:
    for elements in (1, 2, 3, 4):
        for bits in (8, 16, 32):
            size = bits // 8
            # VLD1 fills one register or two with the same element; the others have a spacing.
            for form in (1, 2):
                count, spacing = (form, 1) if elements == 1 else (elements, form)
                moves = tuple(
                    Move("load", 0 if elements == 1 else i * size, double(spacing * i) + lane * size, size)
                    for i in range(count)
                    for lane in range(8 // size)
                )
                text = _lists(0, spacing, count, "[]")
                hints = LANE_HINTS.get((elements, bits), ())
                yield _NeonStructures(
                    elements, bits, text, moves, hints, _ALL_LANES_SECTIONS[elements], is_load_alone=True
                )


def neon() -> Iterator[Encoding]:
    """Everything that loads or stores structures."""
    for one in [*_multiple(), *_one_lane(), *_all_lanes()]:
        for state in ("A32", "T32"):
            for name, direction in directions("vld", "vst")[: 1 if one.is_load_alone else 2]:
                for hint in (0, *one.hints):
                    yield from _in_each_mode(state, name, direction, one, hint)


def _in_each_mode(state: str, name: str, direction: Direction, one: _NeonStructures, hint: int) -> Iterator[Encoding]:
    """`hint`: the alignment that the instruction asks for, in bits; 0 for none."""
    total = max(move.memory + move.size for move in one.moves)
    hinted = f":{hint}" if hint else ""
    modes: list[tuple[str, int, tuple[int, int] | None]] = [
        ("", 0, None),
        ("!", total, None),
        (", r5", INDEX_VALUE, (INDEX, INDEX_VALUE)),
    ]
    for mark, writeback, index in modes:
        yield Encoding(
            state=state,
            text=f"{name}{one.elements}.{one.bits} {one.registers}, [r4{hinted}]{mark}",
            section=one.section,
            access_class="neon",
            direction=direction,
            unit_bytes=one.bits // 8,
            base=BASE,
            moves=tuple(move._replace(direction=direction) for move in one.moves),
            index_register=index,
            writeback=writeback,
            hint_bytes=hint // 8,
            targets=V7,
        )
