"""What is known of servers as processes: the options that they start with, and how they say that they end.

It may import everything below `run`. Begin with `start_options`.
"""
