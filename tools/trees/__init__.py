"""Commits without a release number, from the public histories: what `plumb check` says of each.

`document` owns measurements/trees.toml and measurements/trees.json, `page` makes docs/TREES.md of them, and
`python -m tools.trees` checks commits.
"""
