"""x86, the architecture of native targets: an emulator only counts there, and no fault is unwound or disassembled."""

from __future__ import annotations

from harness.isa.architecture import Architecture

X86 = Architecture(
    isas=("x86_64", "i386"),
    macros=r"i386|i686|x86_64|amd64|SSE\w*|AVX\w*|HAVE_AVX\w*",
    variants={},
)
