"""Replies that expose memory must be the same on every machine."""
