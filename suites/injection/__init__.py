"""The injection suite."""
