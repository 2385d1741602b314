"""The timers of a counted server are told by the blocks that it has executed."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from harness.analysis import unwind
from harness.analysis.function_symbols import function_symbols
from harness.core.errors import InconclusiveError
from harness.record.instruction_counts import BlockTable
from harness.run.counting.counted_server import CountedGuest

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
void call(void) {}
void serverCron(void) {}
void timed(void) __asm__("clientsTimeProc.constprop.0");
void timed(void) {}
"""
SERVER, LIBRARY = 0x400000, 0x800000
"""Where the server's program is in the guest's memory, and another file of the same content."""


class HeldServer:
    """A server that has executed these functions, of its program or of another file."""

    def __init__(self, folder: Path) -> None:
        (folder / "server.c").write_text(SOURCE, "utf-8")
        self.program, self.library = folder / "redis-server", folder / "library.so"
        subprocess.run(
            ["gcc", "-shared", "-nostdlib", "-fPIC", folder / "server.c", "-o", self.program], check=True, timeout=60
        )
        shutil.copyfile(self.program, self.library)
        self.starts = {re.sub(r"\..*", "", one.name): one.start for one in function_symbols(str(self.program)).found}

    def timers(self, *executed: tuple[str, int]) -> list[int]:
        """The timers that it tells after these executions: name of a function, and where its file is."""
        rows = [(base + self.starts[name], 3, 1) for name, base in executed]
        table = BlockTable(b"".join(struct.pack("<3Q", *row) for row in rows))
        maps = [*unwind.loaded(str(self.program), SERVER), *unwind.loaded(str(self.library), LIBRARY)]
        held = SimpleNamespace(
            build=SimpleNamespace(server_binary=self.program), maps=lambda: maps, blocks=lambda: table
        )
        return CountedGuest.timers(held)  # type: ignore[arg-type]


def test_only_the_servers_own_timers_count(tmp_path: Path) -> None:
    server = HeldServer(tmp_path)
    cron, clients = (SERVER + server.starts[name] for name in ("serverCron", "clientsTimeProc"))
    assert server.timers(("call", SERVER), ("serverCron", SERVER)) == [cron]
    every = [(name, SERVER) for name in ("clientsTimeProc", "call", "serverCron")]
    assert server.timers(*every, ("serverCron", LIBRARY), ("call", LIBRARY)) == [clients, cron]


@pytest.mark.parametrize("executed", [[], [("call", SERVER)], [("clientsTimeProc", SERVER)], [("serverCron", LIBRARY)]])
def test_a_server_whose_timer_did_not_run_gives_no_figure(tmp_path: Path, executed: list[tuple[str, int]]) -> None:
    with pytest.raises(InconclusiveError, match="timer"):
        HeldServer(tmp_path).timers(*executed)
