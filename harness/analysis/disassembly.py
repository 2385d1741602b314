"""Turns instructions into text with capstone or the target's objdump, and derives their memory accesses from the text.

It never guesses: undecodable bytes stay bytes, and an unknown access has no size. `harness.isa` supplies the
differences between architectures.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Literal

import capstone

from harness.core.finding import Access
from harness.core.processes import process
from harness.core.target_model import AccessClass
from harness.isa import registry

if TYPE_CHECKING:
    from harness.isa.architecture import InstructionSet
    from harness.record.fault_log import Fault


def disassemble(fault: Fault, machine: str) -> str:
    """The faulting instruction as text, or its bytes if no disassembler knows it."""
    return instruction_text(bytes.fromhex(fault.instruction), fault.pc, instruction_set(fault, machine))


def instruction_set(fault: Fault, machine: str) -> InstructionSet | None:
    """The faulting code's instruction set according to the processor's state; None if QEMU's `machine` is unknown."""
    variant = registry.variant(machine)
    if variant is None:
        return None
    return variant.state_instructions(fault.registers) if variant.state_instructions else variant.instructions


def instruction_text(code: bytes, address: int, instructions: InstructionSet | None) -> str:
    """The first instruction of some code."""
    text = ""
    if instructions is not None and instructions.capstone is not None:
        for decoded in capstone.Cs(*instructions.capstone).disasm(code, address, 1):
            text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    if not text and instructions is not None and instructions.beyond_capstone is not None:
        text = instructions.beyond_capstone(code)
    if not text and instructions is not None and instructions.objdump:
        text = _by_objdump(code[:4], address, instructions.objdump)
    if not text and instructions is not None and instructions.numbers:
        text = _by_numbers(code[:4], instructions.numbers)
    return text or f".inst {code[:4].hex()}"


def instruction_addresses(code: bytes, start: int, instructions: InstructionSet | None) -> list[int]:
    """The addresses of instructions in code that starts with one; empty if the instruction set is unknown."""
    if instructions is None:
        return []
    if instructions.instruction_bytes:
        length = instructions.instruction_bytes
        return list(range(start, start + len(code) - length + 1, length))
    assert instructions.capstone is not None, "instructions of several lengths need a decoder"
    decoder = capstone.Cs(*instructions.capstone)
    # Constants are between instructions: the decoder skips them, two bytes at a time.
    decoder.skipdata = True
    return [decoded.address for decoded in decoder.disasm(code, start)]


@cache
def _by_objdump(code: bytes, address: int, command: tuple[str, ...]) -> str:
    """One instruction that capstone lacks, decoded by the target's own objdump; empty if objdump does not know it."""
    if shutil.which(command[0]) is None:
        return ""
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        options = ["-D", "-b", "binary", f"--adjust-vma={address:#x}", file.name]
        listing = process.run([*command, *options], deadline_seconds=60).text
    line = listing.strip().splitlines()[-1]
    # ` ADDRESS:<tab>bytes<tab>name operands`, or a directive for bytes that are not an instruction.
    text = " ".join(line.split("\t")[2:]).strip()
    return "" if text.startswith((".", "#")) else text


@cache
def _by_numbers(code: bytes, command: tuple[str, ...]) -> str:
    """One instruction that capstone lacks, decoded by LLVM; empty if LLVM does not know it or is not installed."""
    if shutil.which(command[0]) is None:
        return ""
    with tempfile.NamedTemporaryFile() as file:
        file.write(" ".join(f"{byte:#04x}" for byte in code).encode())
        file.flush()
        listing = process.run([*command, file.name], deadline_seconds=60).text
    # A directive, and then `<tab>name<tab>operands`; of other bytes a message that begins with the file's name.
    lines = [" ".join(line.split()) for line in listing.splitlines() if re.match(r"\t[a-z]", line)]
    return lines[-1] if lines else ""


def access_of(fault: Fault, machine: str = "") -> Access:
    """Direction, class, size and misalignment of the attempted access.

    The user-mode emulator records them. A kernel does not, so they are derived from the instruction if `machine` says
    which emulator runs the same programs.
    """
    direction, access_class, size = fault.access, fault.access_class, fault.access_bytes
    address = fault.address if fault.misaligned_address < 0 else fault.misaligned_address
    if not access_class and machine:
        text = disassemble(fault, machine)
        direction, access_class, size = classify(text, machine)
        architecture = registry.of_emulator(machine)
        if architecture is not None and architecture.data_address is not None:
            address = architecture.data_address(text, fault.registers, address)
    return Access(
        direction=direction,
        access_class=access_class,
        size_bytes=size,
        modulo=address % (max(size, fault.access_hint) or 16),
        hint_bytes=fault.access_hint,
    )


_Classified = tuple[Literal["load", "store", ""], AccessClass | Literal[""], int]


def classify(instruction: str, machine: str) -> _Classified:
    """Direction, class and unit in bytes of an access, derived from its instruction's text; empty if unknown."""
    architecture = registry.of_emulator(machine)
    if architecture is None:
        return "", "", 0
    for pattern, access_class, size in architecture.accesses:
        if re.fullmatch(pattern, instruction):
            stores = re.match(architecture.stores, instruction)
            return "store" if stores else "load", access_class, size or architecture.operand_bytes(instruction)
    return "", "", 0


def direction_of(instruction: str) -> Literal["load", "store", ""]:
    """Whether an instruction reads or writes memory, by its name; empty for neither or both."""
    if re.match(r"v?(ldr|ldm|ld[a-z]*|pop|lb|lh|lw)", instruction):
        return "load"
    return "store" if re.match(r"v?(st[a-z]*|push|sb|sh|sw)\b", instruction) else ""
