"""`python start.py ORDERS COMMAND …`: become a process with odd settings, and execute the command.

ORDERS is JSON. What cannot be had is an error, never left out.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Self

from harness.core import json_codec
from harness.core.model import Record
from harness.run import private_network

if TYPE_CHECKING:
    from tools.odd_places.runs import Settings

COLUMNS = 20


class Orders(Record, frozen=True):
    """How to start the command."""

    folder: str
    user: int | None = None
    """Number of the user and the group that it runs as."""
    umask: int = 0o022
    network: bool = True
    narrow_terminal: bool = False

    @classmethod
    def of(cls, settings: Settings, folder: str, user: int | None) -> Self:
        """The orders for a process with these settings."""
        return cls(
            folder=folder,
            user=user,
            umask=0o077 if settings.private_files else 0o022,
            network=not settings.no_network,
            narrow_terminal=settings.narrow_terminal,
        )


def main(orders: Orders, words: list[str]) -> None:
    """Execute the command. Raises OSError if a setting is not possible."""
    if not orders.network and not private_network.enter():
        raise OSError("this machine gives no network of its own")
    if orders.user is not None:
        os.setgroups([])
        os.setgid(orders.user)
        os.setuid(orders.user)
    os.umask(orders.umask)
    # Python ignores it, and programs that a shell starts would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.chdir(orders.folder)
    # What a shell would say: behind a symbolic link, it is not what the kernel says.
    os.environ["PWD"] = orders.folder
    if orders.narrow_terminal:
        within = f"stty columns {COLUMNS} rows 24 && exec {shlex.join(words)}"
        words = ["script", "--quiet", "--return", "--command", within, "/dev/null"]
    os.execvp(words[0], words)  # noqa: S606 - in place of this process, whose settings it has


if __name__ == "__main__":
    main(json_codec.decode(sys.argv[1].encode(), Orders), sys.argv[2:])
