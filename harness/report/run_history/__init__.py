"""The history of many runs as a static site: verdicts by revision and target, and each finding's first and last run.

It may import formats, history, line_chart and what report may import. Begin with timeline.
"""
