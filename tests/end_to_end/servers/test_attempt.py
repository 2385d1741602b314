"""Consecutive streams on real servers do not affect each other, and every death and every lost reply is detected."""

from __future__ import annotations

import contextlib
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.core.sockets import connect
from harness.core.target_model import ORACLE
from harness.protocol import reply_comparison
from harness.protocol.allowed_refusals import release_of
from harness.protocol.command_stream import clients_of, from_text, from_wire
from harness.protocol.resp import Client
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from suites.fuzz.attempt import attempt
from suites.fuzz.emptying import Emptying, leaves_client
from suites.fuzz.generate import generate
from tests.end_to_end.support.machines import quiet_workbench, set_up
from tests.unit.record.test_recording_proxy import RecordedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.protocol.resp import Reply
    from suites.fuzz.failure import Failure

pytestmark = pytest.mark.end_to_end

PROBE = """SET k v
HSET h f v
OBJECT ENCODING h
HGETALL h
DBSIZE
FUNCTION LIST
SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db
CONFIG GET notify-keyspace-events
ACL USERS
CLIENT GETNAME
"""
"""Commands that show a stream's initial state: data, encodings, protocol version, functions, settings, users."""
UNKEPT = ("ACL", "CLIENT")
"""Commands after which a client is not reused."""


def started(folder: Path, sockets: Path) -> Guest:
    tree = quiet_workbench().open_server("redis-7.0.15")
    setup = set_up((ORACLE,))[ORACLE]
    return Guest(
        ServerSpec(build=setup.build(tree, "O2"), version=tree.version), setup.runner("signal"), folder, sockets=sockets
    )


Pair = tuple[Guest, Guest, Emptying]
"""Two servers. The first one plays the guest."""


@contextlib.contextmanager
def both(folder: Path) -> Iterator[Pair]:
    with (
        tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
        started(folder / "guest-1", Path(sockets)) as guest,
        started(folder / "guest-2", Path(sockets)) as oracle,
    ):
        emptying = Emptying()
        yield guest, oracle, emptying
        emptying.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with both(tmp_path_factory.mktemp("pair")) as servers:
        yield servers


@pytest.fixture
def mortal_pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair for one test, which ends the guest."""
    with both(tmp_path) as servers:
        yield servers


def tried(pair: Pair, text: str) -> tuple[Failure | None, list[Reply]]:
    guest, oracle, emptying = pair
    return attempt(guest, oracle, from_text(text), emptying, checkpoint=True)


def connections_made(guest: Guest) -> int:
    with Client.at_socket(guest.upstream, deadline_seconds=10) as client:
        stats = client.command("INFO", "stats")
    assert isinstance(stats, bytes)
    return int(stats.split(b"total_connections_received:")[1].split(b"\r\n")[0])


@pytest.mark.parametrize(
    "left",
    [
        "MULTI\nSET k w\n",
        "WATCH k\nSET k w\nMULTI\n",
        "MULTI\nNONSENSE\n",
        "SELECT 1\nSET k w\nHSET h f w g x\n",
        "HELLO 3\nHSET h f v\n",
        "CONFIG SET hash-max-listpack-entries 0\nCONFIG SET notify-keyspace-events KEA\n",
        "SCRIPT FLUSH\n",
        "FUNCTION LOAD \"#!lua name=f\\nredis.register_function('put', function() return 1 end)\"\n",
        "ACL SETUSER plumb on >word ~* +@all\nAUTH plumb word\n",
        "CLIENT SETNAME x\nCLIENT REPLY NONSENSE\n",
        "SUBSCRIBE c\n",
        "SWAPDB 0 1\nSET k w\nSWAPDB 0 1\n",
        "SET k v\n@2 HELLO 3\n@2 MULTI\n@2 BLPOP l 0\n",
    ],
)
def test_a_stream_finds_nothing_of_the_previous_one(pair: Pair, left: str) -> None:
    kept = "".join(line + "\n" for line in PROBE.splitlines() if not line.startswith(UNKEPT))
    for probe in (kept, PROBE):
        _, expected = tried(pair, probe)
        tried(pair, left)
        failure, replies = tried(pair, probe)
        assert failure is None
        assert replies == expected


def test_a_client_is_reused_after_streams_that_leave_it_unchanged(pair: Pair) -> None:
    guest = pair[0]
    tried(pair, PROBE)
    before = connections_made(guest)
    for _ in range(5):
        tried(pair, "SET k v\nHELLO 3\nMULTI\n")
    # The client that ran CLIENT ID, and the reused one.
    assert connections_made(guest) == before + 2
    for _ in range(5):
        tried(pair, "CLIENT ID\n")
    assert connections_made(guest) == before + 2 + 1 + 5


def test_a_reused_client_gets_the_replies_of_a_new_one(pair: Pair) -> None:
    guest, oracle, emptying = pair
    drawn, release = random.Random(11), release_of(guest.build.server_binary, guest.version)
    kept = 0
    for stream in (one for one in (generate(drawn) for _ in range(250)) if clients_of(one) == 1):
        failure, replies = attempt(guest, oracle, stream, emptying, checkpoint=True)
        assert failure is None
        kept += leaves_client(guest, stream)
        # The emptying does not know how the servers are used, so it takes new clients.
        _, of_new = attempt(guest, oracle, stream, Emptying(), checkpoint=False)
        for server in (guest, oracle):
            emptying.sent(server, stream)
        assert reply_comparison.first_difference(stream, replies, of_new, guest.runner.target, release) is None
    assert kept > 150


def test_servers_run_their_timers_often_only_for_a_stream_that_waits(pair: Pair) -> None:
    for text, often in (("PING", b"50"), ("BLPOP l 0.002", b"500"), ("PING", b"50"), ("@2 BLPOP l 0.002", b"500")):
        failure, replies = tried(pair, f"{text}\nCONFIG GET hz\n")
        assert failure is None
        assert [b"hz", often] in replies
        failure, replies = tried(pair, "CONFIG GET hz\n")
        assert failure is None
        assert replies[0] == [b"hz", b"50"]


def test_a_redirected_message_within_a_reply_is_no_difference_between_correct_servers(pair: Pair) -> None:
    """Regression: `plumb fuzz` reported a fault in redis-7.0.15. EXEC had returned an ACL LOG entry, which depends on
    the clock and the client.
    """
    text = """HELLO 3
