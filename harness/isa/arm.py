"""32-bit ARM: two instruction sets, and a kernel whose treatment of misaligned accesses can be set."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Literal

import capstone

from harness.isa import branches
from harness.isa.architecture import (
    FIRST_16,
    AccessNotation,
    AlignmentSwitch,
    Architecture,
    CallFrames,
    InstructionSet,
    PushedRegisters,
    Variant,
)
from harness.isa.exception_index import caller_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ARM = InstructionSet((capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM | capstone.CS_MODE_LITTLE_ENDIAN))
# A symbol of Thumb code has its lowest bit set (ELF for the Arm Architecture, 5.5.3).
_THUMB = InstructionSet(
    (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_LITTLE_ENDIAN),
    instruction_bytes=0,
    symbol_flag_bits=1,
)
_CPSR, _THUMB_BIT = 25, 1 << 5
_CONDITION = r"(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al)?"


def _in_state(order: Literal["little", "big"], registers: Sequence[str]) -> InstructionSet:
    """Thumb where the CPSR's T bit says so. `order`: that of a register's bytes, as of the program's data."""
    text = registers[_CPSR] if len(registers) > _CPSR else ""
    return _THUMB if text and int.from_bytes(bytes.fromhex(text), order) & _THUMB_BIT else _ARM


def _state_of(order: Literal["little", "big"], symbol: int) -> list[str]:
    """A CPSR with the T bit if the function of this symbol is Thumb code."""
    state = _THUMB_BIT if symbol & _THUMB.symbol_flag_bits else 0
    return [*[""] * _CPSR, state.to_bytes(4, order).hex()]


_NUMBERS = {f"r{number}": number for number in range(13)} | {"sb": 9, "sl": 10, "fp": 11, "ip": 12, "lr": 14}
_MANY = re.compile(r"(push|pop|stmdb|stmfd|ldm|ldmia|ldmfd)(?:\.w)? (?:sp!, )?\{([^}]*)\}")
_PUSH_ONE = re.compile(r"str(?:\.w)? (\w+), \[sp, #-(\w+)\]!")
_POP_ONE = re.compile(r"ldr(?:\.w)? (\w+), \[sp\], #(\w+)")
_MOVE = re.compile(r"(sub|add)(?:\.w)? sp, (?:sp, )?#(\w+)")
_VECTORS = re.compile(r"(vpush|vpop) \{(d\d+(?:, d\d+)*)\}")
_RETURN = re.compile(r"bx lr|mov pc, lr")
_BRANCH = re.compile(r"b(?:\.w)? #\w+")
"""With an empty stack it calls another function in place of a return."""
_STACK_POINTER = re.compile(r"\bsp!|^(?:add|sub|mov|bic|ldr)\S* sp,|\[sp[^]]*\]!|\[sp\], |^v?(push|pop)(?!.*\bpc\b)")
"""Any other change of the stack pointer. A conditional return changes nothing for the code after it."""


def _pushed(order: Literal["little", "big"], code: bytes, registers: Sequence[str]) -> PushedRegisters | None:
    """What a function has pushed, read in the order of its instructions; None if one of them is not understood."""
    capstone_mode = _in_state(order, registers).capstone
    assert capstone_mode is not None
    stack, end = _Stack(), 0
    for address, size, mnemonic, operands in _disassembler(capstone_mode).disasm_lite(code, 0):
        end = address + size
        if not stack.read(f"{mnemonic} {operands}"):
            return None
    return stack.pushed() if end == len(code) else None


class _Stack:
    """A function's stack, by the instructions that have been read."""

    def __init__(self) -> None:
        self._depth = 0
        self._saved: dict[int, int] = {}
        self._deepest = (self._depth, self._saved)
        self._framed: PushedRegisters | None = None
        """What it had pushed when it set its frame pointer; None if that may have another value now."""
        self._is_lost = False
        """Whether the stack pointer has been moved by an unknown number of bytes."""

    def read(self, text: str) -> bool:
        """Follow an instruction. Whether the stack is still known."""
        if self._framed is not None and _changes(text, self._framed.base):
            self._framed = None
        names, by = _moved(text)
        self._is_lost |= by == 0 and _STACK_POINTER.search(text) is not None
        if self._is_lost:
            return self._framed is not None
        if self._framed is None and (pointer := _FRAME_POINTER.fullmatch(text)):
            inner = self._depth - int(pointer[2] or "0", 0)
            saved = {number: inner - at for number, at in self._saved.items()}
            self._framed = PushedRegisters(inner, saved, _NUMBERS[pointer[1]])
        self._depth += by
        self._saved = {number: at for number, at in self._saved.items() if at <= self._depth}
        if by > 0:
            self._saved |= {_NUMBERS[name]: self._depth - 4 * at for at, name in enumerate(names) if name in _NUMBERS}
        if self._depth > self._deepest[0]:
            self._deepest = (self._depth, self._saved)
        if "pc" in names or _RETURN.fullmatch(text) or (not self._depth and _BRANCH.fullmatch(text)):
            # The code after a return belongs to a path that has not left the function: the stack is at its deepest.
            self._depth, self._saved = self._deepest
        return True

    def pushed(self) -> PushedRegisters | None:
        """What it has pushed; None if that is unknown."""
        if self._is_lost:
            return self._framed
        offsets = {number: self._depth - at for number, at in self._saved.items()}
        return PushedRegisters(self._depth, offsets) if self._depth >= 0 else None


