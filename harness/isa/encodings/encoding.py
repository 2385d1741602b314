"""The form of an encoding: its text, its address, what it moves, and the alignment that it requires."""

from __future__ import annotations

import re  # noqa: TC003 - see below
from collections.abc import Callable, Iterable, Mapping, Sequence  # noqa: TC003 - the annotations of NamedTuples are evaluated
from pathlib import Path  # noqa: TC003 - see above
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.core.target_model import Endianness

if TYPE_CHECKING:
    from harness.core.target_model import AccessClass

Direction = Literal["load", "store"]
Change = Literal["", "add", "sub", "from", "and", "or", "xor", "shl", "shr", "sar", "rol", "ror", "quiet"]
"""What becomes of what was there: nothing that counts, the sum with what is moved, the difference, that difference
reversed, three combinations of bits, five shifts by one; or a number whose signalling NaN becomes quiet.
"""


OFFSETS = (0, 8, -8, 0x7FF0, -0x8000)
"""Displacements that tables have of fields of 16 bits."""


class Move(NamedTuple):
    """Bytes that an instruction copies between memory and the register file."""

    direction: Direction
    memory: int
    """Bytes past the address of the access."""
    register: int
    """Bytes past the start of the register file, whose layout the assembly beside this module defines."""
    size: int
    extension: int = 0
    """How many more bytes of the register a load fills with zeros, or with copies of the sign."""
    is_signed: bool = False
    change: Change = ""
    """How the moved value is combined with the previous one."""
    constant: int | None = None
    """Replaces the register's value."""


class Encoding(NamedTuple):
    """An instruction with one form of operands, and everything that it changes."""

    state: str
    """Its instruction set, if a processor has several: `T32`."""
    text: str
    """The instruction in the assembler's notation. State and text together are the encoding's name."""
    section: str
    """The section of the manual that describes it."""
    access_class: AccessClass
    direction: Direction
    """As in rules and records: an instruction that loads and stores counts as a store."""
    unit_bytes: int
    """The unit whose alignment counts."""
    base: int
    """Number of the register that holds the address."""
    moves: tuple[Move, ...]
    """Its effect if it succeeds."""
    displacement: int = 0
    """How far the access is beyond the base."""
    index_register: tuple[int, int] | None = None
    """Number and value of the register that is a part of the displacement."""
    writeback: int = 0
    """What is added to the base afterwards."""
    results: tuple[tuple[int, int], ...] = ()
    """Numbers and values of registers that it sets, as a conditional store does."""
    hint_bytes: int = 0
    """The alignment that the instruction itself requires; 0 if it requires nothing beyond its unit."""
    truncates: bool = False
    """Whether it drops the low bits of its address by definition, so that no address is misaligned for it."""
    before: tuple[str, ...] = ()
    """Instructions that it needs before it: a conditional store needs its load."""
    after: tuple[str, ...] = ()
    """Instructions that show its effect, such as those that read flags. They do not run if it is refused."""
    targets: tuple[str, ...] = ("*",)
    """Globs of the targets that have it."""

    @property
    def name(self) -> str:
        """Its name in tables and reports."""
        return " ".join(filter(None, [self.state, *(f"{line};" for line in self.before), self.text]))


def directions(load: str, store: str) -> list[tuple[str, Direction]]:
    """The names of two instructions that are alike, each with its direction."""
    return [(load, "load"), (store, "store")]


class AddressForm(NamedTuple):
    """An addressing mode, in the assembler's notation."""

    text: str
    displacement: int = 0
    """How far the access is beyond the base."""
    writeback: int = 0
    """What is added to the base afterwards."""
    index_register: tuple[int, int] | None = None
    """Number and value of the register that is a part of the displacement."""
    before: tuple[str, ...] = ()
    """Instructions that it needs before it."""


class Opcode(NamedTuple):
    """An instruction's operation and operand, for any addressing mode."""

    name: str
    """The mnemonic in the assembler's notation. A `{}` stands for the part that depends on the addressing mode."""
    operand: str
    """The operand that it moves, in the assembler's notation: `r2, r3`."""
    section: str
    access_class: AccessClass
    direction: Direction
    unit_bytes: int
    moves: tuple[Move, ...]

    def at(
        self,
        address: AddressForm,
        text: str,
        *,
        base: int,
        state: str = "",
        hint_bytes: int = 0,
        truncates: bool = False,
        targets: tuple[str, ...] = ("*",),
    ) -> Encoding:
        """Its encoding with an address; `text` is the whole instruction."""
        return Encoding(
            state=state,
            text=text,
            section=self.section,
            access_class=self.access_class,
            direction=self.direction,
            unit_bytes=self.unit_bytes,
            base=base,
            moves=self.moves,
            displacement=address.displacement,
            index_register=address.index_register,
            writeback=address.writeback,
            hint_bytes=hint_bytes,
            truncates=truncates,
            before=address.before,
            targets=targets,
        )


