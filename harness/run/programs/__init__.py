"""Runs any host command, and runs every target program that it starts under the emulator.

A tracer sees what the command's processes execute, and replaces programs of the target. It does not need root, and
changes nothing on the host. It may import server_process and everything below run. Begin with traced_command.
"""
