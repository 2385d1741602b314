"""Counts what a round of a workload costs a server, to the instruction.

It may import server_process and everything below run. Begin with `counted_load`, which sends the requests to a
`counted_server`. `workload_needs` also serves the measurements on machines with a kernel.
"""
