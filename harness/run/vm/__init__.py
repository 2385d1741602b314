"""Guests of the kernel tier: an emulated computer with a real kernel, its init, and the servers that run in it.

It imports `build`, `record` and `core`.
Begin with `machine`; `guest` is a server inside one.
"""
