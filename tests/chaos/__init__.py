"""Chaos tests: inject faults into checks of a clean server, and require that no wrong result is accepted."""
