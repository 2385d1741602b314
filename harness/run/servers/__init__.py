"""Everything around a server's process: its start options, its recorded connections, its evidence, and its end.

It may import everything below `run`. Begin with `server_evidence` and `recorded_access`.
"""
