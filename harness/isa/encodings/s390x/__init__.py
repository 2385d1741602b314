"""Loads and stores of z/Architecture in instructions of 4 and 6 bytes, up to the vector enhancements of a z15.

Sections are those of the Principles of Operation (SA22-7832-12): instructions' names in chapters 7, 9, 19 and 21.
Displacements, registers and lengths are samples; all opcodes are made. What calculates has an operand with which the
result is what lay in memory. What compares has the operand fetched before by MVC, which asks for no alignment.
It may import `encoding` and `core`. Begin with `table`.
"""
