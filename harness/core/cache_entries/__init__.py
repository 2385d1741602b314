"""What is known of the cache's entries beside their content: seals, and who uses them.

It imports only `harness.core`'s own modules below `cache`.
Begin with `cache_seal`, then `cache_use`, without which nothing may be removed.
"""
