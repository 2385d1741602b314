"""MEMORY DOCTOR finds each problem that a test causes in a server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.sockets import connect
from suites._shared import link
from suites._shared.keyspace import server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

LITTLE_BYTES = 5 << 20
"""A server with less memory than this counts as almost empty."""
LARGE_BYTES = 16 << 20
SCRIPTS = 1001
"""One more script than a server should have."""
RESIDENT = {
    "High total RSS",
    "High allocator RSS overhead",
    "High process RSS overhead",
    "High allocator fragmentation",
}
"""Problems that depend on the pages of kernel and allocator. Any of these servers may have them."""


def diagnosed(guest: Guest) -> set[str]:
    """The titles of the problems that MEMORY DOCTOR found, without those of resident memory."""
    with server.client(guest) as client:
        report: Any = client.command("MEMORY", "DOCTOR")
    lines = report.decode().splitlines()
    found = {line.lstrip(" *").partition(":")[0] for line in lines if line.startswith(" * ")}
    assert found or len(lines) == 1, report
    return found - RESIDENT


def memory(guest: Guest, field: str = "used_memory") -> int:
    """A field of INFO, in bytes; by default, all the memory that the server has allocated."""
    return int(link.info(guest, "memory")[field])


@contextlib.contextmanager
def nothing(_guest: Guest) -> Iterator[None]:
    """A server with one large value."""
    yield


@contextlib.contextmanager
def past_peak(guest: Guest) -> Iterator[None]:
    """A server that once used twice as much memory as now."""
    with server.client(guest) as client:
        client.pipeline([("SETRANGE", "larger", 2 * LARGE_BYTES, "x"), ("DEL", "larger")])
    yield


@contextlib.contextmanager
def many_scripts(guest: Guest) -> Iterator[None]:
    """A server that keeps many scripts."""
    with server.client(guest) as client:
        client.pipeline([("SCRIPT", "LOAD", f"return {number}") for number in range(SCRIPTS)])
    yield


@contextlib.contextmanager
def unread_replies(guest: Guest) -> Iterator[None]:
    """A server with a client that does not read its replies."""
    with contextlib.closing(connect(guest.socket_path, deadline_seconds=guest.deadline_seconds)) as client:
        client.sendall(b"GET large\r\n")
        # The server's timer measures one client at a time.
        link.await_that(lambda: memory(guest, "mem_clients_normal") > LARGE_BYTES, [guest], "an unread reply")
        yield


@contextlib.contextmanager
def unread_writes(guest: Guest) -> Iterator[None]:
    """A server with a replica that has the data set, but does not read the stream after it."""
    with contextlib.closing(connect(guest.socket_path, deadline_seconds=guest.deadline_seconds)) as replica:
        replica.sendall(b"SYNC\r\n")
        received = b""
        while b"\n$" not in b"\n" + received:
            received += replica.recv(1 << 16)
        head, _, rest = (b"\n" + received).partition(b"\n$")
        assert not head.strip(), head
        while b"\n" not in rest:
            rest += replica.recv(1 << 16)
        length, _, content = rest.partition(b"\n")
        left = int(length) - len(content)
        while left > 0:
            left -= len(replica.recv(1 << 16))
        with server.client(guest) as client:
            # Each family always keeps up to 10 MB of the stream for replicas that reconnect.
            client.pipeline([("SET", "other", b"x" * (1 << 20))] * 30)
        yield


@pytest.mark.parametrize(
    ("brought_about", "found"),
    [
        (nothing, set()),
        (past_peak, {"Peak memory"}),
        (many_scripts, {"Many scripts"}),
        (unread_replies, {"Big client buffers"}),
        (unread_writes, {"Big replica buffers"}),
    ],
)
def test_the_memory_doctor_finds_what_was_brought_about(
    brought_about: Callable[[Guest], contextlib.AbstractContextManager[None]], found: set[str], start_guest: StartGuest
) -> None:
    guest = start_guest(options=[*server.OPTIONS, "--repl-diskless-sync", "no"])
    assert memory(guest) < LITTLE_BYTES
    with server.client(guest) as client:
        report: Any = client.command("MEMORY", "DOCTOR")
        assert b"empty" in report
        client.command("SETRANGE", "large", LARGE_BYTES, "x")
    with brought_about(guest):
        # The server's timer measures one client at a time, and the test's own client has just been large.
        what = f"the doctor to find {', '.join(found) or 'nothing'}"
        link.await_that(lambda: diagnosed(guest) == found, [guest], what)
