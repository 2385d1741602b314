"""The bitops suite."""
