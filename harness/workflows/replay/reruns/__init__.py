"""One run of what a finding was seen in: its program, server, unit or test of the release's own, and what it left.

It imports `recorded_requests` and `recurrence`, and everything below `workflows`.
Begin with `replayed_run`, which every other module returns; `server` is the usual one.
"""
