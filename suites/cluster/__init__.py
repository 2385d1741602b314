"""Nodes on machines that differ, on one bus."""
