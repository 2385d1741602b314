"""The findings that are expected for now: lists of them, what they fit, and the list that a tree brings.

It may import `record` and `core`. Begin with `known_list`.
"""
