"""Chaos: faults are injected into checks of a clean server, and whatever comes of them must not be believed."""
