"""The vectors suite."""
