"""The network suite."""
