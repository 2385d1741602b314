"""Reads a server's C source: its syntax tree, and the lines whose effect depends on the machine.

It imports nothing from the harness. Begin with `machine_dependence`; `syntax` parses.
"""
