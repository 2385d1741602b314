"""Servers with TLS."""
