"""PowerPC's loads and stores: the registers of its targets, the instructions, and the tables.

It may import `encoding` and `core`. Begin with `table`.
"""
