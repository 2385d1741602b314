"""The machine code of objects and programs: which functions differ between two builds, and which code belongs to which
lines.

It imports the other modules of `analysis`, `isa` and `core`. Begin with `code_map`.
"""
