"""A judgement in every format that people and programs read.

It may import `judge` and the layers below it, never `build`, `run` or `plan`.
Begin with `formats.registry`, the list of formats; `terminal` is what a command shows when it ends.
"""
