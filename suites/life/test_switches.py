"""The subcommands of DEBUG that reload, switch off and on, or send only to replicas. test_debug.py lists them all."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from suites._shared import link
from suites._shared.keyspace import server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers


def test_a_reload_merges_replaces_or_keeps(both: PairedServers) -> None:
    both.ask([("MSET", "a", 1, "b", 2), ("SAVE",), ("MSET", "b", 3, "c", 4)])
    # Keys that are not in the file stay. For the others, the file's values win.
    both.expect(
        [("DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE"), ("MGET", "a", "b", "c")], [[b"1", b"2", b"4"]], "a merge"
    )
    both.expect([("DEBUG", "RELOAD", "NOSAVE"), ("MGET", "a", "b", "c")], [[b"1", b"2", None]], "the file alone")
    both.expect([("SET", "d", 5), ("DEBUG", "RELOAD"), ("DBSIZE",)], [3], "everything")
    assert "only supports" in str(both.ask([("DEBUG", "RELOAD", "NONSENSE")])[0])


@contextlib.contextmanager
def switched(both: PairedServers, name: str, *, during: int) -> Iterator[None]:
    """Set a switch of DEBUG, and restore it afterwards."""
    both.ask([("DEBUG", name, during)])
    try:
        yield
    finally:
        both.ask([("DEBUG", name, 1 - during)])


def test_nothing_expires_by_itself_while_that_is_switched_off(both: PairedServers, guest: Guest) -> None:
    def expired() -> int:
        return int(link.info(guest, "stats")["expired_keys"])

    with switched(both, "SET-ACTIVE-EXPIRE", during=0):
        before = expired()
        both.guest.pipeline([("PSETEX", f"k{number}", 1, "x") for number in range(50)])
        # The timer runs ten times a second.
        both.guest.command("DEBUG", "SLEEP", 0.3)
        assert both.guest.command("DBSIZE") == 50
        assert expired() == before
    link.await_that(lambda: expired() == before + 50, [guest], "50 keys to expire")
    assert both.guest.command("DBSIZE") == 0


def test_a_wrong_checksum_is_skipped_on_request(both: PairedServers) -> None:
    payload: Any = both.ask([("SET", "k", "value"), ("DUMP", "k")])[1]
    wrong = payload[:-8] + bytes(byte ^ 0xFF for byte in payload[-8:])
    assert "checksum" in str(both.ask([("RESTORE", "l", 0, wrong)])[0])
    with switched(both, "SET-SKIP-CHECKSUM-VALIDATION", during=1):
        both.expect([("RESTORE", "l", 0, wrong), ("GET", "l")], [b"value"], "a payload with a wrong checksum")


def test_commands_that_scripts_may_not_call_are_called_on_request(both: PairedServers) -> None:
    script = ("EVAL", "return redis.call('CONFIG', 'GET', 'databases')[1]", 0)
    assert "not allowed" in str(both.ask([script])[0])
    with switched(both, "SET-DISABLE-DENY-SCRIPTS", during=1):
        assert both.ask([script]) == [b"databases"]


def test_an_error_is_replied_word_by_word(both: PairedServers) -> None:
    both.ask([("DEBUG", "ERROR", "CODE some text"), ("DEBUG", "ERROR", "two\r\nlines"), ("DEBUG", "ERROR", "x" * 3000)])


def test_a_reply_buffer_shrinks_as_it_is_told(both: PairedServers, guest: Guest) -> None:
    both.ask([("DEBUG", "REPLYBUFFER", "RESIZING", 0), ("DEBUG", "REPLYBUFFER", "PEAK-RESET-TIME", 100)])
    with server.client(guest) as client:
        identifier: Any = client.command("CLIENT", "ID")

        def buffer() -> int:
            line: Any = both.guest.command("CLIENT", "LIST", "ID", identifier)
            return int(dict(word.partition("=")[::2] for word in line.decode().split())["rbs"])

        both.guest.command("DEBUG", "SLEEP", 0.5)
        # The allocator may return a little more.
        assert 16384 <= buffer() < 17000
        # The timer resizes buffers.
        with switched(both, "PAUSE-CRON", during=1):
            both.ask([("DEBUG", "REPLYBUFFER", "RESIZING", 1)])
            both.guest.command("DEBUG", "SLEEP", 0.5)
            assert 16384 <= buffer() < 17000
        link.await_that(lambda: 1024 <= buffer() < 1100, [guest], "the buffer to shrink")
    both.ask([("DEBUG", "REPLYBUFFER", "PEAK-RESET-TIME", time) for time in ("NEVER", "x", "RESET")])
    both.ask([("DEBUG", "REPLYBUFFER", "NONSENSE", 1)])


def test_a_new_identity_of_replication_forgets_the_second(both: PairedServers, guest: Guest) -> None:
    before = link.info(guest, "replication")
    assert both.guest.command("DEBUG", "CHANGE-REPL-ID") == b"OK"
    after = link.info(guest, "replication")
    assert re.fullmatch("[0-9a-f]{40}", after["master_replid"])
    assert after["master_replid"] != before["master_replid"]
    assert (after["master_replid2"], after["second_repl_offset"]) == ("0" * 40, "-1")


def test_an_append_only_file_is_loaded_on_request(start_guest: StartGuest, family: str) -> None:
    guest = start_guest(options=[*server.OPTIONS, "--appendonly", "yes"])
    server.write(guest, family)
    with server.client(guest) as client:
        digest = client.command("DEBUG", "DIGEST")
        assert client.command("DEBUG", "AOF-FLUSH-SLEEP", 1000) == b"OK"
        client.pipeline([("SET", "later", "x" * 100), ("DEL", "later"), ("DEBUG", "AOF-FLUSH-SLEEP", 0)])
        assert client.command("DEBUG", "LOADAOF") == b"OK"
        assert client.command("DEBUG", "DIGEST") == digest


def test_what_only_replicas_are_told_they_alone_have(start_guest: StartGuest) -> None:
    primary, replica = (start_guest(options=server.OPTIONS) for _ in range(2))
    link.join(replica, primary)
    with server.client(primary) as client:
        assert client.command("DEBUG", "REPLICATE", "SET", "theirs", "1") == b"OK"
        link.await_in_step(replica, primary)
        assert client.command("EXISTS", "theirs") == 0
    with server.client(replica) as client:
        assert client.command("GET", "theirs") == b"1"
