"""Processes and what they leave behind: only this package starts one, and nothing that it started outlives a command.

It imports `harness.core.errors` and nothing else of the harness.
Begin with `process`, through which everything is run.
"""
