"""Instruction sets: what a misaligned access must do, and everything else in which architectures differ.

It imports `core`; no other package names an architecture.
Begin with `rules` for accesses, and with `architecture`, the form that each architecture's module fills in.
"""
