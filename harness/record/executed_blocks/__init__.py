"""Which blocks of a server's program each test of a cell executes, as the emulator's plugin notes them, and what the
cell's folder keeps of that: functions (`cell_reach`) or addresses (`executed_tests`).

It imports `core`, and decides nothing: harness.workflows.preparation.reach_selection chooses tests by it, and
harness.workflows.suspect_search ranks functions. Begin with `recorder`.
"""
