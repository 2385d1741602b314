"""Running: guests, the oracle beside them, canaries, and the pytest session that carries out one cell.

It imports `build` and what that stands on; it writes evidence and judges nothing.
Begin with `server_process`, then `session`.
"""
