"""Clients that connect all the time are served by several threads: other threads shake hands, and the main thread takes
over what they leave in the connection.

Many shake hands at once, so that a thread has several connections to tell of.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from suites.tls import tls_server

if TYPE_CHECKING:
    import ssl

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

VISITORS = 16
SETTINGS = {
    "io-threads": "2",
    "io-threads-do-reads": "yes",
    "events-per-io-thread": "0",
    "io-threads-always-active": "yes",
}
"""Other threads do all that they can. Each setting is for releases that have it."""
SECONDS = 3.0
REORDERED_SECONDS = 20.0
"""While stores wait, chance decides what another thread sees."""


def visits(number: int, *, guest: Guest, port: int, by: ssl.SSLContext, until: float) -> int:
    """Connect until that time, and each time write a value and read it back. Returns how often."""
    made = 0
    while not made or time.monotonic() < until:
        with tls_server.client(guest, port, by) as visitor:
            key, value = f"key:{number}", b"%d" % made
            assert visitor.pipeline([("SET", key, value), ("GET", key)]) == [b"OK", value]
        made += 1
    return made


def test_visitors_are_served_by_threads(start_guest: StartGuest, ports: Ports, cell: CellSpec) -> None:
    wanted = [
        word for name, value in SETTINGS.items() if not cell.lacks(f"option {name}") for word in (f"--{name}", value)
    ]
    guest, port = tls_server.start(start_guest, ports, *wanted)
    until = time.monotonic() + (REORDERED_SECONDS if cell.runner.memory_order else SECONDS)
    visit = partial(visits, guest=guest, port=port, by=tls_server.context(), until=until)
    with ThreadPoolExecutor(VISITORS) as pool:
        assert all(pool.map(visit, range(VISITORS)))
