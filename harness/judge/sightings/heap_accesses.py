"""Tells whether a misaligned access may be to a block of the heap, from its record and the program's headers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

if TYPE_CHECKING:
    from harness.core.finding import Access
    from harness.record.fault_log import Fault

STACK_ABOVE, STACK_BELOW = 8 << 20, 1 << 20
"""Bytes around the stack pointer that may be the stack's."""


def heap_address(fault: Fault, access: Access | None, binary: str) -> tuple[int, int]:
    """The address of a misaligned access and the alignment that it requires, if it may be in an allocated block; else
    -1, 0. `binary`: the server's program.
    """
    if access is None:
        return -1, 0
    address = fault.misaligned_address if fault.misaligned_address >= 0 else fault.address
    on_stack = fault.stack_address - STACK_BELOW <= address < fault.stack_address + STACK_ABOVE
    in_file = any(mapped.start <= address < mapped.end for mapped in fault.maps)
    starts = [mapped.start for mapped in fault.maps if mapped.path == binary]
    size = memory_size(binary)
    in_program = not size or not starts or min(starts) <= address < min(starts) + size
    required = max(access.size_bytes, access.hint_bytes)
    if on_stack or in_file or in_program or not required or address % required != access.modulo:
        return -1, 0
    return address, required


@cache
def memory_size(binary: str) -> int:
    """How many bytes of memory a program takes, with the data that its file does not contain; 0 if unknown."""
    try:
        with Path(binary).open("rb") as stream:
            parts = [part.header for part in ELFFile(stream).iter_segments("PT_LOAD")]
    except (OSError, ELFError):
        return 0
    return max(part.p_vaddr + part.p_memsz for part in parts) - min(part.p_vaddr for part in parts) if parts else 0
