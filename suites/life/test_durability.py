"""A server's files contain every acknowledged write: under load, with each setting of fsync, and with timestamps."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import hiredis
import pytest

from suites._shared import link
from suites._shared.formats import rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import Key, Text, differences

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

APPENDING = [*server.OPTIONS, "--appendonly", "yes"]
WRITERS = 3
KEY_MICROSECONDS = 5000
"""The child's pause at each key, so that writes reach the server while the child saves."""


class Load:
    """Clients that set both keys of a pair to increasing numbers until they are stopped."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        self.last: dict[int, int] = {}
        """Writer -> the last number that was acknowledged."""

    def __enter__(self) -> Self:
        """Start the clients."""
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clients."""
        self._stopped.set()
        for one in self._threads:
            one.join()

    def _write(self, writer: int) -> None:
        with server.client(self._guest) as client:
            number = 0
            while not self._stopped.is_set():
                number += 1
                # The value grows and shrinks, and so does a table of 16 numbers.
                pair = self.pair(writer, number)
                client.pipeline([("MSET", *(word for item in pair.items() for word in item))])
                self.last[writer] = number

    @staticmethod
    def pair(writer: int, number: int) -> dict[str, bytes]:
        """Set both keys of a pair to the same value, which contains its number."""
        value = b"%d:" % number + dataset.noise(number * 37 % 900)
        return {f"left:{writer}": value, f"right:{writer}": value}


def check_pairs(entries: dict[Key, Any], last: dict[int, int]) -> None:
    """Assert that both keys of each pair have the same number in a file, and that it is at most the last one."""
    for writer, number in last.items():
        found = [entries[Key(0, name.encode())].value for name in Load.pair(writer, 0)]
        assert found[0] == found[1], f"writer {writer}: only one of the two keys was set"
        stored = int(found[0].content.partition(b":")[0])
        assert 1 <= stored <= number
        assert found[0] == Text(Load.pair(writer, stored)[f"left:{writer}"])


