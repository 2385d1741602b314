"""Which code of its own a server executes while a test, or a stream of commands, runs.

It imports `run.counted_server` and what that may import. Begin with `covered_guest`.
"""
