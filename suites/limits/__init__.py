"""The shortest tests on numbers and replies, of suites of the tier `full`, and some that no other quick suite has."""
