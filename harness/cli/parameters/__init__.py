"""What the words of a command line may be: the types of their values, and what a shell completes.

It may import what `cli` may, and nothing of `cli`. Begin with value_types.
"""
