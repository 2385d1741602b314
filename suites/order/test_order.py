"""Threads of a server hand one another jobs, buffers and values to free. Under a load that fills their queues, each
client gets back what it wrote, and the server lives.

Each client has its own keys, so it knows every reply.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from harness.isa import memory_order
from suites.order.crowd import OK, PIPELINE, Exchange, bulk, crowd, integer

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

KEYS = 50
"""Of each client."""
FEW = 8
"""Clients that send a pair of commands at a time: each hand-over between threads has little in it, so there are many.
"""
VISITORS = 50
"""Clients that connect anew for each pipeline."""
ELEMENTS = 300
"""Of a list: more than the server frees without another thread (lazyfree.c, LAZYFREE_THRESHOLD)."""
LOAD_SECONDS = 20.0
DETECTED_SECONDS = 2.0
"""Under a detector, which sees two accesses that nothing orders even if they happen in the right order."""
ORDERED_SECONDS = LOAD_SECONDS / memory_order.SLOWER
"""In the host's order, in which a failed test runs again: the server does at least as much in that time."""
THREADS = pytest.mark.parametrize("threads", [2, 4])


def started(start_guest: StartGuest, cell: CellSpec, threads: int, *options: str) -> Guest:
    """A server with so many I/O threads, if its release has them."""
    wanted = [] if cell.lacks("option io-threads") else ["--io-threads", str(threads)]
    return start_guest(options=[*wanted, *options])


def seconds(cell: CellSpec) -> float:
    """How long the clients send their load."""
    if cell.runner.target.emulator.detector:
        return DETECTED_SECONDS
    usual = LOAD_SECONDS if cell.runner.memory_order else ORDERED_SECONDS
    return min(usual, cell.limit_seconds or usual)


def overwrites(number: int, round_of: int, pairs: int = PIPELINE // 2) -> Exchange:
    """Replaces values of every length and reads them back."""
    requests: list[tuple[str | bytes, ...]] = []
    due = []
    for at in range(pairs):
        key = f"key:{number}:{(round_of * 7 + at) % KEYS}"
        value = b"%d:%d:" % (round_of, at) + b"x" * (20 + (at * 7 + round_of) % 100)
        requests += [("SET", key, value), ("GET", key)]
        due += [OK, bulk(value)]
    return Exchange(requests, due)


def lists(number: int, round_of: int) -> Exchange:
    """Makes a list, and has another thread free it."""
    key = f"list:{number}"
    elements = [b"%d:%d" % (round_of, at) for at in range(ELEMENTS)]
    requests = [("RPUSH", key, *elements), ("LINDEX", key, ELEMENTS - 1), ("UNLINK", key), ("EXISTS", key)]
    return Exchange(requests, [integer(ELEMENTS), bulk(elements[-1]), integer(1), integer(0)])


@THREADS
def test_values_that_many_overwrite_come_back(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    crowd(started(start_guest, cell, threads), overwrites, seconds=seconds(cell))


@THREADS
def test_values_that_few_overwrite_come_back(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    crowd(started(start_guest, cell, threads), partial(overwrites, pairs=1), seconds=seconds(cell), clients=FEW)


@THREADS
def test_values_that_other_threads_free_are_gone(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    crowd(started(start_guest, cell, threads), lists, seconds=seconds(cell))


@THREADS
def test_clients_that_come_and_go_are_served(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    crowd(started(start_guest, cell, threads), overwrites, seconds=seconds(cell), clients=VISITORS, anew=True)


@THREADS
def test_values_in_an_append_only_file_come_back(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    guest = started(start_guest, cell, threads, "--appendonly", "yes", "--appendfsync", "everysec")
    crowd(guest, overwrites, seconds=seconds(cell))
