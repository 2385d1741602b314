"""Walks a recorded stack to the callers. Pure: it reads a fault record and unwind tables, and starts no process.

Code built with -g has call-frame information (DWARF 5, section 6.4); an architecture with register windows needs none.
`harness.isa` names the relevant registers. Where a binary has no table, as Debian's C library for 32-bit ARM, its index
for exceptions and its code are read. A walk stops, without guessing, when they do not tell or the recorded slice of
stack ends.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.callframe import FDE, CallFrameInfo
from elftools.elf.elffile import ELFFile

from harness.analysis.debug_file import debug_file
from harness.analysis.symbol_table import FUNCTION, symbol_rows
from harness.isa import registry
from harness.isa.architecture import RegisterWindows
from harness.record.fault_log import MapRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.isa.architecture import CallFrames, Variant
    from harness.record.fault_log import Fault

DEEPEST = 64


class Stack:
    """A fault's registers and stack slice, as numbers."""

    def __init__(self, fault: Fault, *, word_bytes: int, big_endian: bool) -> None:
        self.word_bytes = word_bytes
        self._order = "big" if big_endian else "little"
        self._start = fault.stack_address
        self._bytes = bytes.fromhex(fault.stack)
        self._registers = fault.registers

    def register(self, number: int) -> int | None:
        """A register by its number in the gdb stub; None if the record lacks it."""
        text = self._registers[number] if number < len(self._registers) else ""
        return int.from_bytes(bytes.fromhex(text), self._order) if text else None  # type: ignore[arg-type]

    def word(self, address: int) -> int | None:
        """A word of the recorded slice; None outside it."""
        offset = address - self._start
        if offset < 0 or offset + self.word_bytes > len(self._bytes):
            return None
        return int.from_bytes(self._bytes[offset : offset + self.word_bytes], self._order)  # type: ignore[arg-type]


LARGEST_STACK_BYTES = 16 << 20
"""Two stack pointers further apart belong to different stacks, such as a signal handler's own."""


def may_be_in_handler_of(earlier: Fault, later: Fault, machine: str) -> bool:
    """Whether the handler of an earlier fault of the same thread may still run at a later one.

    While it does, everything that the earlier fault interrupted stays on the stack, above the handler's frames. False
    if the stack has been unwound to there or further, or if other frames have replaced that part since: the handler has
    returned, or has jumped out. True in case of doubt: if a record shows too little of the stack, or if the handler may
    have its own stack.
    """
    variant = registry.variant(machine)
    below = earlier.stack_address - later.stack_address
    if variant is None or variant.stack_grows_upward or not earlier.stack or not later.stack:
        return True
    if abs(below) > LARGEST_STACK_BYTES:
        return True
    if below <= 0:
        return False
    # A register window is stored above the stack pointer when the handler is called, or when it is not.
    skipped = _WINDOW_AREA_WORDS * variant.word_bytes if isinstance(variant.unwinding, RegisterWindows) else 0
    interrupted = bytes.fromhex(earlier.stack)[skipped:]
    same_place = bytes.fromhex(later.stack)[below + skipped :]
    common = min(len(interrupted), len(same_place))
    return interrupted[:common] == same_place[:common]


_WINDOW_AREA_WORDS = 23
"""16 registers, the address of a returned structure, and six arguments (SPARC ABI, the stack frame)."""


def call_chain(fault: Fault, machine: str) -> list[int]:
    """Program counters of the callers, innermost first, without the fault's own.

    Each is inside the call instruction (the return address minus one if only that is known), so that it belongs to the
    line of the call. `machine` is QEMU's name of the emulator.
    """
    variant = registry.variant(machine)
    if variant is None:
        return []
    stack = Stack(fault, word_bytes=variant.word_bytes, big_endian=variant.big_endian)
    if isinstance(variant.unwinding, RegisterWindows):
        return _by_windows(fault, stack, variant.unwinding)
    return _by_table(fault, stack, variant, variant.unwinding)


def _by_windows(fault: Fault, stack: Stack, windows: RegisterWindows) -> list[int]:
    frame_pointer, call = stack.register(windows.frame_pointer) or 0, stack.register(windows.return_register)
    chain: list[int] = []
    while call and len(chain) < DEEPEST:
        chain.append(call)
        window = frame_pointer + windows.bias
        next_frame = stack.word(window + windows.saved_frame_word * stack.word_bytes)
        next_call = stack.word(window + windows.saved_return_word * stack.word_bytes)
        if next_frame is None or next_call is None or next_frame <= frame_pointer:
            break
        frame_pointer, call = next_frame, next_call
    # In a leaf routine the window's return register belongs to the caller; another register holds the call into the
    # leaf.
    leaf_call = stack.register(windows.leaf_return_register)
    return [leaf_call, *chain] if leaf_call and _is_leaf(fault, leaf_call, windows) else chain


