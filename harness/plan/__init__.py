"""The catalog of targets, servers, suites and policies, and the plan and the request of a run.

It imports `core`.
Begin with `catalog`, which reads the TOML files, and `plan`, which turns a selection into cells.
"""
