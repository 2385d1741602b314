"""Two clients of a real server take turns. The replies and messages of each do not depend on the server's speed."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.protocol.command_stream import from_text, wire
from harness.protocol.control_connection import ControlConnection
from harness.protocol.conversation import CLOSED, UNANSWERED, UNSENT, Conversation
from harness.protocol.resp import Client, ServerGoneError
from suites.fuzz.emptying import Emptying
from tests.end_to_end.support.native_server import native_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with native_server(tmp_path_factory.mktemp("server")) as guest:
        yield guest


def replies_to(server: Guest, text: str) -> list[Reply]:
    """The replies of an empty server to two clients."""
    replies: list[Reply] = []
    with contextlib.ExitStack() as connections:
        clients = [
            connections.enter_context(Client.at_socket(server.access.path, deadline_seconds=20)) for _ in range(2)
        ]
        clients[0].command("FLUSHALL")
        control = connections.enter_context(ControlConnection(server.upstream, deadline_seconds=20))
        Conversation(clients, control, deadline_seconds=20).ask_into(replies, from_text(text))
    return replies


def test_a_blocked_client_gets_its_reply_when_the_other_one_pushes(server: Guest) -> None:
    for _ in range(20):
        assert replies_to(server, "@2 BLPOP l 0\nLPUSH l a\n@2 LLEN l\n") == [[b"l", b"a"], 1, 0]


@pytest.mark.parametrize("sent", ["", "@2 BLPOP elsewhere 0\n"], ids=["unknown", "two-clients"])
def test_a_blocked_client_of_an_earlier_stream_does_not_count_in_this_one(server: Guest, sent: str) -> None:
    """On a busy machine, a recorder closes a connection some time after its client has closed it."""
    emptying = Emptying()
    emptying.empty(server)
    with contextlib.ExitStack() as connections:
        earlier = connections.enter_context(Client.at_socket(server.upstream, deadline_seconds=20))
        earlier.send(wire(from_text("BLPOP elsewhere 0\n")))
        # A server may read an earlier request of a new connection after a later request of an old one.
        deadline = time.monotonic() + 20
        while emptying.control(server).blocked_clients() != 1:
            assert time.monotonic() < deadline, "the client does not block"
        closing = threading.Timer(0.3, connections.close)
        closing.start()
        if sent:
            emptying.sent(server, from_text(sent))
        emptying.empty(server)
        text = "@2 BLPOP l 0\nLPUSH l a\n@2 BLPOP m 0\n"
        assert replies_to(server, text) == [[b"l", b"a"], 1, UNANSWERED]
        closing.join()


def test_no_command_is_sent_whose_reply_the_servers_own_messages_would_split(server: Guest) -> None:
    begins = "CONFIG SET notify-keyspace-events KEA\nXADD x 1-1 f v\nXGROUP CREATE x g 0\n@2 PSUBSCRIBE __key*\n"
    torn = "@2 XREADGROUP GROUP g c STREAMS x >\n@2 MULTI\n@2 PING\nCONFIG SET notify-keyspace-events ''\n"
    in_resp3 = replies_to(server, f"@2 HELLO 3\n{begins}{torn}")
    assert in_resp3[5:] == [UNSENT, UNSENT, b"PONG", b"OK"]
    again = replies_to(server, f"@2 HELLO 3\n{begins}@2 HELLO 2\n{torn}")
    assert UNSENT not in again
    alone = replies_to(server, "@2 HELLO 3\n@2 MULTI\n@2 SET k v\n@2 EXEC\n")
    assert alone[1:] == [b"OK", b"QUEUED", [b"OK"]]


def test_a_blocked_client_sends_nothing(server: Guest) -> None:
    text = "@2 BLMPOP 0 1 l LEFT\n@2 PING\nGET k\nCLIENT UNBLOCK <client-2>\n@2 PING\n@2 XREAD BLOCK 0 STREAMS x $\n"
    assert replies_to(server, text) == [None, UNSENT, None, 1, b"PONG", UNANSWERED]


def test_a_transaction_does_not_block_its_client(server: Guest) -> None:
    text = "@2 MULTI\n@2 BLPOP l 0\n@2 SUBSCRIBE c\n@2 EXEC\n"
    assert replies_to(server, text) == [b"OK", b"QUEUED", UNSENT, [None]]


def test_a_change_by_the_other_breaks_a_watch(server: Guest) -> None:
    text = "@2 WATCH k\nSET k 1\n@2 MULTI\n@2 GET k\n@2 EXEC\n"
    assert replies_to(server, text) == [b"OK", b"OK", b"OK", b"QUEUED", None]


def test_a_clients_messages_come_with_its_last_reply(server: Guest) -> None:
    text = "@2 SUBSCRIBE c d\nPUBLISH c x\nPUBLISH e y\n@2 UNSUBSCRIBE d\nPUBLISH d z\n@2 PING\n"
    confirmed = [[b"subscribe", b"c", 1], [b"subscribe", b"d", 2]]
    heard = [[b"message", b"c", b"x"], [b"pong", b""]]
    assert replies_to(server, text) == [confirmed, 1, 0, [[b"unsubscribe", b"d", 1]], 0, heard]


def test_a_client_receives_invalidation_messages(server: Guest) -> None:
    text = "@2 HELLO 3\n@2 CLIENT TRACKING ON\n@2 GET k\nSET k 1\n@2 PING\n"
    assert replies_to(server, text)[2:] == [None, b"OK", [[b"invalidate", [b"k"]], b"PONG"]]


def test_a_client_that_the_other_disconnects_is_closed(server: Guest) -> None:
    text = "@2 BLPOP l 0\nCLIENT KILL ID <client-2>\n@2 PING\nPING\n"
    assert replies_to(server, text) == [CLOSED, 1, CLOSED, b"PONG"]


def test_a_message_within_the_reply_of_a_transaction_moves_no_later_reply(server: Guest) -> None:
    text = """HELLO 3
@2 HELLO 3
@2 CLIENT TRACKING ON REDIRECT <client-1>
@2 MGET k l m
MULTI
MSET k 1 l 1
SET m 2
LRANGE n 0 -1
EXEC
GET k
EXEC
STRLEN m
PING
"""
    heard = [[b"invalidate", [b"k"]], [b"invalidate", [b"l"]], [b"invalidate", [b"m"]], b"PONG"]
    replies = replies_to(server, text)
    assert replies[4:8] == [b"OK", b"QUEUED", b"QUEUED", b"QUEUED"]
    assert replies[8:10] == [[b"OK", b"OK", []], b"1"]
    assert "EXEC without MULTI" in str(replies[10])
    assert replies[11:] == [1, heard]


def test_a_disconnected_clients_messages_do_not_depend_on_when_it_is_closed(server: Guest) -> None:
    text = "@2 SUBSCRIBE c\nPUBLISH c x\nCLIENT KILL ID <client-2>\n@2 PING\nPING\n"
    heard = [[b"message", b"c", b"x"], CLOSED]
    for _ in range(20):
        assert replies_to(server, text)[1:] == [1, 1, heard, b"PONG"]


def test_the_end_of_a_server_is_not_taken_for_a_closed_connection(server: Guest) -> None:
    with pytest.raises((ServerGoneError, OSError)):
        replies_to(server, "GET k\n@2 SHUTDOWN NOSAVE\n@2 PING\n")
