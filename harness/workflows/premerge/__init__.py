"""Checks a change before a merge: what it changes, which suites that asks for, and which findings its base has, too.

It may import `harness.workflows.check` and what that may import. Begin with `premerge_check` and `change_selection`.
"""
