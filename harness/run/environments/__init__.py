"""Verifies the environments of emulated programs, without which a check in them would prove nothing.

It may import what `harness.run` may. Begin with `environment_canary`.
"""
