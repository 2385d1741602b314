"""The shortest tests of numbers and replies from suites of tier `full`, and some that no other quick suite has."""
