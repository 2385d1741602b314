"""The fuzz suite."""
