"""Which functions of a server each test of a cell enters: the map that the emulator's plugin writes to, and the cell's
own file.

It imports `core`, and decides nothing: harness.workflows.preparation.reach_selection chooses tests by it. Begin with
`cell_reach`.
"""
