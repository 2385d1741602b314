"""The base of all packages: data, errors, JSON and TOML, the cache, processes, and text that is safe to print.

It imports no other package of the harness.
Begin with `model` (servers, suites, builds), `target_model` (targets) and `finding` (findings, verdicts).
"""
