"""The words of a command line: the types of their values, and their completion in a shell.

It may import what `cli` may import, but nothing of `cli`. Begin with value_types.
"""
