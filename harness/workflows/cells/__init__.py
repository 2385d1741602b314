"""Runs the cells of a prepared run: which stand for others, and what their logs say of tests and servers.

It may import `preparation`, `trials` and what these may. Begin with `cell_runs`.
"""
