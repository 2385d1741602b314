"""Servers whose memory blocks all end at a guard page."""
