"""Loads the harness' pytest plugin, nothing else."""

pytest_plugins = ["harness.run.pytest_plugin"]
