"""Loads and stores of 32-bit ARM: A32, T32 and T16, with VFP and NEON.

Sections are those of ARM DDI 0406C; ARM DDI 0100I has the same for ARMv5 and ARMv6. Immediate fields, shift amounts,
registers and lanes are samples; opcodes, signs, kinds of shift, write-back, sizes, spacings and hints are all made.
It may import `encoding` and `core`. Begin with `table`.
"""
