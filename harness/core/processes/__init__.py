"""Processes: only this package starts them, and no process that it started outlives a command.

It imports only `harness.core.errors` from the harness.
Begin with `process`, which runs every program.
"""
