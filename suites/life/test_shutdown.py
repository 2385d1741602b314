"""Each form of SHUTDOWN ends the server or leaves it running, as specified, and writes the right file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from harness.protocol.resp import ServerGoneError, info_fields
from suites._shared import link
from suites._shared.formats import rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import differences

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

SAVE_POINT = ["--save", "3600 1000000"]
WAYS = {
    "plain, no save point": ([], [], False),
    "plain, a save point": ([], SAVE_POINT, True),
    "nosave": (["NOSAVE"], SAVE_POINT, False),
    "save": (["SAVE"], [], True),
    "save now": (["SAVE", "NOW"], [], True),
    "nosave force": (["NOSAVE", "FORCE"], SAVE_POINT, False),
    "now": (["NOW"], SAVE_POINT, True),
}
"""Words after SHUTDOWN, options of the server, and whether it writes a file."""
FILE = "dump.rdb"


def shut_down(guest: Guest, *words: str) -> int:
    """The exit status of a server that ends without a reply."""
    with server.client(guest) as client, pytest.raises(ServerGoneError):
        client.command("SHUTDOWN", *words)
    return guest.await_end()


@pytest.mark.parametrize(("words", "options", "leaves"), WAYS.values(), ids=WAYS)
def test_a_shutdown_leaves_the_file_that_it_must(
    words: list[str], options: list[str], leaves: bool, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    guest = start_guest(options=[*server.OPTIONS, *options])
    server.write(guest, family)
    assert shut_down(guest, *words) == 0
    if not leaves:
        with pytest.raises(FileNotFoundError):
            guest.read(FILE)
        return
    lines = differences(dataset.expected(cell.version, family), rdb.read(guest.read(FILE)).entries)
    assert not lines, "; ".join(lines[:3])


def test_a_server_that_cannot_save_ends_by_force_alone(start_guest: StartGuest) -> None:
    guest = start_guest()
    # No file can replace a folder.
    (guest.folder / FILE).mkdir()
    with server.client(guest) as client:
        client.command("SET", "k", "v")
        with pytest.raises(hiredis.ReplyError, match="Errors trying to SHUTDOWN"):
            client.command("SHUTDOWN", "SAVE")
        assert client.command("GET", "k") == b"v"
    assert shut_down(guest, "SAVE", "FORCE") == 0


@pytest.mark.parametrize("end", ["aborted", "the replica is back", "now", "the time is over"])
def test_a_shutdown_waits_for_a_replica_that_is_behind(companion: str, end: str, start_guest: StartGuest) -> None:
    seconds = 1 if end == "the time is over" else 3600
    primary = start_guest(options=["--shutdown-timeout", str(seconds), "--repl-diskless-sync-delay", "0"])
    replica = start_guest(target=companion, options=["--repl-timeout", "3600"])
    link.join(replica, primary)
    with server.client(primary) as waiting, server.client(primary) as other:
        with replica.suspended():
            other.command("SET", "k", dataset.noise(1000))
            if end == "now":
                assert shut_down(primary, "NOW") == 0
                return
            waiting.send(waiting.pack([("SHUTDOWN",)]))
            link.await_that(lambda: paused(other), [primary], "the shutdown to begin")
            if end == "aborted":
                assert other.command("SHUTDOWN", "ABORT") == b"OK"
                assert "Errors trying to SHUTDOWN" in str(waiting.receive())
                assert other.command("INCR", "counter") == 1
                assert isinstance(other.pipeline([("SHUTDOWN", "ABORT")])[0], hiredis.ReplyError)
                return
            if end == "the time is over":
                began = time.monotonic()
                assert primary.await_end() == 0
                assert time.monotonic() - began < primary.runner.target.whole_deadline_seconds(60)
                return
        assert primary.await_end() == 0
    with server.client(replica) as client:
        assert client.command("GET", "k") == dataset.noise(1000)


def paused(client: Any) -> bool:
    """Whether the server refuses the writes of clients, as it does while it waits."""
    return "shutdown_in_milliseconds" in info_fields(client.command("INFO", "server"))
