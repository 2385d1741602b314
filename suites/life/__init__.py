"""The life suite."""
