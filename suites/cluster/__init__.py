"""Cluster nodes of different machines on one bus."""
