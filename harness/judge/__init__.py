"""Turns evidence into findings and verdicts. It starts only symbol tools, and works on any stored run.

It imports `analysis`, `isa`, `protocol`, `record` and `core`, never `build`, `run` or `plan`: the judgement of a run
depends only on the run's records. Begin with `findings`, then `causality` and `sightings`. `conclusion` adds the known
list and the exit code.
"""