def _is_leaf(fault: Fault, leaf_call: int, windows: RegisterWindows) -> bool:
    """Whether the faulting function is a leaf, which keeps its caller's window: then `leaf_call` calls it."""
    place = locate(fault.maps, fault.pc)
    caller = locate(fault.maps, leaf_call)
    if place is None or caller is None:
        return False
    instruction = _code_word(*caller)
    callee = windows.call_target(instruction, leaf_call) if instruction is not None else None
    if callee is None:
        return False
    bounds = function_bounds(Path(place[0].path), place[1])
    entry = locate(fault.maps, callee)
    if bounds is None or entry is None:
        return False
    is_same_file = place[0].path == caller[0].path
    if is_same_file and bounds[0] <= caller[1] < bounds[1]:
        # It has called a function itself.
        return False
    # A linkage table may be between the call and the function, or another leaf that has jumped to it.
    return (is_same_file and entry[1] == bounds[0]) or not _has_own_window(place[0].path, bounds[0], place[1], windows)


def _has_own_window(path: str, start: int, address: int, windows: RegisterWindows) -> bool:
    """Whether the function that starts there has taken a window of its own before an address; True if unknown."""
    code = read_code(path, start, address - start)
    words = [int.from_bytes(code[at : at + 4], "big") for at in range(0, len(code), 4)]
    return len(code) != address - start or any(map(windows.opens_window, words))


def locate(maps: list[MapRecord], pc: int) -> tuple[MapRecord, int] | None:
    """The mapping that contains a guest address, and the address in the file's own symbols."""
    for record in maps:
        if record.start <= pc < record.end:
            return record, _link_address(record.path, record.offset + (pc - record.start))
    return None


def loaded(path: str, base: int) -> list[MapRecord]:
    """The mappings of a file whose first byte is at `base` + its address in the file's own symbols."""
    return [
        MapRecord(start=base + address, end=base + address + size, offset=start, path=path)
        for start, size, address in _segments(path)
    ]


def _link_address(path: str, file_offset: int) -> int:
    for start, size, address in _segments(path):
        if start <= file_offset < start + size:
            return file_offset - start + address
    return file_offset


@cache
def _segments(path: str) -> list[tuple[int, int, int]]:
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            page = 0x1000
            found = []
            for segment in elf.iter_segments("PT_LOAD"):
                # A mapping starts at the page with the segment's first byte.
                slack = segment["p_offset"] % page
                found.append((segment["p_offset"] - slack, segment["p_filesz"] + slack, segment["p_vaddr"] - slack))
            return found
    except (OSError, ELFError):
        return []


def _code_word(record: MapRecord, link_address: int) -> int | None:
    code = read_code(record.path, link_address, 4)
    return int.from_bytes(code, "big") if code else None


def read_code(path: str, link_address: int, size_bytes: int) -> bytes:
    """A file's content at an address of its own symbols; shorter or empty if its segment ends there."""
    for start, size, address in _segments(path):
        if address <= link_address < address + size:
            with Path(path).open("rb") as stream:
                stream.seek(link_address - address + start)
                return stream.read(min(size_bytes, address + size - link_address))
    return b""


@cache
def _functions(path: Path) -> list[tuple[int, int]]:
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            table: Any = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
            if table is None:
                return []
            rows = [row for row in symbol_rows(elf, table) if row.kind == FUNCTION]
            return sorted((row.value, row.value + row.size) for row in rows)
    except (OSError, ELFError):
        return []


def function_bounds(path: Path, address: int) -> tuple[int, int] | None:
    """The function around an address: its first address and the first one after it; None if nothing tells.

    A stripped library has symbols only for what it exports. Its call-frame information covers its other functions.
    """
    named = next((bounds for bounds in _functions(path) if bounds[0] <= address < bounds[1]), None)
    if named is not None:
        return named
    starts = ((one["initial_location"], one["address_range"]) for one in _frame_entries(str(path)))
    return next(((start, start + size) for start, size in starts if start <= address < start + size), None)


