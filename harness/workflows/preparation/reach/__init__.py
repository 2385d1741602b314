"""What a change reaches: the code that it alters, the tests that execute this code, and the part that no test executes.

It imports `prepared_run` and what that may import. Begin with `reach_selection`, which selects the tests;
`untested_change` reports the rest.
"""
