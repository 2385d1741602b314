"""The option of commands that workers can carry out: the folder of their campaign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.run_options import RUNS
from harness.core.errors import UsageError
from harness.workflows import run_folders

if TYPE_CHECKING:
    from collections.abc import Callable


def folder_option(whose: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """`--run` for a command; `whose` says what the folder belongs to."""
    return click.option(
        "--run",
        "folder",
        type=click.Path(path_type=Path),
        default=None,
        help=f"{whose}, new or begun before.  [default: runs/TIME]",
    )


folder = folder_option("With --on, the campaign's folder")


def new_folder(folder: Path | None) -> Path:
    """The folder that the user named, or a new one."""
    return folder or run_folders.new_run_folder(RUNS)


def refuse_folder(folder: Path | None) -> None:
    """Raise UsageError for a folder if nothing would be stored in it."""
    if folder is not None:
        raise UsageError("--run needs --on", where="--run", because="without workers, nothing is kept in a folder")
