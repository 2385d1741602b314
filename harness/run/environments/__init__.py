"""Proves the environments of emulated programs, in which a check means something only if they do what they say.

It may import what `harness.run` may. Begin with `environment_canary`.
"""
