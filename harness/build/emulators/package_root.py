"""Runs programs with their own dynamic loader and libraries, such as those of a distribution's package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build.dynamic_links import links_of
from harness.build.emulators.runner import with_root
from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.model import Build


def runner_of(build: Build, runner: Runner) -> Runner:
    """How to run the programs of a build. Those of a package find their libraries in the package's root folder.

    Natively, the root folder's own dynamic loader starts them, with the folders in `--library-path`.
    """
    root, program = build.root, build.server_binary
    if root is None:
        return runner
    if not runner.target.emulator.runs_here:
        return with_root(runner, root)
    loader = root / _loader_of(program).relative_to("/")
    folders = [str(folder) for parent in ("lib", "usr/lib") for folder in sorted((root / parent).glob("*-linux-gnu*"))]
    words = [*runner.options, str(loader), "--library-path", ":".join(folders)]
    return msgspec.structs.replace(
        runner, program=runner.program or Path(words[0]), options=words[0 if runner.program else 1 :]
    )


def _loader_of(program: Path) -> Path:
    """The dynamic loader that a program names."""
    if not (interpreter := links_of(program).interpreter):
        raise InfrastructureError(f"{program.name} names no dynamic loader", where=str(program))
    return Path(interpreter)
