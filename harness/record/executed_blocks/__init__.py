"""Which blocks of a server's program each test of a cell executes, as the emulator's plugin records them, and the
results in the cell's folder: functions (`cell_reach`) or addresses (`executed_tests`).

It imports `core`, and decides nothing: harness.workflows.preparation.reach selects tests with its records, and
harness.workflows.suspect_search ranks functions. Begin with `recorder`.
"""
