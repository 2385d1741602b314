"""Becomes the test process of each cell of a run (harness.core.processes.fork_server).

A cell's process takes half a second of processor before its first test, most of it for imports that are the same for
all cells. This program makes them once. It does not import what pytest rewrites, to explain failed assertions: the
plugin and the suites.
"""

from __future__ import annotations

import importlib
import sys

import pytest
from _pytest.config import default_plugins

from harness.core.processes import fork_server

BEFORE_PYTEST = ("-I", "-B", "-m", "pytest")
"""How the words of a cell's process begin, after the interpreter's own name."""
_IMPORTED = (
    *(f"_pytest.{name}" for name in default_plugins),
    "harness.protocol.reply_comparison",
    "harness.run.cell_session",
    "harness.run.detector_canary",
    "harness.run.tcl_suite",
    "harness.run.upstream.test_files",
)


def main() -> int:
    """Serve until the run has started its last cell. In the process of a cell: run its tests."""
    for name in _IMPORTED:
        importlib.import_module(name)
    words = fork_server.serve()
    if words is None:
        return 0
    return int(pytest.main(words[1 + len(BEFORE_PYTEST) :]))


if __name__ == "__main__":
    sys.exit(main())
