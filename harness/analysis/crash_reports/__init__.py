"""What a dying server says of itself: a failed assertion, or a report of its crash.

It imports the readers of programs in `analysis`, and `isa`, `record` and `core`. Begin with `assertion_log`.
"""
