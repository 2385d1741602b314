"""The state of one cell while its tests run: its servers, the test that runs now, and what the cell costs.

It may import everything of `run` but the plugin. Begin with `cell_session`.
"""
