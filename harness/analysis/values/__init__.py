"""The arguments and results of functions, as two builds of one server had them.

It imports `analysis.symbols` and `core`. Begin with `comparison`.
"""
