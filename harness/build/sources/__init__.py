"""Provides sources: archives fetched from registries and checked by hash, and server trees of releases or users.

It imports `plan` and `core`; it never writes to a tree that it reads.
Begin with `source_tree` and `archives`.
"""
