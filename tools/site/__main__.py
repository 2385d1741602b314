"""`python -m tools.site FOLDER`: build the documentation site; a warning, as of a link that leads nowhere, fails."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
OPTIONS = [
    "--builder",
    "html",
    "--fail-on-warning",
    "--keep-going",
    "--quiet",
    "--conf-dir",
    str(Path(__file__).parent),
]


def main(folder: str) -> int:
    """Sphinx' exit code."""
    return build_main([*OPTIONS, str(ROOT), folder])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
