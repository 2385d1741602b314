"""The sds suite."""
