"""Runs the subject of a finding once more: its program, server, unit or test of the release, and collects the evidence.

It imports `recorded_requests` and `recurrence`, and everything below `workflows`. Begin with `replayed_run`, whose
class every other module returns; `server` is the most common case.
"""
