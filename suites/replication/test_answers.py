"""A replica whose primary replies with nonsense keeps its keys until it receives others, and follows the next primary.
The test plays the primary, and so controls the content and time of each reply.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple, Self

import pytest

from harness.core.target_model import ORACLE
from suites._shared import link
from suites._shared.formats.handmade import STRING, file, pair, text
from suites._shared.keyspace import server
from suites._shared.needs import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

IDENTIFIER = b"0123456789" * 4
MARK = b"m" * 40
RDB = file(pair(STRING, text(b"theirs"), b"k"))
FULL = b"+FULLRESYNC " + IDENTIFIER + b" 100\r\n"
WHOLE = FULL + b"$%d\r\n" % len(RDB) + RDB
MARKED = FULL + b"$EOF:" + MARK + b"\r\n"
LONG_FILE = 5 << 30
NO_FILE = b"-ERR no file\r\n"
CLOSE = b""


class Talk(NamedTuple):
    """The replies of a primary, and the state of the replica after them."""

    answers: Mapping[str, bytes]
    """The first word of a request, or REPLCONF with its second word -> the reply. CLOSE ends the connection."""
    options: Sequence[str] = ()
    left: bytes | None = b"own"
    """The replica's value afterwards: its own, the primary's, or none."""
    stays: bool = False
    """Whether the replica keeps the connection."""


MEMORY = ("--repl-diskless-load", "swapdb")
STREAM = {
    "an error": b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n",
    "asked for its place": b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n",
}
TALKS = {
    "no answer": Talk({"PING": CLOSE}),
    "an error to PING": Talk({"PING": b"-ERR never\r\n"}),
    "no permission to PING": Talk({"PING": b"-NOPERM no\r\n", "PSYNC": CLOSE}),
    "a password is missing": Talk({"PING": b"-NOAUTH first\r\n", "PSYNC": CLOSE}),
    "a password is refused": Talk({"AUTH": b"-ERR wrong\r\n"}, ("--masterauth", "secret")),
    "a user is refused": Talk({"AUTH": CLOSE}, ("--masterauth", "secret", "--masteruser", "me")),
    "no port": Talk({"REPLCONF listening-port": b"-ERR what\r\n", "PSYNC": CLOSE}),
    "no connection after the port": Talk({"REPLCONF listening-port": CLOSE}),
    "no address": Talk(
        {"REPLCONF ip-address": b"-ERR what\r\n", "PSYNC": CLOSE}, ("--replica-announce-ip", "127.0.0.1")
    ),
    "no connection after the address": Talk({"REPLCONF ip-address": CLOSE}, ("--replica-announce-ip", "127.0.0.1")),
    "no capability": Talk({"REPLCONF capa": b"-ERR what\r\n", "PSYNC": CLOSE}),
    "no connection after the capability": Talk({"REPLCONF capa": CLOSE}),
    "an empty line for an answer": Talk({"PSYNC": b"\n\n\n-ERR later\r\n", "SYNC": CLOSE}),
    "a full synchronisation of nothing": Talk({"PSYNC": b"+FULLRESYNC\r\n" + NO_FILE}),
    "a full synchronisation without an offset": Talk({"PSYNC": b"+FULLRESYNC " + IDENTIFIER + b"\r\n" + NO_FILE}),
    "a full synchronisation of a short name": Talk({"PSYNC": b"+FULLRESYNC short 0\r\n" + NO_FILE}),
    "a primary without a primary": Talk({"PSYNC": b"-NOMASTERLINK wait\r\n"}),
    "a primary that loads": Talk({"PSYNC": b"-LOADING wait\r\n"}),
    "an unknown command": Talk({"PSYNC": b"-ERR unknown\r\n", "SYNC": b"-ERR unknown\r\n"}),
    "an unexpected answer": Talk({"PSYNC": b"+NONSENSE\r\n", "SYNC": CLOSE}),
    "no such file": Talk({"PSYNC": FULL + NO_FILE}),
    "no length": Talk({"PSYNC": FULL + b"nonsense\r\n"}),
    "empty lines, then nothing": Talk({"PSYNC": FULL + b"\n\n\n", "after": CLOSE}),
    "half a file": Talk({"PSYNC": FULL + b"$%d\r\n" % len(RDB) + RDB[:20], "after": CLOSE}),
    "half a file in memory": Talk({"PSYNC": MARKED + RDB[:20], "after": CLOSE}, MEMORY),
    "another program's file": Talk({"PSYNC": FULL + b"$9\r\nSIDER0009"}, left=None),
    "another program's file in memory": Talk({"PSYNC": MARKED + b"SIDER0009" + MARK}, MEMORY),
    "a file of the future in memory": Talk({"PSYNC": MARKED + b"REDIS9999" + MARK}, MEMORY),
    "a broken file in memory": Talk({"PSYNC": MARKED + RDB[:9] + b"\x1e" + RDB[10:] + MARK}, MEMORY),
    "another mark at the end": Talk({"PSYNC": MARKED + RDB + MARK[:-1] + b"?"}, MEMORY),
    "a whole file": Talk({"PSYNC": WHOLE}, left=b"theirs", stays=True),
    "a whole file in memory": Talk({"PSYNC": MARKED + RDB + MARK}, MEMORY, left=b"theirs", stays=True),
    "a whole file to SYNC": Talk(
        {"PSYNC": b"-ERR unknown\r\n", "SYNC": WHOLE[len(FULL) :]}, left=b"theirs", stays=True
    ),
    "an inline command": Talk({"PSYNC": WHOLE + b"SET k inline\r\n"}, left=b"theirs"),
    "a count that is none": Talk({"PSYNC": WHOLE + b"*nonsense\r\n"}, left=b"theirs"),
    "a length that is none": Talk({"PSYNC": WHOLE + b"*1\r\n$nonsense\r\n"}, left=b"theirs"),
    **{name: Talk({"PSYNC": WHOLE + stream}, left=b"theirs", stays=True) for name, stream in STREAM.items()},
}


class Primary:
    """A primary on loopback that replies as specified."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.ended = threading.Event()
        """Set when a connection ends after the replies."""
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        """Begin to accept."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            with connection, contextlib.suppress(OSError):
                self._talk(connection)
            self.ended.set()

    def _talk(self, connection: socket.socket) -> None:
        received = b""
        while more := connection.recv(65536):
            received += more
            while (parted := request(received)) is not None:
                words, received = parted
                name = " ".join(word.decode() for word in words[: 2 if words[0] == b"REPLCONF" else 1])
                self.asked.append(name)
                answer = self._answers.get(name, b"" if name == "REPLCONF ACK" else b"+OK\r\n")
                if name in self._answers and answer == CLOSE:
                    return
                connection.sendall(answer)
                if name == "PSYNC" and "after" in self._answers:
                    return


def request(received: bytes) -> tuple[list[bytes], bytes] | None:
    """The words of the first request, and the bytes after it; None while the request is incomplete. A replica sends
    SYNC as a line of text, and sends empty lines while it loads.
    """
    received = received.lstrip(b"\r\n")
    line, end, rest = received.partition(b"\r\n")
    if not end:
        return None
    if not line.startswith(b"*"):
        return line.split(), rest
    words = []
    for _ in range(int(line[1:])):
        length, end, rest = rest.partition(b"\r\n")
        if not end or len(rest) < int(length[1:]) + 2:
            return None
        words.append(rest[: int(length[1:])])
        rest = rest[int(length[1:]) + 2 :]
    return words, rest


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
def test_a_replica_survives_what_a_primary_says(talk: Talk, start_guest: StartGuest, cell: CellSpec) -> None:
    require(cell, "option propagation-error-behavior")
    found = [after(talk, start_guest, target) for target in (ORACLE, "")]
    assert found[0] == found[1]


def after(talk: Talk, start_guest: StartGuest, target: str) -> list[str]:
    """The requests that a replica sent to its primary, without repetitions."""
    replica = start_guest(target=target, options=[*server.OPTIONS, "--repl-timeout", "3600", *talk.options])
    with server.client(replica) as client, Primary(talk.answers) as primary:
        client.command("SET", "k", "own")
        client.command("REPLICAOF", "127.0.0.1", primary.port)
        if talk.stays:
            link.await_that(lambda: status(replica) == "up", [replica], "the synchronisation")
        else:
            link.await_that(primary.ended.is_set, [replica], "the connection to end")
        if talk.stays and "SYNC" not in talk.answers:
            link.await_that(lambda: "REPLCONF ACK" in primary.asked, [replica], "the replica to report its offset")
        asked = list(dict.fromkeys(primary.asked))
        client.command("REPLICAOF", "NO", "ONE")
        # A replica whose connection ended may have been loading the file of the next one.
        link.await_that(lambda: link.info(replica, "persistence")["loading"] == "0", [replica], "the end of loading")
        assert client.command("GET", "k") == talk.left
        assert client.command("SET", "k", "again") == b"OK"
    return asked


def test_a_replica_tells_how_much_of_a_file_beyond_32_bits_is_left(start_guest: StartGuest) -> None:
    """A primary with more memory has a file of 5 GiB, of which the first bytes come."""
    begun = b"REDIS0009"
    replica = start_guest(options=[*server.OPTIONS, "--repl-timeout", "3600"])
    with (
        server.client(replica) as client,
        Primary({"PSYNC": FULL + b"$%d\r\n" % LONG_FILE + begun}) as primary,
    ):
        client.command("REPLICAOF", "127.0.0.1", primary.port)

        def left() -> int:
            # -1 until the length has come.
            return int(link.info(replica, "replication").get("master_sync_left_bytes", -1))

        link.await_that(lambda: left() not in {-1, LONG_FILE}, [replica], "the first bytes of the file")
        told = left()
        client.command("REPLICAOF", "NO", "ONE")
    assert told == LONG_FILE - len(begun), f"{LONG_FILE - len(begun)} bytes are left, and {told} told"


def status(guest: Guest) -> str:
    return link.info(guest, "replication").get("master_link_status", "")
