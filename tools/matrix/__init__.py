"""The matrix of current releases, compilers and machines: what `plumb check` says of each cell.

`document` owns measurements/matrix.json, `page` makes docs/MATRIX.md of it, and `python -m tools.matrix` asks for
cells.
"""
