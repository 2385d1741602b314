"""A debugger on a server of a target: gdb, and the relay between it and the emulator's stub.

It may import everything below `workflows`, target_setup and workbench. Begin with `debug_shell`.
"""
