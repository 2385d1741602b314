"""Verifies what programs find around them: their environments, without which a check would prove nothing, and limits.

It may import what `harness.run` may. Begin with `environment_canary`.
"""
