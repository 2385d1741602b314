"""The protocol that clients and servers speak: RESP, streams of commands, and whether two servers' replies agree.

It imports `record` and `core`; it starts no server.
Begin with `command_stream` and `resp`.
"""
