"""Suites: what must hold of a server on every target."""
