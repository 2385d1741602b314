"""Turns one piece of evidence into a sighting: a fault, a detector's report, a bad end or a failed test.

Each piece is read by itself: harness.judge.causality decides which sightings are consequences of others. It may import
`triggering_command` and what that may import. Begin with `sighting`.
"""
