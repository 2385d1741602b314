"""The shortest tests of suites of the tier `full` on settings and on the module API."""
