"""Servers whose memory blocks all end before a guard page."""
