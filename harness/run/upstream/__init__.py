"""Runs the tests that a release contains, each file in its own process, against servers on the target.

It may import what `harness.run` may; only the cell's session and the pytest plugin use it. Begin with
`harness.run.upstream.session`, then `stage` (the copy of upstream's tree that contains the target's programs) and
overlay.tcl, which records the tests from inside.
"""
