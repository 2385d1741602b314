"""What a program that a user compiled says of itself: in its last words, in its names and in its types.

It imports `core` alone, and starts nothing. Begin with `failure_message`.
"""
