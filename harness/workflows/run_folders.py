"""Creates the folders of runs, which only their user can access, and removes old ones."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING

from harness.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def new_run_folder(parent: Path) -> Path:
    """A fresh folder that only the user can access. Its name is the time, so runs sort by age."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        folder = parent / (stamp if not number else f"{stamp}-{number}")
        try:
            folder.mkdir(0o700, parents=True)
        except FileExistsError:
            number += 1
            continue
        return folder.resolve()


def empty_run_folder(path: Path) -> Path:
    """The folder that the user named, created if necessary, for this process alone.

    Raises UsageError if it is not empty, or if another command has just taken it.
    """
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError("the run folder cannot be made", where=str(path), because=str(error)) from error
    # The lock ends with the process and leaves no file. Another one may have found the folder empty, too.
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise UsageError(
            "another run uses this folder", where=str(path), remedy="name a new one: --run FOLDER"
        ) from error
    if any(path.iterdir()):
        os.close(held)
        raise UsageError("the run folder is not empty", where=str(path), remedy="name a new one: --run FOLDER")
    return path.resolve()


def forget_runs(parent: Path, *, keep: int) -> None:
    """Remove all but the newest runs."""
    runs = sorted(path for path in parent.iterdir() if (path / "run.json").is_file())
    for old in runs[:-keep]:
        shutil.rmtree(old)
