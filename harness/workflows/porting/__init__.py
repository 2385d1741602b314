"""The porting report: whether a tree configures, builds, starts and runs on a machine, and what to fix first.

It imports everything below `workflows`, and `harness.workflows.check`.
Begin with `survey`; `document` is its result as a value.
"""
