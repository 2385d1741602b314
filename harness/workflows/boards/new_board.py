"""Writes the file of a board that ssh reaches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.cache import disk_errors
from harness.core.errors import UsageError
from harness.core.processes import environment, process
from harness.plan.name_selection import require_known

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.target_model import Target
    from harness.plan.catalog import Catalog

OPTIONS = tuple(
    word
    for option in ("BatchMode=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlPath=none")
    for word in ("-o", option)
)
"""ssh asks no question, and notices within 15 s that the machine is silent. Every connection is its own: Plumbline ends
what a command leaves behind, which would be the master of the others.
"""
LOGIN_SECONDS = 60.0
_TEMPLATE = """\
# A machine that ssh reaches, for plumb check --board. docs/howto/boards.md explains it, docs/toml.md lists every key.
start = {start}
reach = {reach}
target = "{target}"  # {title}
"""


def ssh_board(place: str, target: Target, options: Sequence[str] = ()) -> str:
    """The text of a file. `place`: `user@host`, or a name of ~/.ssh/config. `options`: more of ssh's."""
    login = ["ssh", *OPTIONS, *options]
    way = [*login, "-o", "ExitOnForwardFailure=yes", "-N", "-L", "{here}:{there}", place]
    start, reach = (json.dumps(words, ensure_ascii=False) for words in ([*login, place], way))
    return _TEMPLATE.format(start=start, reach=reach, target=target.name, title=target.title)


def write(path: Path, text: str) -> None:
    """Write a new file. Raises UsageError if there is one already."""
    try:
        with disk_errors(path.parent), path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError("the file exists already", where=str(path), remedy="name another one") from error


def target_for(catalog: Catalog, place: str, name: str, path: Path) -> Target:
    """The target of a name, or without a name, that of the machine's own `uname -m`.

    Raises UsageError if the machine does not say, or is none or several of the targets.
    """
    usual = [target for target in catalog.targets.values() if target.emulator.is_qemu_user]
    if name:
        require_known("target", name, [target.name for target in usual], "--target")
        return catalog.targets[name]
    asked = process.run(
        ["ssh", *OPTIONS, place, "uname -m"], deadline_seconds=LOGIN_SECONDS, environment=environment.for_reaching()
    )
    machine = asked.text.strip()
    found = [target for target in usual if target.machine == machine and not target.variant_of]
    if asked.code != 0 or len(found) != 1:
        raise UsageError(
            "the target of the machine is not known",
            where=str(path),
            because=f"ssh {place} uname -m: {machine[-300:] or f'status {asked.code}'}",
            remedy=f"--target NAME, one of: {', '.join(target.name for target in found or usual)}",
        )
    return found[0]
