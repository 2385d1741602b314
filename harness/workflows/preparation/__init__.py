"""Prepares a run: the sources, emulators, kernels and builds of its targets, and the specification of each cell.

It may import `programs` and what that may import. Begin with `run_setup`, which makes a `prepared_run`; `cell_specs`
makes a cell's specification of that.
"""