class _FrameTable(CallFrameInfo):
    """The entries of .debug_frame, also those that pyelftools refuses."""

    def _parse_cie_augmentation(self, header: Any, entry_structs: Any) -> tuple[bytes, dict[Any, Any]]:
        # It marks the code to which a signal handler returns, such as the GNU C library's, and has no data.
        if header.get("augmentation") == b"S":
            return b"", {}
        found: tuple[bytes, dict[Any, Any]] = super()._parse_cie_augmentation(header, entry_structs)
        return found


@cache
def _frame_entries(path: str) -> list[Any]:
    """Call-frame entries of a file, from .debug_frame and .eh_frame, and from a file of its debug information."""
    apart = debug_file(path)
    return [*_frame_entries_in(path), *(_frame_entries_in(apart) if apart else [])]


def _frame_entries_in(path: str) -> list[Any]:
    try:
        with Path(path).open("rb") as stream:
            elf = ELFFile(stream)
            if not elf.has_dwarf_info():
                return []
            information = elf.get_dwarf_info(relocate_dwarf_sections=False)
            entries: list[Any] = []
            if (section := information.debug_frame_sec) is not None:
                table = _FrameTable(section.stream, section.size, section.address, information.structs)
                entries += [entry for entry in table.get_entries() if isinstance(entry, FDE)]
            if information.has_EH_CFI():
                entries += [entry for entry in information.EH_CFI_entries() if isinstance(entry, FDE)]
            return entries
    except (OSError, ELFError, DWARFError, KeyError):
        return []


def _by_table(fault: Fault, stack: Stack, variant: Variant, frames: CallFrames) -> list[int]:
    return_register, stack_register = frames.return_register, frames.stack_register
    registers = {number: stack.register(there) for number, there in frames.numbers.items()}
    chain: list[int] = []
    pc, link = fault.pc, None
    while len(chain) < DEEPEST:
        place = locate(fault.maps, pc)
        row = frame_rules(place[0].path, place[1]) if place else None
        if row is None or registers.get(row["cfa"].reg) is None:
            # Without a table a caller is known from the function's code, or innermost from the link register.
            state = _state_at(variant, link) if link is not None else fault.registers
            found = _caller_without_table(fault, stack, frames, registers, pc, state, is_innermost=not chain)
            if found is None:
                held = registers.get(return_register)
                if not chain and held and _is_return_address(fault, held, frames):
                    chain.append((held & ~frames.flag_bits) - 1)
                return chain
            below, registers = registers.get(stack_register), found
            link = registers[return_register] or 0
            pc = (link & ~frames.flag_bits) - 1
            chain.append(pc)
            if not _is_deeper(below, registers[stack_register]) and len(chain) > 1:
                return chain
            continue
        if chain and return_register not in row:
            # Any function that makes calls saves its return address: this one never returns.
            return chain
        base = registers[row["cfa"].reg]
        assert base is not None
        frame_address = base + row["cfa"].offset
        before, registers = registers, _of_caller(registers, row, stack, frame_address)
        registers[stack_register] = frame_address - frames.frame_offset
        link = registers.get(return_register)
        if not link or (
            link == before.get(return_register) and chain and registers[stack_register] == before[stack_register]
        ):
            return chain
        pc = (link & ~frames.flag_bits) - 1
        chain.append(pc)
    return chain


def _is_deeper(below: int | None, above: int | None) -> bool:
    """Whether a caller's stack pointer is above its callee's, so that a walk comes to an end."""
    return below is not None and above is not None and below < above


def _state_at(variant: Variant, link: int) -> Sequence[str]:
    """The registers that tell in which state the code before a return address runs."""
    return variant.state_registers(link) if variant.state_registers is not None else []


FARTHEST_ENTRY_BYTES = 0x8000
"""How far before an address the beginning of a function without a symbol is looked for."""


def _caller_without_table(
    fault: Fault,
    stack: Stack,
    frames: CallFrames,
    registers: dict[int, int | None],
    pc: int,
    state: Sequence[str],
    *,
    is_innermost: bool,
) -> dict[int, int | None] | None:
    """The registers of a function's caller without call-frame information; None if they are uncertain.

    An index of tables for exceptions is right at calls, and so for each function but the innermost. The return address
    is known only if it follows a call.
    """
    place = locate(fault.maps, pc)
    if place is None:
        return None
    by_code = partial(_caller_by_code, place, stack, frames, registers, state, is_innermost=is_innermost)
    by_index = partial(_caller_by_index, place, stack, frames, registers)
    for way in (by_code, by_index) if is_innermost else (by_index, by_code):
        caller = way()
        link = caller.get(frames.return_register) if caller is not None else None
        if link and _is_return_address(fault, link, frames):
            return caller
    return None


