"""x86, the architecture of native targets: an emulator only counts there, and no fault is unwound or disassembled."""

from __future__ import annotations

import re

from harness.isa import branches
from harness.isa.architecture import Architecture, ExactRelocation

_NOP = rb"\x66*(?:\x2e?\x0f\x1f(?:\x00|\x40\x00|\x44\x00\x00|\x80\x00{4}|\x84\x00{5})|\x90)"
"""NOP in each of its lengths (Intel SDM volume 2B, NOP: recommended multi-byte sequences), with more prefixes."""

_RELATIVE = (2, 4)
"""R_X86_64_PC32 and R_X86_64_PLT32: relative to the field, and meant from the instruction's end."""
_ENDS_WITH_FIELD = re.compile(rb"(?s)(?:\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]|[\xe8\xe9]|\x0f[\x80-\x8f])\Z")
"""LEA of a relative address, CALL, JMP and Jcc: the field is the last of the instruction."""

X86 = Architecture(
    isas=("x86_64", "i386"),
    macros=r"i386|i686|x86_64|amd64|SSE\w*|AVX\w*|HAVE_AVX\w*",
    variants={},
    exact_relocations={"EM_X86_64": tuple(ExactRelocation(kind, 4, _ENDS_WITH_FIELD) for kind in _RELATIVE)},
    # R_X86_64_PC32.
    relative_entries={"EM_X86_64": (2,)},
    branches={"EM_X86_64": branches.in_x86, "EM_386": branches.in_x86},
    padding={"EM_X86_64": rb"(?:%b)+" % _NOP},
    at_any_address=frozenset({"EM_X86_64", "EM_386"}),
)
