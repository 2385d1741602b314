"""The facts about an architecture that the code can use: the form that every module beside this one fills in.

It contains no architecture's facts. A field with a default describes what most architectures do.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.core.target_model import AccessClass

if TYPE_CHECKING:
    from harness.isa.branches import Branch

AccessPattern = tuple[str, AccessClass, int]
"""A pattern that matches a whole instruction -> its class and the bytes of the unit whose alignment counts.

0 bytes: `Architecture.operand_bytes` reads them from the instruction.
"""


class InstructionSet(NamedTuple):
    """How machine code becomes text."""

    capstone: tuple[int, int] | None = None
    """The library's architecture and mode; None if it lacks the instruction set."""
    objdump: tuple[str, ...] = ()
    """The command that disassembles plain bytes, if capstone lacks the instruction set."""
    numbers: tuple[str, ...] = ()
    """The command that disassembles bytes given as numbers (llvm-mc), if capstone and GNU's objdump lack the
    instruction set."""
    instruction_bytes: int = 4
    """The length of every instruction, in bytes; 0 if lengths differ."""
    symbol_flag_bits: int = 0
    """Bits of a function symbol's value that are not part of the address."""
    beyond_capstone: Callable[[bytes], str] | None = None
    """The text of an instruction that capstone does not know; empty for bytes that are not such an instruction."""


class AccessNotation(NamedTuple):
    """How objdump writes accesses to memory, and which of its words distinguish encodings."""

    accesses: str
    """A pattern that begins every instruction whose access can be misaligned: of more than a byte, and no prefetch."""
    alike: Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]
    """Pattern -> replacement, in order: the parts that differ between instructions of one encoding, such as
    registers.
    """
    states: Mapping[tuple[int, ...], str] = {}
    """The digits of each unit in which objdump prints an instruction's code -> the instruction set that it is of."""


class CallFrames(NamedTuple):
    """Registers by DWARF's numbers, as the processor supplement of the ABI assigns them."""

    return_register: int
    stack_register: int
    numbers: Mapping[int, int]
    """DWARF's number -> the gdb stub's; only registers that calls preserve or pass back matter."""
    flag_bits: int = 1
    """Bits of a return address that are not part of the address."""
    frame_offset: int = 0
    """How far DWARF's frame address is beyond the caller's stack pointer."""
    pushed: Callable[[bytes, Sequence[str]], PushedRegisters | None] | None = None
    """(a function's code up to an address, the fault's registers) -> what it has pushed there; None if uncertain."""
    entry: Callable[[bytes, Sequence[str]], int | None] | None = None
    """(code up to an address, the fault's registers) -> the place in it where the function around that address seems to
    begin; None without one.
    """
    follows_call: Callable[[int, bytes], bool] = lambda _address, _code: True
    """Whether a return address, whose preceding four bytes of code are given, follows a call."""
    index_section: str = ""
    """The section of an index of tables for exceptions that objects have instead of call-frame information."""
    by_index: IndexUnwinding | None = None
    """How that index gives a caller's registers."""


IndexUnwinding = Callable[
    [bytes, int, int, Callable[[int, int], bytes], Mapping[int, int | None], Callable[[int], int | None]],
    dict[int, int | None] | None,
]
"""(the index, its address, an address of code, (address, length) -> the object's content, registers, address -> the
stack's word there) -> the registers of the caller of the code's function; None if the index does not tell.
"""


class PushedRegisters(NamedTuple):
    """What the code of a function without an unwind table has put on the stack."""

    depth_bytes: int
    """How far the stack pointer is below its value at the function's entry."""
    offsets: Mapping[int, int]
    """DWARF's number of a register -> where its value at the entry is, in bytes above the stack pointer."""
    base: int | None = None
    """DWARF's number of the register that replaces the stack pointer in both, if the function moves that by an unknown
    number of bytes.
    """


class RegisterWindows(NamedTuple):
    """Callers whose registers the hardware spills to a fixed place on the stack, so that no table is needed."""

    frame_pointer: int
    return_register: int
    leaf_return_register: int
    """The place of the call's address in a routine that keeps its caller's window."""
    bias: int
    """The number to add to a frame pointer to get an address."""
    saved_frame_word: int
    saved_return_word: int
    call_target: Callable[[int, int], int | None]
    """(instruction, its address) -> the called address; None for an instruction that is not a call."""
    opens_window: Callable[[int], bool]
    """Whether an instruction gives its function a window of its own."""


