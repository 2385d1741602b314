"""Metadata of the cache's entries: their seals, which processes use them, and whether makefiles can build there.

It imports only modules of `harness.core` below `cache`. Begin with `cache_seal`, then `cache_use`, which every removal
must consult.
"""
