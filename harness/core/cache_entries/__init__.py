"""Metadata of the cache's entries: their seals, and which processes use them.

It imports only modules of `harness.core` below `cache`. Begin with `cache_seal`, then `cache_use`, which every removal
must consult.
"""
