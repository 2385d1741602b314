"""Sanitizers and Valgrind: what makes them report errors, and how their reports read in a guest's log.

It imports `core` and `harness.analysis.symbols`; it starts nothing and opens no file.
Begin with `registry`; each detector is a module.
"""
