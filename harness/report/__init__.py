"""A judgement in every format that people and programs read: one module a format, and none knows another.

It imports `judge` and what that stands on, never `build`, `run` or `plan`.
Begin with `formats`, the list of them.
"""
