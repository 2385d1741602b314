"""Code that several suites use: a suite imports this package and itself, never another suite."""
