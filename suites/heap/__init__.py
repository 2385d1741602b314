"""The heap suite."""
