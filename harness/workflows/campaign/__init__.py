"""Campaigns: a plan's cells spread over many machines by Dask.distributed. A job is the same `plumb` that CI jobs run.

It may import `plan`, `report` and what they may import; it starts commands, and neither builds nor runs a cell itself.
Begin with `drive` and `task`.
"""
