"""Loads the harness' pytest plugin, nothing else."""

pytest_plugins = ["harness.pytest_plugin"]
