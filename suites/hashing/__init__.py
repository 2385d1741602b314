"""The hashing suite."""
