"""Instruction sets: what each demands of an address, and what else differs from one architecture to the next.

It imports `core`; no other package names an architecture.
Begin with `rules`, which says what a misaligned access must do.
"""
