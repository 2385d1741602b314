"""Writes the file of a board that ssh reaches."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.cache import disk_errors
from harness.core.errors import UsageError
from harness.core.processes import environment, process
from harness.plan.board import PORT_HERE, PORT_THERE
from harness.plan.catalog import RUN_BY_THE_HOST
from harness.plan.name_selection import require_known

if TYPE_CHECKING:
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
_SOCKETS, _PORTS = "{here}:{there}", f"{PORT_HERE}:127.0.0.1:{PORT_THERE}"
_PORTS_ALONE = re.compile(r"^debug1: .*remote software version dropbear", re.MULTILINE)
"""What `ssh -v` says of a server of ssh that forwards no Unix sockets."""
_REMARKS = ("debug1:", "OpenSSH_", "Authenticated to ", "Transferred:", "Bytes per second:")
"""How those lines of `ssh -v` begin that are no errors."""
_TEMPLATE = """\
# A machine that ssh reaches, for plumb check --board. docs/howto/boards.md explains it, docs/toml.md lists every key.
start = {start}
reach = {reach}
target = "{target}"  # {title}
"""


class SshLogin(NamedTuple):
    """What a login tells of a machine."""

    machine: str
    """The output of its `uname -m`."""
    forwards_sockets: bool = True
    """Whether its server of ssh leads to Unix sockets, and not to ports alone."""


def asked(place: str) -> SshLogin:
    """Log in. `place`: `user@host`, or a name of ~/.ssh/config. Raises UsageError if ssh does not log in by itself."""
    with tempfile.NamedTemporaryFile() as log:
        told = process.run(
            ["ssh", "-v", "-E", log.name, *OPTIONS, place, "uname -m"],
            deadline_seconds=LOGIN_SECONDS,
            environment=environment.for_reaching(),
        )
        said = Path(log.name).read_text("utf-8", "replace")
    if told.code != 0:
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith(_REMARKS)]
        raise UsageError(
            "ssh does not log in to the machine",
            where=f"ssh {place}",
            because="\n".join([*lines[-5:], f"it ended with {told.code}"]),
            remedy=f"make `ssh -o BatchMode=yes {shlex.quote(place)} true` work: ssh-copy-id, and one login by hand",
        )
    lines = told.text.split() or [""]
    return SshLogin(lines[-1], _PORTS_ALONE.search(said) is None)


def ssh_board(place: str, target: Target, *, forwards_sockets: bool = True) -> str:
    """The text of the file of a machine."""
    login = ["ssh", *OPTIONS]
    between = _SOCKETS if forwards_sockets else _PORTS
    way = [*login, "-o", "ExitOnForwardFailure=yes", "-N", "-L", between, place]
    start, reach = (json.dumps(words, ensure_ascii=False) for words in ([*login, place], way))
    title = target.title.removesuffix(RUN_BY_THE_HOST)
    return _TEMPLATE.format(start=start, reach=reach, target=target.name, title=title)


def write(path: Path, text: str) -> None:
    """Write a new file. Raises UsageError if there is one already."""
    try:
        with disk_errors(path.parent), path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise exists_already(path) from error


def exists_already(path: Path) -> UsageError:
    """The error for a file that is there already."""
    return UsageError("the file exists already", where=str(path), remedy="name another one, or remove it")


def target_for(catalog: Catalog, machine: str, name: str, path: Path) -> Target:
    """The target of a name, or without a name, that of a machine whose `uname -m` is known.

    Raises UsageError if the machine is none or several of the targets.
    """
    usual = catalog.board_targets
    if name:
        require_known("target", name, [target.name for target in usual], "--target")
        return catalog.targets[name]
    # A variant with other time_t or pages has its target's machine, and one of the other byte order has its own.
    own = [one for one in usual if not one.variant_of or one.machine != catalog.targets[one.variant_of].machine]
    found = [target for target in own if target.machine == machine]
    # Kernels add the features of a processor: armv5tejl.
    found = found or sorted((one for one in own if machine.startswith(one.name)), key=lambda one: len(one.name))[-1:]
    if len(found) != 1:
        raise UsageError(
            "the target of the machine is not known",
            where=str(path),
            because=f"its `uname -m` says {machine or 'nothing'}",
            remedy=f"--target NAME, one of: {', '.join(target.name for target in found or usual)}",
        )
    return found[0]
