"""Instructions of a 68040's user programs that have an operand in memory.

Sections are those of the M68000 Family Programmer's Reference Manual (M68000PM/AD): chapter 4 has the integer
instructions, 5 those of floating point; the addressing modes are in 2.2. Displacements, registers, immediate data and
conditions are samples; all opcodes are made, in every size and addressing mode whose address a register can hold.
It may import `encoding` and `core`. Begin with `table`.
"""
