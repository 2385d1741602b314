"""Instructions as text, by capstone, or by the target's objdump where capstone knows nothing; and what they access.

It refuses to guess: what is no instruction is shown as its bytes, and an access that is not known has no size.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Literal

import capstone

from harness.core.finding import Access
from harness.core.model import AccessClass
from harness.core.processes import process

if TYPE_CHECKING:
    from harness.record.run_folder import Fault


_BIG, _LITTLE = capstone.CS_MODE_BIG_ENDIAN, capstone.CS_MODE_LITTLE_ENDIAN


_DISASSEMBLERS: dict[str, tuple[int, int]] = {
    "arm": (capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM | _LITTLE),
    "thumb": (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | _LITTLE),
    "aarch64": (capstone.CS_ARCH_ARM64, _LITTLE),
    "mips": (capstone.CS_ARCH_MIPS, capstone.CS_MODE_MIPS32 | _BIG),
    "mips64": (capstone.CS_ARCH_MIPS, capstone.CS_MODE_MIPS64 | _BIG),
    "mipsel": (capstone.CS_ARCH_MIPS, capstone.CS_MODE_MIPS32 | _LITTLE),
    "m68k": (capstone.CS_ARCH_M68K, capstone.CS_MODE_M68K_040 | _BIG),
    "ppc": (capstone.CS_ARCH_PPC, capstone.CS_MODE_32 | _BIG),
    "ppc64": (capstone.CS_ARCH_PPC, capstone.CS_MODE_64 | _BIG),
    "riscv64": (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC),
    "s390x": (capstone.CS_ARCH_SYSZ, _BIG),
    "sparc64": (capstone.CS_ARCH_SPARC, capstone.CS_MODE_V9 | _BIG),
    "sparc32plus": (capstone.CS_ARCH_SPARC, capstone.CS_MODE_V9 | _BIG),
}


_UNKNOWN_TO_CAPSTONE = {"alpha": ["-m", "alpha:ev6"], "hppa": ["-m", "hppa1.1", "-EB"]}
"""Machine -> how its objdump, MACHINE-linux-gnu-objdump, is asked to disassemble plain bytes."""


_OF_SEVERAL_LENGTHS = {"thumb", "s390x", "m68k", "riscv64"}
"""Instruction sets some of whose instructions are longer than others; everybody else's are four bytes long."""


_ARM_CPSR, _THUMB_BIT = 25, 1 << 5


def disassemble(fault: Fault, machine: str) -> str:
    """The faulting instruction as text; its bytes when capstone does not know it."""
    return instruction_text(bytes.fromhex(fault.instruction), fault.pc, dialect(fault, machine))


def dialect(fault: Fault, machine: str) -> str:
    """Which instruction set the faulting code is in: the machine's, or `thumb`, as the CPSR's bit says."""
    if machine == "arm" and len(fault.registers) > _ARM_CPSR and fault.registers[_ARM_CPSR]:
        cpsr = int.from_bytes(bytes.fromhex(fault.registers[_ARM_CPSR]), "little")
        return "thumb" if cpsr & _THUMB_BIT else "arm"
    return machine


def instruction_text(code: bytes, address: int, kind: str) -> str:
    """The first instruction of some code, in the instruction set that `kind` names."""
    if kind in _DISASSEMBLERS:
        architecture, mode = _DISASSEMBLERS[kind]
        for instruction in capstone.Cs(architecture, mode).disasm(code, address, 1):
            return f"{instruction.mnemonic} {instruction.op_str}".strip()
        if architecture == capstone.CS_ARCH_SPARC and (text := _sparc_pair(int.from_bytes(code[:4]))):
            return text
    return _by_objdump(code[:4], address, kind) or f".inst {code[:4].hex()}"


def instruction_addresses(code: bytes, start: int, kind: str) -> list[int]:
    """Where instructions begin in code that starts with one; none where the instruction set is unknown."""
    if kind not in _DISASSEMBLERS and kind not in _UNKNOWN_TO_CAPSTONE:
        return []
    if kind not in _OF_SEVERAL_LENGTHS:
        return list(range(start, start + len(code) - 3, 4))
    decoder = capstone.Cs(*_DISASSEMBLERS[kind])
    # Constants stand between instructions: they are stepped over, two bytes at a time.
    decoder.skipdata = True
    return [instruction.address for instruction in decoder.disasm(code, start)]


@cache
def _by_objdump(code: bytes, address: int, kind: str) -> str:
    """One instruction of a machine that capstone lacks, by the target's own objdump; empty where that does not know."""
    command = f"{kind}-linux-gnu-objdump"
    if kind not in _UNKNOWN_TO_CAPSTONE or shutil.which(command) is None:
        return ""
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        options = ["-D", "-b", "binary", *_UNKNOWN_TO_CAPSTONE[kind], f"--adjust-vma={address:#x}", file.name]
        listing = process.run([command, *options], deadline_seconds=60).text
    line = listing.strip().splitlines()[-1]
    # `   ADDRESS:<tab>bytes<tab>name operands`, or a directive for what is no instruction.
    text = " ".join(line.split("\t")[2:]).strip()
    return "" if text.startswith((".", "#")) else text


