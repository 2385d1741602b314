"""Judging of a release's own tests: which crashes they cause on purpose, and how many of them pass.

It may import `sightings` and what that may import. Begin with `deliberate_crashes`, which `causality` asks; `tally`
serves the conclusion and a report format.
"""
