"""The findings that are expected for now: lists of them, what they fit, and the list that a tree brings.

It may import `analysis`, `isa`, `record` and `core`. Begin with `known_list`.
"""
