"""The threads suite."""