def _disassembler(mode: tuple[int, int]) -> capstone.Cs:
    """It passes over constants between instructions."""
    found = capstone.Cs(*mode)
    found.skipdata = True
    return found


_FRAME_POINTER = re.compile(r"(?:add|mov)(?:\.w)? (fp|r7), sp(?:, #(\w+))?")
"""The frame pointer of ARM code and that of Thumb code (GCC, arm_expand_prologue)."""


def _changes(text: str, register: int | None) -> bool:
    """Whether an instruction may write a frame pointer."""
    name = "fp" if register == _NUMBERS["fp"] else "r7"
    writes = re.match(rf"(?!st|push|cm|t)\S+ (?:{name}\b|[^\[]*{{.*\b{name}\b)", text)
    return writes is not None


def _moved(text: str) -> tuple[list[str], int]:
    """The registers that an unconditional instruction pushes or pops, and by how many bytes the stack grows."""
    if found := _MANY.fullmatch(text):
        names = found[2].split(", ")
        return names, (4 if found[1].startswith(("push", "stm")) else -4) * len(names)
    if found := _PUSH_ONE.fullmatch(text):
        return [found[1]], int(found[2], 0)
    if found := _POP_ONE.fullmatch(text):
        return [found[1]], -int(found[2], 0)
    if found := _VECTORS.fullmatch(text):
        return [], (8 if found[1] == "vpush" else -8) * len(found[2].split(", "))
    if found := _MOVE.fullmatch(text):
        return [], int(found[2], 0) if found[1] == "sub" else -int(found[2], 0)
    return [], 0


def _entry(order: Literal["little", "big"], code: bytes, registers: Sequence[str]) -> int | None:
    """The nearest place before the end of code that pushes the link register, as functions do that call others."""
    thumb = _in_state(order, registers) is _THUMB
    for at in range(len(code) - 2 & ~1, -1, -2) if thumb else range(len(code) - 4 & ~3, -1, -4):
        first, second = int.from_bytes(code[at : at + 2], "little"), int.from_bytes(code[at + 2 : at + 4], "little")
        if thumb:
            # PUSH {…, LR} in 16 bits; STMDB SP!, {…, LR} in 32 (ARM DDI 0406C, A8.8.133).
            pushes = first & 0xFF00 == 0xB500 or (first == 0xE92D and second & 0x4000)
        else:
            pushes = (second == 0xE92D and first & 0x4000) or (second << 16 | first) == _PUSH_LINK
        if pushes:
            return at
    return None


_PUSH_LINK = 0xE52DE004
"""STR LR, [SP, #-4]!"""


def _follows_call(address: int, code: bytes) -> bool:
    """Whether the four bytes before a return address end with BL or BLX (ARM DDI 0406C, A8.8.25, A8.8.26)."""
    first, second = int.from_bytes(code[:2], "little"), int.from_bytes(code[2:], "little")
    if address & 1:
        return (first & 0xF800 == 0xF000 and second & 0xC000 == 0xC000) or second & 0xFF87 == 0x4780
    word = second << 16 | first
    return word & 0x0F000000 == 0x0B000000 or word & 0xFE000000 == 0xFA000000 or word & 0x0FFFFFF0 == 0x012FFF30


def _frames(order: Literal["little", "big"]) -> CallFrames:
    # The lowest bit of a return address selects Thumb.
    return CallFrames(
        14,
        13,
        FIRST_16,
        flag_bits=1,
        pushed=partial(_pushed, order),
        entry=partial(_entry, order),
        follows_call=_follows_call,
        index_section=".ARM.exidx",
        by_index=partial(caller_at, order),
    )


def _vectors(found: re.Match[str]) -> str:
    """A list of vector registers as `{2 d[#]}`: how many, and whether their lanes, one or all. VLDM counts none."""
    text, kind = found[0], found[1]
    if re.match(r"\S+ v(ldm|stm|push|pop)", found.string):
        return f"{{{kind}}}"
    numbers = [int(number) for number in re.findall(rf"{kind}(\d+)", text)]
    count = numbers[-1] - numbers[0] + 1 if "-" in text else len(numbers)
    return f"{{{count} {kind}{'[]' if '[]' in text else '[#]' if '[' in text else ''}}}"


def _register(name: str) -> Callable[[re.Match[str]], str]:
    return lambda found: re.sub(rf"\b{name}\b", "r", found[0])


