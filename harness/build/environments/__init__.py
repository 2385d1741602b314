"""Surrounds emulated programs with what users' machines have and this one has not: small stacks, filtered system calls.

It may import what `harness.build` may. Begin with `guest_environment`.
"""
