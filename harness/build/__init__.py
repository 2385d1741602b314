"""Everything that a run needs before it starts: sources fetched by hash, servers, emulators, kernels, helper programs.

It imports `plan`, `analysis` and what these stand on; every product lies in the cache.
Begin with `server_build`.
"""
