"""From evidence to findings and verdicts: pure but for symbol tools, and repeatable on any stored run.

It imports `analysis`, `isa`, `protocol`, `record` and `core`, never `build`, `run` or `plan`: a run is judged by what
it recorded. Begin with `findings`, then `causality` and `sightings`; `conclusion` adds the known list and the exit
code.
"""
