"""The arguments and results of functions, as two builds of one server had them.

It imports `core`. Begin with `comparison`.
"""
