"""The evidence of a run: every file that a run folder holds, its writer, its reader, and the seal that shows damage.

It imports `core`; it judges nothing.
Begin with `run_folder`, which draws the layout of a run folder.
"""
