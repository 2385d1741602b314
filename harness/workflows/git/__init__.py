"""Reads a server's git checkout: the base of a change, the files that differ from it, and the base's own tree.

It may import `build` and what that may import; it never writes to the checkout or its index.
Begin with `checkout`.
"""