def _sparc_pair(word: int) -> str:
    """LDD and STD of integer registers, deprecated in V9 but written by GCC for 32-bit programs; capstone lacks them.

    SPARC V9 manual, A.27 and A.54: op 3; op3 0x03 and 0x07; rd, rs1, i, and rs2 or a signed 13-bit offset.
    """
    names = {0x03: "ldd", 0x07: "std"}
    op3 = word >> 19 & 0x3F
    if word >> 30 != 3 or op3 not in names:
        return ""
    data, base = _sparc_register(word >> 25), _sparc_register(word >> 14)
    offset = (word & 0x1FFF ^ 0x1000) - 0x1000
    if word >> 13 & 1:
        address = f"[{base}{offset:+#x}]" if offset else f"[{base}]"
    else:
        index = _sparc_register(word)
        address = f"[{base}]" if index == "%g0" else f"[{base}+{index}]"
    return f"ldd {address}, {data}" if op3 == 0x03 else f"std {data}, {address}"


def _sparc_register(number: int) -> str:
    return f"%{'goli'[number >> 3 & 3]}{number & 7}"


def access_of(fault: Fault, machine: str = "") -> Access:
    """Direction, class, size and misalignment of what the instruction tried.

    The user-mode emulator records them; a kernel does not, and then the instruction tells, on what `machine` names.
    """
    direction, kind, size = fault.access, fault.access_class, fault.access_bytes
    if not kind and machine:
        direction, kind, size = classify(disassemble(fault, machine), machine)
    return Access(direction=direction, access_class=kind, size_bytes=size, modulo=fault.address % (size or 16))


_Classified = tuple[Literal["load", "store", ""], AccessClass | Literal[""], int]


_CONDITION = r"(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al)?"


# Whole instruction -> class and size of the unit whose alignment counts; as plumbline.c classifies their bits.
_CLASSES: dict[str, list[tuple[str, AccessClass, int]]] = {
    "arm": [
        (rf"(ldr|str)s?h{_CONDITION}t?\b.*", "half", 2),
        (rf"(ldr|str)d{_CONDITION}\b.*", "dword", 8),
        (rf"(ldm|stm)(ia|ib|da|db|fd|ea|fa|ed)?{_CONDITION}\b.*|(push|pop){_CONDITION}\b.*", "multi", 4),
        (rf"(vldr|vstr){_CONDITION}(\.\d+)? d.*", "vfp", 8),
        (r"(vldr|vstr|vldm|vstm|vpush|vpop)\w*\b.*", "vfp", 4),
        (r"v(ld|st)[1-4].*", "neon", 8),
        (rf"(ld|st)rexh{_CONDITION}\b.*", "exclusive", 2),
        (rf"(ld|st)rexd{_CONDITION}\b.*", "exclusive", 8),
        (rf"(ld|st)rex{_CONDITION}\b.*", "exclusive", 4),
        (rf"swp{_CONDITION}\b.*", "swap", 4),
        (rf"(ldr|str){_CONDITION}t?\b.*", "word", 4),
    ],
    "aarch64": [
        (r"(ld|st)l?a?xp\b.*", "exclusive", 16),
        (r"(ld|st)l?a?xr\b.*", "exclusive", 0),
        (r"(ldar|stlr|ldapr)h\b.*", "acquire", 2),
        (r"(ldar|stlr|ldapr)\b.*", "acquire", 0),
        (r"(cas|swp|ldadd|ldset|ldclr|ldeor)\w*\b.*", "cas", 0),
    ],
    "sparc": [
        (r"(ld|st) .*%f\d.*", "float", 4),
        (r"(ldd|std) .*%f\d.*", "double", 8),
        (r"(ldsh|lduh|sth)a?\b.*", "half", 2),
        (r"(ldx|stx|ldd|std)a?\b.*", "dword", 8),
        (r"casxa?\b.*", "cas", 8),
        (r"casa?\b.*", "cas", 4),
        (r"swapa?\b.*", "swap", 4),
        (r"(ldsw|lduw|ld|st)a?\b.*", "word", 4),
    ],
}


def classify(instruction: str, machine: str) -> _Classified:
    """Direction, class and unit in bytes of an access, from its instruction as text; empty where that is not known."""
    for pattern, kind, size in _CLASSES.get("sparc" if machine.startswith("sparc") else machine, []):
        if re.fullmatch(pattern, instruction):
            stores = re.match(r"(st|vst|push|vpush|swp|swap|cas)", instruction)
            # Of several registers the last before the address is the one that is moved.
            moved = re.findall(r"\b([wx])\d+", instruction.partition("[")[0])
            return "store" if stores else "load", kind, size or (8 if moved and moved[-1] == "x" else 4)
    return "", "", 0


def direction_of(instruction: str) -> Literal["load", "store", ""]:
    """Whether an instruction reads memory or writes it, by its name; empty for what is neither, or both."""
    if re.match(r"v?(ldr|ldm|ld[a-z]*|pop|lb|lh|lw)", instruction):
        return "load"
    return "store" if re.match(r"v?(st[a-z]*|push|sb|sh|sw)\b", instruction) else ""
