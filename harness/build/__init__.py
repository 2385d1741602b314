"""Prepares a run's requirements: sources fetched by hash, servers, emulators, kernels, helper programs.

It imports `plan`, `analysis` and their dependencies; every product is stored in the cache.
Begin with `server_build`.
"""
