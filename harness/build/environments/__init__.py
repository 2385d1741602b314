"""Gives emulated programs conditions of users' machines that the host lacks: small stacks, filtered system calls.

It may import what `harness.build` may. Begin with `guest_environment`.
"""
