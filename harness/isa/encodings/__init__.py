"""Every encoding of a memory access in an instruction set, and its effect on registers and memory.

Written from the architectures' manuals, never from the emulator. `encoding` is the form. One module fills it in for an
architecture, with the assembly beside it that runs a single instruction. It may import its own `encoding`, and `core`.
Begin with `encoding`; `harness.run.sweep` makes programs of the tables.
"""
