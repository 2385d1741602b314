"""Describes sanitizers and Valgrind: the settings that make them report errors, and their report formats in guest logs.

It imports `core` and `harness.analysis.symbols`; it starts no process and opens no file.
Begin with `registry`; each detector is a module.
"""
