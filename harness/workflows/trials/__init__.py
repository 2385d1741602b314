"""Repeats what failed: while stores waited, in the host's memory order and not, to find out whether order is to blame.
What ran on the native build for one cell serves others.

It may import what `programs` may. It runs and records, and harness.judge.opinions judges. Begin with `order_trials`.
"""
