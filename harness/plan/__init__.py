"""What can be selected and what a run will do: the catalog of targets, servers, suites and policies, requests, plans.

It imports `core`.
Begin with `catalog`, which reads the TOML files, and `plan`, which turns a selection into cells.
"""
