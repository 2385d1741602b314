"""Reads a server's C source: its syntax tree, with the scopes and declarations that the parser does not connect.

It imports nothing of the harness. Begin with `syntax`.
"""
