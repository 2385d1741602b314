"""The suites' own test: bugs planted in a clean release, one at a time, which the quick tier must find and name.

It imports everything below `workflows`, and `harness.workflows.check`.
Begin with `campaign`; `mutations` reads the bugs and plants them.
"""
