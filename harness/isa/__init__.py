"""Instruction sets: the required effect of a misaligned access, and all other differences between architectures.

It imports `core`; no other package names an architecture.
Begin with `rules` for accesses, and with `architecture`, the form that each architecture's module fills in.
"""