_NOTATION = AccessNotation(
    accesses=(
        r"(?:ldr|str|lda|stl)(?!(?:ex|s)?b)|swp(?!b)|ldm|stm|push|pop|ldc|stc|rfe|srs"
        r"|v(?:ld|st)[rm1-4]|vpush|vpop"
    ),
    alike=[
        (r"^(\S+ [a-z\d]+?)(?:eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)(?=[ .])", r"\1"),
        (r"\{([sd])\d+[^}]*\}", _vectors),
        (r"\b([sd])\d+\b", r"\1"),
        (r"\b(?:r\d+|sl|fp|ip|lr)\b", "r"),
        # SP is a register like others, but in Thumb's instructions of 16 bits. So is PC in A32, and where it is loaded.
        (r"^(?:A32|T32) .*", _register("sp")),
        (r"^A32 .*", _register("pc")),
        (r"^(\S+ \S+ )pc,", r"\1r,"),
        (r"\{(?:r|pc)\}", "{one}"),
        (r"\{(?:r|sp|pc)\b[^}]*\}", "{registers}"),
        # The lowest byte of a negative offset is a separate encoding where positive ones have 12 bits.
        (r"^(T32 (?:ldr|str)s?h?\.w r, \[\w+, #-)\d+\]$", r"\1]"),
        (r"#-?\d+", "#"),
        (r"-r\b", "r"),
        (r"(\[r, r), \w+ #\]|(\[r, r), rrx\]", r"\1\2]"),
        (r"(\], r), .*", r"\1"),
        (r"^(\S+ v?(?:ldr|str).*\[\w+)\]$", r"\1, #]"),
        (r" :(?=\d+\])", ":"),
        (r"^(A32|T32) push(\S*) \{one\}", r"\1 str\2 r, [r, #]!"),
        (r"^(A32|T32) pop(\S*) \{one\}", r"\1 ldr\2 r, [r], #"),
        (r"^(A32|T32) (v?)push(?:\.w)? ", r"\1 \2stmdb r!, "),
        (r"^(A32|T32) (v?)pop(?:\.w)? ", r"\1 \2ldmia r!, "),
        (r"^(\S+ )(?:ldm|ldmfd) ", r"\1ldmia "),
        (r"^(\S+ )stm ", r"\1stmia "),
        (r"^(\S+ )stmfd ", r"\1stmdb "),
    ],
    states={(8,): "A32", (4,): "T16", (4, 4): "T32"},
)


def _variant(order: Literal["little", "big"]) -> Variant:
    return Variant(
        4,
        order == "big",
        _frames(order),
        _ARM,
        partial(_in_state, order),
        partial(_state_of, order),
        meson_family="" if order == "little" else "arm",
    )


ARM = Architecture(
    isas=("arm",),
    macros=r"arm|thumb|ARM_\w+",
    unwinding_sections=(".ARM.exidx", ".ARM.extab"),
    # In BE8 (ARM DDI 0406C, A3.3) instructions stay little-endian.
    variants={
        "arm": _variant("little"),
        "armeb": _variant("big"),
    },
    # As linux-user/plumbline.c classifies the bits of instructions.
    accesses=[
        (rf"(ldr|str)s?h{_CONDITION}t?\b.*", "half", 2),
        (rf"(ldr|str)d{_CONDITION}\b.*", "dword", 8),
        (rf"(ldm|stm)(ia|ib|da|db|fd|ea|fa|ed)?{_CONDITION}\b.*|(push|pop){_CONDITION}\b.*", "multi", 4),
        (rf"(vldr|vstr){_CONDITION}(\.\d+)? d.*", "vfp", 8),
        (r"(vldr|vstr|vldm|vstm|vpush|vpop)\w*\b.*", "vfp", 4),
        (r"v(ld|st)[1-4]\.8 .*", "neon", 1),
        (r"v(ld|st)[1-4]\.16 .*", "neon", 2),
        (r"v(ld|st)[1-4]\.32 .*", "neon", 4),
        (r"v(ld|st)[1-4].*", "neon", 8),
        (rf"(ld|st)rexh{_CONDITION}\b.*", "exclusive", 2),
        (rf"(ld|st)rexd{_CONDITION}\b.*", "exclusive", 8),
        (rf"(ld|st)rex{_CONDITION}\b.*", "exclusive", 4),
        (rf"swp{_CONDITION}\b.*", "swap", 4),
        (rf"(ldr|str){_CONDITION}t?\b.*", "word", 4),
    ],
    notation=_NOTATION,
    # /proc/cpu/alignment (Linux arch/arm/mm/alignment.c).
    alignment_switch=AlignmentSwitch(kernel="linux-arm-2", policies="linux-arm-", file="/proc/cpu/alignment"),
    counting_file="/proc/cpu/alignment",
    branches={"EM_ARM": branches.in_arm},
)
