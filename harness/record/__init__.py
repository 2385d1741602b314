"""The evidence of a run: every file in a run folder, its writer, its reader, and the seal that reveals damage.

It imports `core`, and judges nothing.
Begin with `run_folder`, which draws the layout of a run folder. `run_record` and `cell_events` are the values in it.
"""