class SlotForm(NamedTuple):
    """How a program has an instruction of one state, and how the disassembler reads it."""

    begin: str
    """Directives before it in a slot."""
    end: str
    """Instructions behind it, back to `sweep_run`."""
    disassembler: tuple[str, ...]
    """objdump's options for plain bytes of it, big-endian where it has a choice."""
    bytes_of: Callable[[int, Endianness], bytes]
    """An instruction as bytes in the memory of a target with that byte order."""
    assembler: tuple[str, ...] = ()
    """The compiler's options for assembly that the disassembler has printed, which names later processors' things."""
    bits: int = 32
    address_bits: int = 0
    """The number to add to the address of its code."""
    object_format: str = ""
    """The format of an object that contains the bytes, if the disassembler does not read plain bytes, as LLVM's does
    not.
    """
    padding: bytes = b""
    """Bytes after an instruction, if lengths differ: they make objdump resynchronise after an instruction that it does
    not know.
    """


class RowForm(NamedTuple):
    """How a table of a decoder that is not a decodetree is written in C."""

    row: str
    """A pattern of a row; its group `name` is the instruction's."""
    fixed: Callable[[re.Match[str]], tuple[int, int]]
    """Row -> a mask of the bits that it fixes, and their value."""
    divided: Callable[[str, int, int], Iterable[tuple[str, int, int]]] | None = None
    """Name, mask and value of a row -> those of each form of operands that it decodes."""
    is_last_first: bool = False
    """Whether a row takes precedence over earlier rows for what it matches."""


class DecoderTable(NamedTuple):
    """A table with which the emulator decodes instructions."""

    file: str
    """Its path in the emulator's source."""
    state: str
    """The instruction set that it decodes."""
    decodes: Callable[[int], bool] = lambda _: True
    """Whether the emulator consults it for an instruction."""
    flipped: int = 0
    """The bits in which the words of the table differ from the instructions."""
    form: RowForm | None = None
    """None for a decodetree."""


class Exempt(NamedTuple):
    """Instructions on which decoder, disassembler, assembler and encodings need not agree."""

    text: str
    """A pattern that matches state and text whole."""
    because: str
    """Why, with a source."""


class RegisterRow(NamedTuple):
    """Registers of one size, one behind the other in the register file."""

    begin: int
    """The first byte of the first one."""
    bytes_each: int


class EncodingTable(NamedTuple):
    """All encodings of an architecture."""

    encodings: Sequence[Encoding]
    preamble: Mapping[str, str]
    """Target -> the assembler's directives that select its processor."""
    syntax: str
    """More of them, for every processor."""
    states: Mapping[str, SlotForm]
    assembly: Path
    """`sweep_run`, which runs one slot with a register file: a `.S` file."""
    header: Path
    """`sweep_resume`, which lets a signal handler continue after a slot: a `.h` file."""
    names: str
    """A pattern that matches the beginning of the disassembler's text of every access."""
    decoder_names: str
    """A pattern that matches the decoder's names of accesses whole."""
    decoders: Sequence[DecoderTable]
    unread: Sequence[Exempt]
    """Accesses that the disassembler does not know, by state and text as they are here or by the decoder's name."""
    unassembled: Sequence[Exempt]
    """Texts that the disassembler prints and the assembler refuses."""
    unmade: Sequence[Exempt]
    """Instructions, as the disassembler prints them, that have no encoding although the disassembler or the decoder
    takes them for accesses.
    """
    registers: tuple[str, ...] = ()
    """objdump's options for names of registers that the assembler takes."""
    comment: str = r"[;@<]"
    """A pattern of the beginning of a comment that the disassembler prints."""
    compiler_flags: tuple[str, ...] = ()
    """The compiler flags of the program that executes them."""
    lists_bytes: bool = False
    """Whether objdump prints an instruction's bytes one by one, in the order of memory."""
    rows: tuple[RegisterRow, ...] = ()
    """All registers of the file, in order, if moves count bytes from a register's lowest one in either byte order.
    Empty if they count them as they lie in the file.
    """

    def place(self, move: Move, order: Endianness) -> int:
        """Where a move's bytes begin in the register file of a target with that byte order."""
        if not self.rows or order is Endianness.LITTLE:
            return move.register
        row = max(row for row in self.rows if row.begin <= move.register)
        lowest = (move.register - row.begin) % row.bytes_each
        return move.register - lowest + row.bytes_each - lowest - move.size
