"""Runs every encoding of a target at every offset, and compares with what its policy prescribes.

Its modules import everything below `run`. Begin with `program`, which makes the program of harness/isa/encodings;
`comparison` runs it and judges.
"""
