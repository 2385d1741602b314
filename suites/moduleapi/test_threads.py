"""Threads of a module answer many clients at once, and each sees what the one before it wrote under the server's lock.

With `--memory-order weak` their stores wait, and only the lock orders them.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from suites._shared.keyspace import server
from suites.moduleapi.module_server import expect

if TYPE_CHECKING:
    from harness.protocol.resp import Client
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

CLIENTS = 8
SECONDS = 2.0
REORDERED_SECONDS = 20.0
"""While stores wait, chance decides what another thread sees."""


def waits(number: int, *, guest: Guest, cell: CellSpec, until: float) -> int:
    """Wait for one thread after the other. Returns the sum of what they have added."""
    added = 0
    with server.client(guest) as waiting:
        while not added or time.monotonic() < until:
            expect(waiting, cell, ("API.BLOCK", 0, 0, number), number)
            added += number
    return added


def test_each_thread_adds_its_number_and_answers_its_client(client: Client, with_module: Guest, cell: CellSpec) -> None:
    until = time.monotonic() + (REORDERED_SECONDS if cell.runner.memory_order else SECONDS)
    wait = partial(waits, guest=with_module, cell=cell, until=until)
    with ThreadPoolExecutor(CLIENTS) as pool:
        added = sum(pool.map(wait, range(1, CLIENTS + 1)))
    expect(client, cell, ("GET", "waited"), b"%d" % added)
