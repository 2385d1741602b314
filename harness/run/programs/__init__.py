"""Runs any host command, and runs every target program that it starts under the emulator.

A tracer sees what the command's processes execute, and replaces programs of the target. It needs no root, and changes
nothing of the machine. It may import server_process and everything below run. Begin with traced_command.
"""
