"""Notices other users who connect to ports of a cell that has no private network: servers obey every client.

It looks often, and not at every moment: a connection that lasts a few milliseconds may escape it once, but hardly one
that does harm to a test. Ports that were open before the cell began are no server's.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
LOOK_SECONDS = 0.02
BUSY_SHARE = 0.1
"""The largest share of a processor that looking may take: long tables are read less often."""
_LISTENS = "0A"


class _Row(NamedTuple):
    """A socket in the kernel's table (proc(5))."""

    port: str
    other_port: str
    state: str
    owner: int
    inode: int


class StrangerWatch:
    """A thread that looks, from `start` to `close`."""

    def __init__(self, tables: tuple[Path, ...] = TABLES) -> None:
        self._tables = tables
        self._user = os.geteuid()
        self._before = self._ports(self._rows())
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.strangers: set[int] = set()
        """The users who connected so far."""

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._run, name="stranger-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Note the users, other than this one and root, who have a connection to a port of the cell."""
        rows = self._rows()
        ports = self._ports(rows) - self._before
        # The kernel has forgotten the owner of a socket without an inode, and says root.
        self.strangers |= {
            row.owner for row in rows if row.inode and row.other_port in ports and row.owner not in {0, self._user}
        }

    @property
    def doubt(self) -> str:
        """Why the cell's results may be others' doing; empty if nobody connected."""
        if not self.strangers:
            return ""
        who = ", ".join(map(str, sorted(self.strangers)))
        return f"another user ({who}) connected to a server under test: this machine allows no private network"

    def _run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self.look()
            self._ended.wait(max(LOOK_SECONDS, (time.monotonic() - began) / BUSY_SHARE))

    def _ports(self, rows: list[_Row]) -> set[str]:
        """The ports on which this user's processes listen."""
        return {row.port for row in rows if row.state == _LISTENS and row.owner == self._user}

    def _rows(self) -> list[_Row]:
        found = []
        for table in self._tables:
            # A machine without IPv6 has only one.
            for line in table.read_text("utf-8").splitlines()[1:] if table.is_file() else ():
                words = line.split()
                ports = (words[1].rpartition(":")[2], words[2].rpartition(":")[2])
                found.append(_Row(*ports, words[3], int(words[7]), int(words[9])))
        return found
