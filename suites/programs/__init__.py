"""The programs suite."""
