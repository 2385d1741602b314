"""What a server has beside its process: options to start with, recorded ways in, the evidence that it leaves, its end.

It may import everything below `run`. Begin with `server_evidence` and `recorded_access`.
"""
