"""Suites: the properties that a server must have on every target."""
