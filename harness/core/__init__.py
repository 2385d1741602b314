"""What everything else stands on: the nouns, errors, JSON and TOML, the cache, processes, text that is safe to print.

It imports no other package of the harness.
Begin with `model` (targets, servers, builds) and `finding` (accesses, stacks, findings, verdicts).
"""
