"""Sources: archives fetched from registries and checked by hash, and server trees, a release's or a user's own.

It imports `plan` and `core`; it never writes to a tree that it reads.
Begin with `source_tree` and `archives`.
"""
