"""The self-tests suite."""
