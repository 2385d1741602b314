"""The clock suite."""
