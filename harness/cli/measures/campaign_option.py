"""The option of commands that workers can carry out: the folder of their campaign."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.run_command import RUNS
from harness.core.errors import UsageError
from harness.judge import conclusion

folder = click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    default=None,
    help="With --on, the campaign's folder, new or begun before.  [default: runs/TIME]",
)


def new_folder(folder: Path | None) -> Path:
    """The folder that the user named, or a new one."""
    return folder or conclusion.new_run_folder(RUNS)


def refuse_folder(folder: Path | None) -> None:
    """Raise UsageError for a campaign's folder where there is no campaign."""
    if folder is not None:
        raise UsageError("--run needs --on", where="--run", because="without workers, nothing is kept in a folder")