def _caller_by_index(
    place: tuple[MapRecord, int], stack: Stack, frames: CallFrames, registers: dict[int, int | None]
) -> dict[int, int | None] | None:
    path, address = place[0].path, place[1]
    index, at = section_of(path, frames.index_section) if frames.index_section else (b"", 0)
    if frames.by_index is None or not index:
        return None
    return frames.by_index(index, at, address, lambda start, size: read_code(path, start, size), registers, stack.word)


@cache
def section_of(path: str, name: str) -> tuple[bytes, int]:
    """A section's content and its address in a file's own symbols; nothing if the file has no such section."""
    try:
        with Path(path).open("rb") as stream:
            section: Any = ELFFile(stream).get_section_by_name(name)
            return (bytes(section.data()), int(section["sh_addr"])) if section is not None else (b"", 0)
    except (OSError, ELFError):
        return b"", 0


def _caller_by_code(
    place: tuple[MapRecord, int],
    stack: Stack,
    frames: CallFrames,
    registers: dict[int, int | None],
    state: Sequence[str],
    *,
    is_innermost: bool,
) -> dict[int, int | None] | None:
    """The registers of a function's caller, by what the function's own code has pushed; None if that is unknown."""
    path, address = place[0].path, place[1]
    below = registers.get(frames.stack_register)
    bounds = function_bounds(Path(path), address)
    if below is None or frames.pushed is None:
        return None
    start = bounds[0] & ~frames.flag_bits if bounds is not None else _entry(path, address, frames, state)
    if start is None:
        return None
    # A caller's address is the last byte of its call.
    until = address if is_innermost else address + 1
    pushed = frames.pushed(read_code(path, start, until - start), state)
    base = below if pushed is None or pushed.base is None else registers.get(pushed.base)
    if pushed is None or base is None or not (is_innermost or frames.return_register in pushed.offsets):
        return None
    caller = registers | {number: stack.word(base + offset) for number, offset in pushed.offsets.items()}
    caller[frames.stack_register] = base + pushed.depth_bytes
    if bounds is None and is_innermost:
        # A function that calls none pushes nothing, and what seems its entry is then another's: the link register must
        # show that it has made a call, or be what it pushed.
        link = registers.get(frames.return_register) or 0
        there = locate([place[0]], (link & ~frames.flag_bits) - 1)
        if caller.get(frames.return_register) != link and not (there is not None and start <= there[1] < until):
            return None
    return caller


def _entry(path: str, address: int, frames: CallFrames, state: Sequence[str]) -> int | None:
    """Where the function around an address without a symbol seems to begin, after the end of the symbol before it."""
    if frames.entry is None:
        return None
    earlier = max((end for _, end in _functions(Path(path)) if end <= address), default=0)
    first = max(address - FARTHEST_ENTRY_BYTES, earlier) & ~3
    code = read_code(path, first, address - first)
    at = frames.entry(code, state) if len(code) == address - first else None
    return first + at if at is not None else None


def _is_return_address(fault: Fault, address: int, frames: CallFrames) -> bool:
    """Whether an address follows a call, as far as the architecture's code shows that."""
    place = locate(fault.maps, (address & ~frames.flag_bits) - 1)
    if frames.pushed is None or place is None:
        return True
    code = read_code(place[0].path, place[1] - 3, 4)
    return len(code) != 4 or frames.follows_call(address, code)


def _of_caller(
    registers: dict[int, int | None], row: dict[Any, Any], stack: Stack, frame_address: int
) -> dict[int, int | None]:
    """The registers of a frame's caller, by the unwind rules in force in the frame; None for an unknown value."""
    caller = dict(registers)
    for number, rule in row.items():
        if isinstance(number, int) and rule.type == "OFFSET":
            caller[number] = stack.word(frame_address + rule.arg)
        elif isinstance(number, int) and rule.type == "REGISTER":
            caller[number] = registers.get(rule.arg)
        elif isinstance(number, int) and rule.type == "UNDEFINED":
            caller[number] = None
    return caller


@cache
def frame_rules(path: str, address: int) -> dict[Any, Any] | None:
    """The unwind rules in force at an address of a file's own symbols; None if no table covers it."""
    # Cached: faults of one kind come again and again from the same few.
    for entry in _frame_entries(path):
        start = entry["initial_location"]
        if start <= address < start + entry["address_range"]:
            try:
                rows = entry.get_decoded().table
            except (DWARFError, KeyError):
                return None
            found = None
            for row in rows:
                if row["pc"] > address:
                    break
                found = row
            return found if found is not None and found["cfa"].reg is not None else None
    return None
