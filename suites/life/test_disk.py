"""When a disk fails, the server reports it, keeps its data, and refuses writes until the disk works again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from harness.run.server_process import StartError
from suites._shared import link
from suites._shared.formats import rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

SAVING = [*server.OPTIONS, "--save", "3600 1000000"]
APPENDING = [*server.OPTIONS, "--appendonly", "yes"]
MOVABLE = ["--enable-protected-configs", "yes"]
FOLDER = "appendonlydir"
BEGUN = "temp-appendonly.aof.incr"
"""The file of commands during the first rewrite. Renamed, it becomes the incremental file."""
FULL = "/dev/full"
"""Every write to this file fails as on a full disk (full(4))."""
TOLD = "persistence"
"""The section of INFO with the result of the last attempt."""


def refusal(guest: Guest, *words: Any) -> str:
    """The error with which a server refuses a request."""
    with server.client(guest) as client, pytest.raises(hiredis.ReplyError) as refused:
        client.command(*words)
    return str(refused.value)


def ask(guest: Guest, *words: Any) -> Any:
    with server.client(guest) as client:
        return client.command(*words)


def fill(guest: Guest) -> None:
    """Make the disk full for the file that a server's own SAVE writes first."""
    number = link.info(guest, "server")["process_id"]
    (guest.folder / f"temp-{number}.rdb").symlink_to(FULL)


def occupy(guest: Guest) -> None:
    """Put a folder in the place of the file, because no file can replace a folder."""
    (guest.folder / "dump.rdb").mkdir()


def fill_appending(guest: Guest) -> None:
    """Make the disk full for the file to which a server begins to append."""
    folder = guest.folder / FOLDER
    folder.mkdir()
    (folder / BEGUN).symlink_to(FULL)


def free(guest: Guest) -> None:
    for path in guest.folder.glob("*.rdb"):
        path.rmdir() if path.is_dir() else path.unlink()


HINDRANCES: Mapping[str, Callable[[Guest], None]] = {"a full disk": fill, "a folder in its place": occupy}