@2 HELLO 3
@2 AUTH plumb no
@2 CLIENT TRACKING ON REDIRECT <client-1>
@2 GET k
MULTI
SET k v
EXEC
ACL LOG
EXEC
"""
    _, oracle, _ = pair
    for _ in range(3):
        # The two servers number their clients differently, as after many streams.
        with Client.at_socket(oracle.upstream, deadline_seconds=10) as client:
            client.command("PING")
        failure, _ = tried(pair, text)
        assert failure is None


def test_a_server_end_is_attributed_to_the_command_that_causes_it(mortal_pair: Pair) -> None:
    assert tried(mortal_pair, "SET k v\n")[0] is None
    failure, replies = tried(mortal_pair, "SET k w\n\nDEBUG SEGFAULT\n")
    assert failure is not None
    assert (failure.label, failure.index, replies) == ("DEBUG-end", 1, [b"OK"])


def spoiling(guest: Guest, spoil: Callable[[bytes, bytes], bytes | None]) -> RecordedServer:
    """A proxy between a server and its clients that changes the replies to a write; None: it closes the connection."""

    def answer(write: bytes) -> bytes | None:
        count = len(from_wire(write))
        reader = hiredis.Reader(notEnoughData=NOTHING)
        connection.sendall(write)
        reply = b""
        while count:
            content = connection.recv(65536)
            reply += content
            reader.feed(content)
            while reader.gets() is not NOTHING:
                count -= 1
        return spoil(write, reply)

    connection = connect(guest.upstream, deadline_seconds=10)
    return RecordedServer(answer)


NOTHING = object()
HASH = "HSET h f v\nGET k\n"


@pytest.mark.parametrize(
    ("spoil", "label", "says"),
    [
        (lambda write, reply: reply[:-2] if b"GET" in write else reply, "GET-end", "TimeoutError"),
        (lambda write, reply: reply[:-2] if b"RESET" in write else reply, "HGETALL-end", "TimeoutError"),
        (
            lambda write, reply: reply + b"+OK\r\n" if b"GET" in write else reply,
            "RESET",
            "b'OK', native b'RESET'",
        ),
        (lambda write, reply: reply.replace(b"$1\r\nv", b"$1\r\nw") if b"RESET" in write else reply, "HGETALL", "b'w'"),
        (lambda write, reply: None if b"RESET" in write else reply, "RESET-end", "closed by the server"),
        (lambda write, reply: None if b"GET" in write else reply, "HSET-end", "closed by the server"),
        (lambda write, reply: reply.replace(b"+RESET", b"+OTHER") if b"RESET" in write else reply, "RESET", "b'OTHER'"),
    ],
)
def test_a_changed_reply_is_detected(
    mortal_pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[bytes, bytes], bytes | None],
    label: str,
    says: str,
) -> None:
    guest = mortal_pair[0]
    with spoiling(guest, spoil) as between:
        monkeypatch.setattr(guest, "client", lambda: Client.at_socket(between.path, deadline_seconds=1))
        failure, _ = tried(mortal_pair, HASH)
        assert failure is not None
        assert failure.label == label
        assert says in failure.message


@pytest.mark.parametrize(("text", "database"), [(HASH, 0), (f"{HASH}SELECT 1\n", 1)])
def test_a_key_that_only_the_guest_has_is_detected(
    mortal_pair: Pair, monkeypatch: pytest.MonkeyPatch, text: str, database: int
) -> None:
    guest = mortal_pair[0]

    def keep(write: bytes, reply: bytes) -> bytes:
        if b"GET" in write:
            with Client.at_socket(guest.upstream, deadline_seconds=10) as client:
                client.pipeline([("SELECT", database), ("SET", "extra", "v")])
        return reply

    with spoiling(guest, keep) as between:
        monkeypatch.setattr(guest, "client", lambda: Client.at_socket(between.path, deadline_seconds=1))
        failure, _ = tried(mortal_pair, text)
        assert failure is not None
        assert failure.label == "KEYS"
        assert "extra" in failure.message
