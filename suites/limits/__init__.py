"""The shortest tests of numbers and replies from suites of the tier `full`, and some that no other quick suite has."""
