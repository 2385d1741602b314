"""If a system call fails while a server writes a file, the server reports it, loses nothing, and continues. Each call
fails once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from suites._shared import link
from suites._shared.formats import rdb
from suites._shared.keyspace import server
from suites.injection import leaks, small_keys
from suites.injection.faults import Call, Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.run.server_process import Guest

SAVING = [*server.OPTIONS, "--save", "3600 1000000", "--hz", "100"]
TOLD = "persistence"
# The policy decides what a file contains besides each key: nothing, its idle time, or its frequency.
POLICIES = ["noeviction", "allkeys-lru", "allkeys-lfu"]
TO_SAVE = [Call.OPEN, Call.OPEN_TO_READ, Call.FWRITE, Call.FFLUSH, Call.FSYNC, Call.RENAME]


def asked(guest: Guest, *words: Any) -> Any:
    """The reply to a request, which may be an error."""
    with server.client(guest) as client:
        return client.pipeline([words])[0]


def entries(content: bytes) -> Any:
    """The entries of a file. A damaged file raises an exception."""
    return rdb.read(content).entries


def temporary(guest: Guest) -> list[Path]:
    """Temporary files that the server has not renamed."""
    return [*guest.folder.rglob("temp-*"), *guest.folder.rglob("*.tmp-*")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_file_that_cannot_be_saved_is_the_last_one_or_the_new_one(
    policy: str, start: Callable[..., Guest], each: Callable[[int], Iterator[int]]
) -> None:
    guest = start(*SAVING, "--maxmemory-policy", policy)
    faults = Faults(guest)
    small_keys.write(guest)
    saved = entries(server.saved(guest))
    faults.disarm()
    server.saved(guest)
    counts = {call: faults.calls(call) for call in TO_SAVE}
    assert all(counts.values()), counts
    before, opened = small_keys.digest(guest), leaks.descriptors(guest)
    for call, count in counts.items():
        for number in each(count):
            faults.arm(call, number)
            reply = asked(guest, "SAVE")
            assert faults.failed() == 1, f"{call.name} {number} of {count} did not happen"
            faults.disarm()
            assert isinstance(reply, hiredis.ReplyError), f"{call.name} {number} failed, but SAVE replies {reply!r}"
            assert small_keys.digest(guest) == before, f"{call.name} {number}"
            assert temporary(guest) == [], f"{call.name} {number}"
            # If only the synchronisation after the rename fails, the new file is in place.
            assert entries(guest.read("dump.rdb")).keys() == saved.keys(), f"{call.name} {number}"
    assert entries(server.saved(guest)).keys() == saved.keys()
    leaks.await_closed(guest, opened)


def background_save(guest: Guest) -> bool:
    """Save with BGSAVE. Returns whether the child succeeded."""
    reply = asked(guest, "BGSAVE")
    link.await_that(lambda: link.info(guest, TOLD)["rdb_bgsave_in_progress"] == "0", [guest], "the child to end")
    return not isinstance(reply, hiredis.ReplyError) and link.info(guest, TOLD)["rdb_last_bgsave_status"] == "ok"


def test_a_child_that_cannot_save_leaves_the_last_file(
    start: Callable[..., Guest], each: Callable[[int], Iterator[int]]
) -> None:
    guest = start(*SAVING)
    faults = Faults(guest)
    small_keys.write(guest)
    assert background_save(guest)
    faults.disarm()
    assert background_save(guest)
    kinds = [Call.FORK, Call.PIPE, *TO_SAVE]
    counts = {call: faults.calls(call) for call in kinds}
    assert all(counts.values()), counts
    before, opened = small_keys.digest(guest), leaks.descriptors(guest)
    keys = entries(guest.read("dump.rdb")).keys()
    for call, count in counts.items():
        # The child writes as SAVE does, so a few of its writes are enough.
        for number in list(each(count))[:: max(1, count // 8)]:
            faults.arm(call, number)
            saved = background_save(guest)
            assert faults.failed() == 1, f"{call.name} {number} of {count} did not happen"
            faults.disarm()
            # Without its pipe the child still saves, but does not report its memory.
            if call is Call.PIPE:
                assert saved
                continue
            assert not saved, f"{call.name} {number} failed, but the server reports that the child saved"
            assert str(asked(guest, "SET", "k", 1)).startswith("MISCONF"), f"{call.name} {number}"
            assert small_keys.digest(guest) == before
            assert entries(guest.read("dump.rdb")).keys() == keys
            assert temporary(guest) == [], f"{call.name} {number}"
    assert background_save(guest)
    assert asked(guest, "SET", "k", 1) == b"OK"
    leaks.await_closed(guest, opened)


def test_users_that_cannot_be_saved_are_saved_later(start: Callable[..., Guest]) -> None:
    guest = start("--aclfile", "users.acl", **{"users.acl": b"user default on nopass ~* &* +@all\n"})
    faults = Faults(guest)
    # A half-written file must not replace the complete one.
    calls = [(Call.OPEN, False), (Call.WRITE, False), (Call.WRITE, True), (Call.RENAME, False)]
    opened = leaks.descriptors(guest)
    for number, (call, short) in enumerate(calls):
        # After a short write, Valkey also writes the other half. Then the file has the users that were new before.
        user = f"alice{number}"
        assert asked(guest, "ACL", "SETUSER", user, "on", ">secret", "+get") == b"OK"
        before = guest.read("users.acl")
        faults.arm(call, short=short)
        reply = asked(guest, "ACL", "SAVE")
        assert faults.failed() == 1
        faults.disarm()
        assert short or isinstance(reply, hiredis.ReplyError), f"{call.name} failed, but ACL SAVE replies {reply!r}"
        now = guest.read("users.acl")
        assert (f"user {user} on".encode() in now) if reply == b"OK" else (now == before), f"{call.name}: {reply!r}"
        assert [path.name for path in guest.folder.glob("users.acl*")] == ["users.acl"]
    assert asked(guest, "ACL", "SAVE") == b"OK"
    assert all(f"user alice{number} on".encode() in guest.read("users.acl") for number in range(len(calls)))
    leaks.await_closed(guest, opened)


def test_settings_that_cannot_be_written_leave_the_last_ones(start: Callable[..., Guest]) -> None:
    guest = start("given.conf", **{"given.conf": b"# Ours\nmaxclients 100\n"})
    faults = Faults(guest)
    assert asked(guest, "CONFIG", "SET", "maxmemory", "123mb") == b"OK"
    opened = leaks.descriptors(guest)
    faults.disarm()
    assert asked(guest, "CONFIG", "REWRITE") == b"OK"
    kinds = [Call.OPEN_TO_READ, Call.OPEN, Call.WRITE, Call.FSYNC, Call.RENAME]
    counts = {call: faults.calls(call) for call in kinds}
    assert all(counts.values()), counts
    assert asked(guest, "CONFIG", "SET", "maxmemory", "124mb") == b"OK"
    for call, count in counts.items():
        for number in range(1, count + 1):
            was = guest.read("given.conf")
            faults.arm(call, number)
            reply = asked(guest, "CONFIG", "REWRITE")
            assert faults.failed() == 1
            faults.disarm()
            assert isinstance(reply, hiredis.ReplyError), f"{call.name} {number}: {reply!r}"
            now = guest.read("given.conf")
            assert now == was or (b"# Ours" in now and b"maxmemory 124mb" in now), f"{call.name} {number}"
            assert [path.name for path in guest.folder.glob("given.conf*")] == ["given.conf"]
    # After a short write the server writes the other half.
    faults.arm(Call.WRITE, short=True)
    assert asked(guest, "CONFIG", "REWRITE") == b"OK"
    assert faults.failed() == 1
    assert b"# Ours" in guest.read("given.conf")
    assert b"maxmemory 124mb" in guest.read("given.conf")
    leaks.await_closed(guest, opened)
