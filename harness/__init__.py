"""Plumbline's harness: it plans, builds, runs and judges; harness/README.md is the map."""