class Variant(NamedTuple):
    """An architecture in one word size and byte order, as one of QEMU's user-mode emulators runs it."""

    word_bytes: int
    big_endian: bool
    unwinding: CallFrames | RegisterWindows
    instructions: InstructionSet
    state_instructions: Callable[[Sequence[str]], InstructionSet] | None = None
    """The gdb stub's registers -> the instruction set of the current state, if a processor has several."""
    state_registers: Callable[[int], list[str]] | None = None
    """(the value of a function's symbol) -> the gdb stub's registers, as far as the symbol tells the state in which the
    function runs."""
    stack_grows_upward: bool = False
    meson_family: str = ""
    """Meson's name of the CPU family, if it is not the emulator's."""
    elf_machines: tuple[int, ...] = ()
    """Numbers of ELF's e_machine, besides the compiler's, whose programs the emulator also runs."""


class ExactRelocation(NamedTuple):
    """A relocation of an instruction, if its addend tells the distance from the symbol to what it refers to."""

    kind: int
    """Its type."""
    bias: int = 0
    """What the addend lacks."""
    behind: re.Pattern[bytes] = re.compile(b"")
    """The bytes in front of it."""


class AlignmentSwitch(NamedTuple):
    """A kernel's setting for misaligned accesses."""

    kernel: str
    """The policy of targets whose kernel has the switch."""
    policies: str
    """The prefix of the names of its policies."""
    file: str
    """The file that sets it, where Linux has it."""
    own_names: Sequence[tuple[str, str]] = ()
    """Pairs of a policy that every target has and the same one of these; none if both have one `mode`."""


def _no_operand(_: str) -> int:
    return 0


class Architecture(NamedTuple):
    """Everything that the code knows about one architecture."""

    isas: tuple[str, ...]
    """Its name in targets: `isa` in targets/*.toml."""
    macros: str
    """A pattern of macros that identify it in C, without underscores around them."""
    variants: Mapping[str, Variant]
    """QEMU's name of a user-mode emulator -> the machine that it runs."""
    accesses: Sequence[AccessPattern] = ()
    """Empty if no kernel tier needs to read an access from its instruction. The first match counts."""
    stores: str = r"(st|vst|push|vpush|swp|swap|cas)"
    """The prefix of the text of instructions that store, or load and store."""
    data_address: Callable[[str, Sequence[str], int], int] | None = None
    """(Instruction, the gdb stub's registers, si_addr) -> the address of its access; None if si_addr contains it."""
    kernel_signal: Literal["signal", "unaddressed", "at-pc"] = "signal"
    """The canary program's output for a misaligned access to which a real kernel responds with its signal."""
    notation: AccessNotation | None = None
    """None if the encodings that compilers emit have not been compared with those of the canaries."""
    operand_bytes: Callable[[str], int] = _no_operand
    """The size of an instruction's operand, from its text."""
    misaligned_signal: signal.Signals = signal.Signals.SIGBUS
    """The signal of a misaligned access."""
    alignment_switch: AlignmentSwitch | None = None
    counting_file: str = ""
    """The file in which Linux counts misaligned accesses of programs, where it has one."""
    unwinding_sections: tuple[str, ...] = ()
    """Prefixes of the names of sections that describe an object's code, besides those of all architectures.
    """
    symbol_first: str = ""
    """ELF's name of the machine whose 64-bit little-endian objects store a relocation's symbol in the place of its
    type; empty if there is none.
    """
    table_relocations: Mapping[str, tuple[int, ...]] = {}
    """ELF's name of a machine -> the types of relocations by which its code finds a table of jumps among instructions,
    by the distance from the global offset table: the table is at the relocation's own place minus its addend. Empty if
    tables are elsewhere, or found in another way.
    """
    exact_relocations: Mapping[str, tuple[ExactRelocation, ...]] = {}
    """ELF's name of a machine -> relocations of instructions of which it is known to what they refer. The addend of
    others may be relative to the instruction's end.
    """
    relative_entries: Mapping[str, tuple[int, ...]] = {}
    """ELF's name of a machine -> types of relocations of entries of tables of jumps among constants that are distances
    from the table's beginning. The addend contains the distance of the entry from there, too.
    """
    branches: Mapping[str, Callable[[bytes, str, int], Iterator[Branch]]] = {}
    """ELF's name of a machine -> how to find branches whose distance the assembler has written: (a function's code, the
    byte order as of `struct`, the value of the function's symbol). Without it, a call of a local function differs when
    the functions between the two change their lengths.
    """
    padding: Mapping[str, bytes] = {}
    """ELF's name of a machine -> a pattern of the instructions with which assemblers fill the space up to an alignment.
    Empty if that is a single instruction, repeated.
    """
    at_any_address: frozenset[str] = frozenset()
    """ELF's names of the machines on which the address of no integer matters. Compilers align only wider data there."""
    ignored_warnings: tuple[str, ...] = ()
    """Self-tests of servers that misinterpret the emulator and prevent the start: values of the option
    `ignore-warnings`.
    """


FIRST_16, FIRST_32 = ({number: number for number in range(count)} for count in (16, 32))
"""Registers that have the same numbers in DWARF and in the gdb stub."""