def test_a_child_saves_one_moment_while_others_write(
    companion: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    guest = start_guest(options=APPENDING)
    server.write(guest, family)
    expected = dataset.expected(cell.version, family)
    with server.client(guest) as client:
        client.command("CONFIG", "SET", "rdb-key-save-delay", KEY_MICROSECONDS)
    with Load(guest) as load:
        link.await_that(lambda: len(load.last) == WRITERS, [guest], "the writers to begin")
        saved = server.saved_by_a_child(guest)
        changes = int(link.info(guest, "persistence")["rdb_changes_since_last_save"])
        server.await_rewrite(guest)
    assert changes > WRITERS, "nothing was written while the child saved"
    entries = rdb.read(saved).entries
    check_pairs(entries, load.last)
    lines = differences(expected, {key: one for key, one in entries.items() if key in expected})
    assert not lines, "; ".join(lines[:3])
    # Everything acknowledged by then is in the rewritten file and its successor.
    reader = start_guest(target=companion, options=APPENDING, files=server.append_only_files(guest))
    found = server.snapshot(reader)
    assert differences(server.snapshot(guest), found) == []
    for writer, number in load.last.items():
        assert found[Key(0, b"left:%d" % writer)].value == Text(Load.pair(writer, number)[f"left:{writer}"])


@pytest.mark.parametrize("setting", ["always", "everysec", "no"])
def test_what_was_answered_is_in_the_append_only_file(
    companion: str, setting: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    guest = start_guest(options=[*APPENDING, "--appendfsync", setting])
    server.write(guest, family)
    if setting != "always":
        with server.client(guest) as client:
            # The file is also written in the background, and is complete at the end.
            client.pipeline([("CONFIG", "SET", "appendfsync", "always"), ("SET", "integer:0", 0)])
    reader = start_guest(target=companion, options=APPENDING, files=server.append_only_files(guest))
    expected = server.expected(cell, family)
    lines = differences(expected, server.snapshot(reader))
    assert not lines, "; ".join(lines[:3])


def test_append_only_files_begin_and_end_while_the_server_runs(
    companion: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    """When they are switched on, the server writes all of its data. When they are switched off, the existing files keep
    all data up to then.
    """
    guest = start_guest(options=server.OPTIONS)
    server.write(guest, family)
    expected = server.expected(cell, family)
    with server.client(guest) as client:
        for number in (1, 2):
            client.command("CONFIG", "SET", "appendonly", "yes")
            link.await_that(lambda: _is_appending(guest), [guest], "the append-only file to begin")
            client.command("SET", "kept", number)
            client.command("CONFIG", "SET", "appendonly", "no")
            client.command("SET", "kept", "no longer")
            reader = start_guest(target=companion, options=APPENDING, files=server.append_only_files(guest))
            found = server.snapshot(reader)
            assert found.pop(Key(0, b"kept")).value == Text(b"%d" % number)
            assert differences(expected, found) == []


def _is_appending(guest: Guest) -> bool:
    found = link.info(guest, "persistence")
    busy = [found["aof_rewrite_in_progress"], found["aof_rewrite_scheduled"]]
    return found["aof_enabled"] == "1" and busy == ["0", "0"] and found["aof_last_bgrewrite_status"] == "ok"


def test_an_append_only_file_tells_when_its_commands_came(
    companion: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    began = int(time.time())
    guest = start_guest(options=[*APPENDING, "--aof-timestamp-enabled", "yes"])
    server.write(guest, family)
    with server.client(guest) as client:
        for _ in range(2):
            time.sleep(1.1)
            client.command("SET", "integer:0", 0)
    files = server.append_only_files(guest)
    (commands,) = (content for name, content in files.items() if name.endswith(".incr.aof"))
    times = [int(line[4:]) for line in commands.split(b"\r\n") if line.startswith(b"#TS:")]
    reader = start_guest(target=companion, options=APPENDING, files=files)
    expected = server.expected(cell, family)
    lines = differences(expected, server.snapshot(reader))
    assert not lines, "; ".join(lines[:3])
    assert len(times) >= 3
    wrong = [one for one in times if not began - 1 <= one <= time.time() + 1]
    assert not wrong, f"{len(wrong)} of {len(times)} timestamps are no time of this test: {wrong[:2]}"
    assert times == sorted(set(times))


def test_what_cannot_be_while_a_child_saves_is_refused_or_comes_later(start_guest: StartGuest) -> None:
    guest = start_guest(options=APPENDING)
    with server.client(guest) as client:
        client.pipeline([("SET", f"k:{number}", number) for number in range(200)])
        client.command("CONFIG", "SET", "rdb-key-save-delay", KEY_MICROSECONDS)

        def refused(*words: str) -> str:
            reply = client.pipeline([words])[0]
            assert isinstance(reply, hiredis.ReplyError), f"{words}: {reply!r}"
            return str(reply)

        assert b"started" in bytes(client.command("BGSAVE"))  # type: ignore[arg-type]
        for words in (("SAVE",), ("BGSAVE",), ("BGSAVE", "SCHEDULE"), ("BGSAVE", "LATER")):
            assert refused(*words)
        assert b"scheduled" in bytes(client.command("BGREWRITEAOF"))  # type: ignore[arg-type]
        link.await_that(lambda: doing(guest, "aof_rewrite_in_progress"), [guest], "the rewriting to begin")
        assert refused("BGSAVE")
        assert refused("BGREWRITEAOF")
        assert b"scheduled" in bytes(client.command("BGSAVE", "SCHEDULE"))  # type: ignore[arg-type]
        link.await_that(lambda: doing(guest, "rdb_bgsave_in_progress"), [guest], "the other child to begin")
        client.command("CONFIG", "SET", "rdb-key-save-delay", 0)
        link.await_that(lambda: not doing(guest, "rdb_bgsave_in_progress"), [guest], "the other child to end")
    assert len(rdb.read(guest.read("dump.rdb")).entries) == 200


def doing(guest: Guest, what: str) -> bool:
    return link.info(guest, "persistence")[what] == "1"
