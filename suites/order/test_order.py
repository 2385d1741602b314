"""Threads of a server hand one another jobs, buffers and values to free. Under a load that fills their queues, each
client gets back what it wrote, and the server lives.

Each client has its own keys, so it knows every reply.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.keyspace import server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.protocol.resp import Client, Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

Load = list[tuple[Any, ...]]
CLIENTS = 50
PIPELINE = 50
LOAD_SECONDS = 20.0
KEYS = 100
ELEMENTS = 300
"""Of a list: more than the server frees without another thread (lazyfree.c, LAZYFREE_THRESHOLD)."""
THREADS = pytest.mark.parametrize("threads", [2, 4])


def started(start_guest: StartGuest, cell: CellSpec, threads: int, *options: str) -> Guest:
    """A server with so many I/O threads, if its release has them."""
    wanted = [] if cell.lacks("option io-threads") else ["--io-threads", str(threads)]
    return start_guest(options=[*wanted, *options])


def until_late(client_of: Callable[[int], None]) -> None:
    """Call a client's function with its number, for all clients at once. Raises what one of them raised."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(client_of, range(CLIENTS)):
            pass


def exchanged(client: Client, requests: Load, due: Sequence[Reply]) -> None:
    """Send a pipeline. Raises AssertionError for the first reply that is not due."""
    for request, reply, expected in zip(requests, client.pipeline(requests), due, strict=True):
        assert repr(reply) == repr(expected), f"{request!s:.80}: got {reply!r:.80}, expected {expected!r:.80}"


def overwrites(number: int, round_of: int) -> tuple[Load, list[Reply]]:
    """Requests that replace values of every length and read them back, and the replies."""
    requests: Load = []
    due: list[Reply] = []
    for at in range(PIPELINE // 2):
        key = f"key:{number}:{(round_of * 7 + at) % KEYS}"
        value = b"%d:%d:" % (round_of, at) + b"x" * (20 + (at * 7 + round_of) % 100)
        requests += [("SET", key, value), ("GET", key)]
        due += [b"OK", value]
    return requests, due


def crowd(guest: Guest, load: Callable[[int, int], tuple[Load, list[Reply]]]) -> None:
    """Every client sends its load, round after round, for LOAD_SECONDS."""
    end = time.monotonic() + LOAD_SECONDS

    def send(number: int) -> None:
        with server.client(guest) as client:
            rounds = 0
            while time.monotonic() < end:
                exchanged(client, *load(number, rounds))
                rounds += 1

    until_late(send)


@THREADS
def test_values_that_many_overwrite_come_back(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    crowd(started(start_guest, cell, threads), overwrites)


@THREADS
def test_values_that_other_threads_free_are_gone(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    def load(number: int, round_of: int) -> tuple[Load, list[Reply]]:
        key = f"list:{number}"
        elements = [b"%d:%d" % (round_of, at) for at in range(ELEMENTS)]
        requests: Load = [("RPUSH", key, *elements), ("LINDEX", key, ELEMENTS - 1), ("UNLINK", key), ("EXISTS", key)]
        return requests, [ELEMENTS, elements[-1], 1, 0]

    crowd(started(start_guest, cell, threads), load)


@THREADS
def test_clients_that_come_and_go_are_served(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    guest = started(start_guest, cell, threads)
    end = time.monotonic() + LOAD_SECONDS

    def connect(number: int) -> None:
        rounds = 0
        while time.monotonic() < end:
            with server.client(guest) as client:
                exchanged(client, *overwrites(number, rounds))
            rounds += 1

    until_late(connect)


@THREADS
def test_values_in_an_append_only_file_come_back(start_guest: StartGuest, cell: CellSpec, threads: int) -> None:
    crowd(started(start_guest, cell, threads, "--appendonly", "yes", "--appendfsync", "everysec"), overwrites)
