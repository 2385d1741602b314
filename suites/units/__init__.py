"""The units suite."""
