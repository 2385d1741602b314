"""The eviction suite."""