@pytest.mark.parametrize("hinder", HINDRANCES.values(), ids=HINDRANCES)
def test_a_file_that_cannot_be_saved_costs_no_key(
    hinder: Callable[[Guest], None], cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    guest = start_guest(options=SAVING)
    server.write(guest, family)
    before = link.info(guest, TOLD)["rdb_last_save_time"]
    hinder(guest)
    assert refusal(guest, "SAVE")
    told = link.info(guest, TOLD)
    assert told["rdb_last_save_time"] == before
    assert int(told["rdb_changes_since_last_save"]) > 0
    free(guest)
    lines = differences(dataset.expected(cell.version, family), rdb.read(server.saved(guest)).entries)
    assert not lines, "; ".join(lines[:3])
    assert link.info(guest, TOLD)["rdb_changes_since_last_save"] == "0"


def test_nothing_is_written_while_a_child_cannot_save(start_guest: StartGuest) -> None:
    guest = start_guest(options=SAVING)
    occupy(guest)
    assert ask(guest, "SET", "k", 1) == b"OK"
    ask(guest, "BGSAVE")
    link.await_that(lambda: link.info(guest, TOLD)["rdb_last_bgsave_status"] == "err", [guest], "the child to fail")
    # Transactions and scripts are refused as a whole. Reads are not refused.
    assert refusal(guest, "SET", "k", 2).startswith("MISCONF")
    assert "MISCONF" in refusal(guest, "EVAL", "return redis.call('SET', 'k', 3)", 0)
    with server.client(guest) as client:
        replies = client.pipeline([("MULTI",), ("SET", "k", 4), ("EXEC",), ("PING",), ("GET", "k")])
        assert str(replies[1]).startswith("MISCONF")
        assert str(replies[2]).startswith("EXECABORT")
        # PING fails, too, so that monitoring notices.
        assert str(replies[3]).startswith("MISCONF")
        assert replies[4] == b"1"
        client.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert client.command("INCR", "k") == 2
        client.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
    free(guest)
    assert rdb.read(server.saved_by_a_child(guest)).entries
    assert ask(guest, "INCR", "k") == 3


def test_nothing_is_written_while_the_append_only_file_is_full(start_guest: StartGuest) -> None:
    guest = start_guest(options=[*server.OPTIONS, "--appendfsync", "everysec"])
    assert ask(guest, "SET", "k", 1) == b"OK"
    fill_appending(guest)
    ask(guest, "CONFIG", "SET", "appendonly", "yes")
    ask(guest, "SET", "k", 2)
    link.await_that(lambda: link.info(guest, TOLD)["aof_last_write_status"] == "err", [guest], "the write to fail")
    assert refusal(guest, "SET", "k", 3).startswith("MISCONF")
    assert ask(guest, "GET", "k") == b"2"
    ask(guest, "CONFIG", "SET", "appendonly", "no")
    assert ask(guest, "INCR", "k") == 3


def test_a_server_that_promised_to_keep_each_write_ends_when_it_cannot(start_guest: StartGuest) -> None:
    guest = start_guest(options=[*server.OPTIONS, "--appendfsync", "always"])
    fill_appending(guest)
    with server.client(guest) as client:
        client.command("CONFIG", "SET", "appendonly", "yes")
        client.send(client.pack([("SET", "k", 1)]))
        assert guest.await_end() == 1
    # Its configuration requires this end. A fault would still be a finding.
    start_guest.dismiss()


def test_a_rewriting_that_fails_leaves_the_file_as_it_was(
    companion: str, cell: CellSpec, family: str, start_guest: StartGuest
) -> None:
    guest = start_guest(options=APPENDING)
    server.write(guest, family)
    folder = guest.folder / FOLDER
    blocked = folder / "appendonly.aof.2.base.rdb"
    blocked.mkdir()
    (blocked / "inside").mkdir()
    ask(guest, "BGREWRITEAOF")
    link.await_that(
        lambda: link.info(guest, TOLD)["aof_last_bgrewrite_status"] == "err", [guest], "the rewrite to fail"
    )
    shutil.rmtree(blocked)
    files = server.append_only_files(guest)
    reader = start_guest(target=companion, options=APPENDING, files=files)
    expected = server.expected(cell, family)
    lines = differences(expected, server.snapshot(reader))
    assert not lines, "; ".join(lines[:3])
    server.await_rewrite(guest)
    assert link.info(guest, TOLD)["aof_last_bgrewrite_status"] == "ok"


MANIFESTS = {
    "nothing": b"",
    "no end of the line": b"file appendonly.aof.1.base.rdb seq 1 type b",
    "a line of 1,030 bytes": b"file " + b"a" * 1000 + b" seq 1 type b         \n",
    "a blank line": b"\nfile appendonly.aof.1.incr.aof seq 1 type i\n",
    "an odd number of words": b"file appendonly.aof.1.incr.aof seq 1 type\n",
    "a name alone": b"file\n",
    "no number": b"file appendonly.aof.1.incr.aof type i\n",
    "no type": b"file appendonly.aof.1.incr.aof seq 1\n",
    "an unknown type": b"file appendonly.aof.1.incr.aof seq 1 type x\n",
    "a number that is none": b"file appendonly.aof.1.incr.aof seq one type i\n",
    "the number 0": b"file appendonly.aof.1.incr.aof seq 0 type i\n",
    "a path": b"file ../appendonly.aof.1.incr.aof seq 1 type i\n",
    "two bases": b"file a.1.base.rdb seq 1 type b\nfile a.2.base.rdb seq 2 type b\n",
    "numbers that fall": b"file a.2.incr.aof seq 2 type i\nfile a.1.incr.aof seq 1 type i\n",
    "a file that is missing": b"file appendonly.aof.7.incr.aof seq 7 type i\n",
    "a quote that does not end": b'file "appendonly.aof.1.incr.aof seq 1 type i\n',
}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_is_none_is_refused(manifest: bytes, start_guest: StartGuest, oracle: Guest) -> None:
    """The native server ends with the same message and exit status."""
    files = {f"{FOLDER}/appendonly.aof.manifest": manifest, f"{FOLDER}/appendonly.aof.1.incr.aof": b""}
    ends = []
    for target in (oracle.runner.target.name, ""):
        with pytest.raises(StartError) as refused:
            start_guest(target=target, options=APPENDING, files=files, may_refuse=True)
        ends.append(str(refused.value))
    assert ends[0] == ends[1]


def test_a_folder_that_is_gone_is_said_where_it_is_needed(start_guest: StartGuest) -> None:
    guest = start_guest(options=[*SAVING, *MOVABLE])
    ask(guest, "SET", "k", 1)
    gone = guest.folder / "gone"
    gone.mkdir()
    ask(guest, "CONFIG", "SET", "dir", str(gone))
    gone.rmdir()
    assert refusal(guest, "SAVE")
    assert refusal(guest, "CONFIG", "SET", "dir", str(gone))
    assert refusal(guest, "CONFIG", "SET", "appendonly", "yes")
    ask(guest, "CONFIG", "SET", "dir", str(guest.folder))
    assert ask(guest, "SAVE") == b"OK"
    assert ask(guest, "GET", "k") == b"1"


def test_a_replica_without_a_place_for_the_file_follows_when_it_has_one(
    companion: str, family: str, start_guest: StartGuest, ports: Ports
) -> None:
    options = [*server.OPTIONS, *MOVABLE, "--repl-diskless-sync-delay", "0"]
    primary, port = link.on_a_port(start_guest, ports, companion, *options)
    replica = start_guest(options=options)
    server.write(primary, family)
    gone = replica.folder / "gone"
    gone.mkdir()
    ask(replica, "CONFIG", "SET", "dir", str(gone))
    gone.rmdir()
    ask(replica, "REPLICAOF", "127.0.0.1", port)
    failed = "Opening the temp file needed for"
    link.await_that(
        lambda: failed in replica.evidence.log.read_text("utf-8", "replace"), [primary, replica], "it to fail"
    )
    ask(replica, "CONFIG", "SET", "dir", str(replica.folder))
    link.await_in_step(replica, primary)
    assert differences(server.snapshot(primary), server.snapshot(replica)) == []
