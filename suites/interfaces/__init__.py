"""The shortest tests of settings and of the module API from suites of the tier `full`."""
