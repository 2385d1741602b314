"""The recorder forwards bytes and closes unchanged, and its records can be read, stored and sent again."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.processes import process, processor_time
from harness.core.sockets import connect
from harness.core.strict_toml import ROOT
from harness.protocol.resp import Client
from harness.record.proxy import peer_user
from harness.record.proxy.forwarding import PURPOSE
from harness.record.proxy.recorder import RETRY_SECONDS, Recorder
from harness.record.proxy.self_recording import HEAD
from harness.record.transcript import (
    INLINE_BYTES,
    Chunk,
    has_whole_request,
    last_request,
    load,
    requests,
    save,
    send_again,
    unanswered,
)
from tests.support.fakes import chunk
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 5.0


class RecordedServer:
    """A Unix-socket server in a thread. A function answers each received piece; None closes the connection."""

    def __init__(self, answer: Callable[[bytes], bytes | None], *, at_end: bytes = b"") -> None:
        self.answer = answer
        self.at_end = at_end
        self.received: list[bytes] = []
        # A Unix socket's path has at most 107 bytes, and pytest's folders can be deep.
        self._folder = tempfile.TemporaryDirectory(prefix="plumbline-test-")
        self.path = Path(self._folder.name) / "s"
        self.recorder_path = Path(self._folder.name) / "r"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                self.received.append(piece)
                reply = self.answer(piece)
                if reply is None:
                    return
                connection.sendall(reply)
            connection.sendall(self.at_end)


@contextlib.contextmanager
def recorded(server: RecordedServer) -> Iterator[Recorder]:
    recorder = Recorder(server.path, server.recorder_path)
    try:
        yield recorder
    finally:
        recorder.close()


def by_path(recorder: Recorder) -> socket.socket:
    return connect(recorder.path, deadline_seconds=DEADLINE_SECONDS)


def on_host(recorder: Recorder) -> socket.socket:
    return connect((peer_user.HOST, recorder.port), deadline_seconds=DEADLINE_SECONDS)


Connect = Callable[[Recorder], socket.socket]


def without_proxy(recorder: Recorder) -> socket.socket:
    return recorder.connection(deadline_seconds=DEADLINE_SECONDS)


@pytest.fixture(params=[by_path, on_host, without_proxy])
def connected(request: pytest.FixtureRequest) -> Connect:
    """How a client connects. Each way must behave in the same way."""
    way: Connect = request.param
    return way


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plumbline-test-") as folder:
        yield Path(folder)


def read_to_end(client: socket.socket) -> bytes:
    content = b""
    while piece := client.recv(65536):
        content += piece
    return content


def read_exactly(client: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length and (piece := client.recv(length - len(content))):
        content += piece
    return content


def of(recorder: Recorder, direction: str) -> bytes:
    return b"".join(piece.content for piece in recorder.chunks() if piece.direction == direction)


@pytest.mark.parametrize("length", [1, 17, 65536, 1_000_003])
def test_bytes_are_forwarded_exactly_both_ways_and_recorded(length: int, connected: Connect) -> None:
    import random

    content = random.Random(length).randbytes(length)
    with RecordedServer(lambda piece: piece) as server, recorded(server) as recorder, connected(recorder) as client:
        writer = threading.Thread(target=client.sendall, args=(content,))
        writer.start()
        assert content == read_exactly(client, length)
        writer.join()
        assert content == b"".join(server.received)
        assert content == of(recorder, "request") == of(recorder, "reply")


def test_a_client_that_only_shuts_its_sending_side_still_gets_its_replies(connected: Connect) -> None:
    with (
        RecordedServer(lambda _: b"", at_end=b"late") as server,
        recorded(server) as recorder,
        connected(recorder) as client,
    ):
        client.sendall(b"request")
        client.shutdown(socket.SHUT_WR)
        assert read_to_end(client) == b"late"


def test_a_client_that_reads_nothing_blocks_no_other_client_and_loses_nothing(connected: Connect) -> None:
    content = bytes(range(256)) * 20_000
    with (
        RecordedServer(lambda piece: content if piece == b"much" else piece) as server,
        recorded(server) as recorder,
        connected(recorder) as lazy,
        connected(recorder) as other,
    ):
        lazy.sendall(b"much")
        for number in range(50):
            other.sendall(b"%d" % number)
            assert read_exactly(other, len(str(number))) == b"%d" % number
        assert read_exactly(lazy, len(content)) == content
        lazy.sendall(b"on")
        assert read_exactly(lazy, 2) == b"on"


def test_a_client_that_disconnects_during_a_reply_does_not_affect_others(connected: Connect) -> None:
    with (
        RecordedServer(lambda piece: bytes(3_000_000) if piece == b"much" else piece) as server,
        recorded(server) as recorder,
        connected(recorder) as other,
    ):
        for _ in range(3):
            with connected(recorder) as leaving:
                leaving.sendall(b"much")
                assert leaving.recv(1)
        other.sendall(b"on")
        assert read_exactly(other, 2) == b"on"


def test_a_guests_close_is_forwarded(connected: Connect) -> None:
    with RecordedServer(lambda _: None) as server, recorded(server) as recorder, connected(recorder) as client:
        client.sendall(b"deadly")
        assert read_to_end(client) == b""
        assert of(recorder, "request") == b"deadly"


def test_a_dead_guest_closes_the_connection_and_the_recorder_continues(short_folder: Path, connected: Connect) -> None:
    recorder = Recorder(short_folder / "absent", short_folder / "r")
    try:
        for _ in range(2):
            with connected(recorder) as client, contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
    finally:
        recorder.close()


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """So many more files may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open("rb") as unused:
        lowest = unused.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def starving(descriptors: int) -> Iterator[tuple[socket.socket, Recorder, list[socket.socket]]]:
    """A guest that accepts nobody by itself, its recorder, and two clients that came when so many descriptors were left
    beside the one that the kernel reserves for whoever waits for a client.
    """
    with tempfile.TemporaryDirectory(prefix="plumbline-test-") as folder, socket.socket(socket.AF_UNIX) as guest:
        guest.bind(str(Path(folder) / "s"))
        guest.listen()
        guest.settimeout(DEADLINE_SECONDS)
        recorder = Recorder(Path(folder) / "s", Path(folder) / "r")
        clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        with contextlib.closing(recorder), clients[0], clients[1]:
            with descriptors_left(descriptors):
                for client in clients:
                    client.connect(str(recorder.path))
                assert eventually(lambda: bool(recorder.trouble))
            yield guest, recorder, clients


STARVATIONS = 50
"""How often one is tried: the recorder may not wait for a client yet, and other tests may close files."""


def in_its_own_process(work: Callable[[], None]) -> None:
    """Other threads of this process would lack descriptors, too: pytest's, and those that earlier tests have left."""
    process.run_successfully(
        [sys.executable, "-c", f"from {__name__} import {work.__name__} as work; work()"],
        problem=f"{work.__name__} failed",
        deadline_seconds=120,
        folder=ROOT,
        environment={**process.PLAIN_ENVIRONMENT, "PYTHONPATH": str(ROOT)},
    )


def test_a_client_whose_guest_cannot_be_reached_for_want_of_a_descriptor_is_the_hosts_trouble() -> None:
    """Regression: it looked as if the guest had closed the connection, and nothing said that the host was why."""
    in_its_own_process(reach_no_guest)


def reach_no_guest() -> None:
    for _ in range(STARVATIONS):
        with starving(0) as (_, _, clients):
            clients[0].settimeout(RETRY_SECONDS * 2)
            with contextlib.suppress(TimeoutError):
                assert clients[0].recv(1) == b""
                return
    pytest.fail("each client was accepted later")


def test_a_client_that_the_host_cannot_accept_at_first_is_served_later() -> None:
    in_its_own_process(be_served_later)


def be_served_later() -> None:
    for _ in range(STARVATIONS):
        with starving(1) as (guest, _, clients):
            try:
                for number, client in enumerate(clients):
                    client.sendall(b"%d" % number)
            except OSError:
                # It was accepted, and no descriptor was left for the way to the guest.
                continue
            for number in range(2):
                with guest.accept()[0] as connection:
                    connection.settimeout(DEADLINE_SECONDS)
                    assert connection.recv(1) == b"%d" % number
            return
    pytest.fail("each client was accepted at first")


def test_connections_of_clients_that_record_by_themselves_are_kept_apart(connected: Connect) -> None:
    with RecordedServer(lambda piece: piece) as server, recorded(server) as recorder, connected(recorder) as client:
        client.sendall(b"a")
        assert read_exactly(client, 1) == b"a"
        for number, content in ((17, b"b"), (18, b"c"), (17, b"d")):
            with recorder.file.open("ab") as file:
                file.write(HEAD.pack(number, 0, len(content)) + content)
        sent: dict[int, bytes] = {}
        for piece in recorder.chunks():
            if piece.direction == "request":
                sent[piece.connection] = sent.get(piece.connection, b"") + piece.content
    assert sorted(sent.values()) == [b"a", b"bd", b"c"]


def test_close_drops_open_connections_and_stops_listening(connected: Connect) -> None:
    with RecordedServer(lambda piece: piece) as server:
        recorder = Recorder(server.path, server.recorder_path)
        with connected(recorder) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            recorder.close()
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        with pytest.raises(OSError, match=r"refused|reset|No such file"):
            connected(recorder)


def test_the_processor_time_of_many_connections_is_charged_to_the_proxy(short_folder: Path) -> None:
    """The proxy accepts and inspects each connection, but forwards hardly any bytes."""
    with socket.socket(socket.AF_UNIX) as upstream:
        upstream.bind(str(short_folder / "server"))
        upstream.listen(64)
        recorder = Recorder(short_folder / "server", short_folder / "r")
        port = recorder.port
        counted, process, ours = processor_time.by_thread().get(PURPOSE, 0.0), time.process_time(), time.thread_time()
        for _ in range(400):
            with socket.create_connection(("127.0.0.1", port)), upstream.accept()[0]:
                pass
        recorder.close()
        others = (time.process_time() - process) - (time.thread_time() - ours)
    # A thread cannot count its time before its first line and after its last one, which is nearly half.
    assert eventually(lambda: processor_time.by_thread()[PURPOSE] - counted > 0.35 * others)


def test_connections_are_numbered_and_begin_resets_the_record(connected: Connect) -> None:
    with RecordedServer(lambda piece: piece) as server, recorded(server) as recorder:
        with connected(recorder) as one, connected(recorder) as other:
            for client, text in ((one, b"one"), (other, b"other")):
                client.sendall(text)
                assert text == read_exactly(client, len(text))
        by_connection = {piece.content: piece.connection for piece in recorder.chunks() if piece.direction == "request"}
        assert len(set(by_connection.values())) == 2
        recorder.begin()
        assert recorder.chunks() == []


# Reading a transcript.


def command(*words: str | bytes) -> bytes:
    return Client.pack([words])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        ([("request", command("PING")), ("reply", b"+PONG\r\n")], []),
        ([("request", command("BITOP", "AND", "c", "a"))], ["BITOP AND c a"]),
        ([("request", command("SET", "a", "b") + command("GET", "a")), ("reply", b"+OK\r\n")], ["GET a"]),
        ([("request", command("A") + command("B") + command("C")), ("reply", b"-ERR x\r\n")], ["B", "C"]),
        ([("request", command("A")[:5]), ("request", command("A")[5:])], ["A"]),
        ([("request", command("A") + command("B")[:4]), ("reply", b"+OK\r\n")], []),
        ([("request", command("A") + command("B")), ("reply", b"$3\r\nab")], ["A", "B"]),
        ([("request", command("A") + command("B")), ("reply", b"*2\r\n:1\r\n:2\r\n")], ["B"]),
        ([("request", command("A") + command("B")), ("reply", b"$-1\r\n")], ["B"]),
        # RESP3's false is a reply like any other.
        ([("request", command("A") + command("B")), ("reply", b"#f\r\n")], ["B"]),
        ([("request", command("A") + command("B")), ("reply", b"#f\r\n:1\r\n")], []),
        ([("request", b"\x00garbage\r\n")], []),
    ],
)
def test_the_requests_without_a_reply_are_named_in_order(pieces: list[tuple[str, bytes]], expected: list[str]) -> None:
    chunks = [chunk("request" if direction == "request" else "reply", content) for direction, content in pieces]
    assert expected == unanswered(chunks)


def test_of_several_connections_the_last_active_one_counts() -> None:
    chunks = [
        chunk("request", command("BLPOP", "q", "0"), connection=1),
        chunk("request", command("BITPOS", "k", "1"), connection=2),
    ]
    assert unanswered(chunks) == ["BITPOS k 1"]


GET, PING, OBJECT = (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$6\r\nobject\r\n$1\r\nk\r\n")
SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([SET, GET], "GET k"),
        ([SET, GET, PING, OBJECT], "GET k"),
        ([SET, GET + GET], "GET k"),
        ([SET, GET + PING], "GET k"),
        ([GET, SET + GET], ""),
        ([GET, b"SET k v\r\n"], ""),
        ([PING, OBJECT], ""),
        ([GET, b"*0\r\n" + PING], "GET k"),
        ([GET, b"*0\r\n"], ""),
        ([], ""),
    ],
    ids=[
        *("last", "looks", "pipeline", "look-behind-it", "which-of-two", "inline", "looks-alone"),
        *("empty-array", "empty-array-alone", "nothing"),
    ],
)
def test_the_last_request_that_is_not_an_inspection_is_named_if_it_is_unambiguous(
    sent: list[bytes], expected: str
) -> None:
    answered = [(one, chunk("reply", b"+OK\r\n")) for one in sent]
    assert last_request([each for one, reply in answered for each in (chunk("request", one), reply)]) == expected
    if sent:
        halves = [(chunk("request", one[:9]), chunk("request", one[9:]), reply) for one, reply in answered]
        assert last_request([each for parts in halves for each in parts]) == expected


def test_every_request_is_listed_and_no_reply() -> None:
    reply = b"$1\r\nv\r\n"
    sent = [chunk("request", GET), chunk("reply", reply), chunk("request", SET[:9]), chunk("request", SET[9:])]
    assert requests([*sent, chunk("reply", reply)]) == ["GET k", "SET k v"]


def test_the_last_request_is_the_one_that_was_answered_last() -> None:
    waits = Chunk(connection=2, direction="request", data=chunk("request", SET).data)
    replies = [Chunk(connection=number, direction="reply", data=chunk("reply", b"+OK\r\n").data) for number in (1, 2)]
    get = Chunk(connection=1, direction="request", data=chunk("request", GET).data)
    assert last_request([waits, get, *replies]) == "SET k v"
    assert last_request([waits, get, replies[0]]) == "GET k", "the other one has no reply"


def test_a_long_or_binary_argument_is_shortened_and_escaped() -> None:
    (text,) = unanswered([chunk("request", command("SET", b"\x00 k", b"x" * 5000))])
    assert text == 'SET "\\x00 k" "xxxxxxxxxxxxxxxx"…(5000 bytes)'


CHUNKS = st.lists(
    st.builds(
        lambda direction, content, connection: chunk(
            "request" if direction else "reply", content, connection=connection
        ),
        st.booleans(),
        st.binary(),
        st.integers(1, 9),
    )
)


@given(CHUNKS)
def test_a_saved_transcript_is_loaded_unchanged(chunks: list[Chunk]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transcript.jsonl"
        save(path, chunks)
        assert chunks == load(path)


@given(CHUNKS)
def test_any_transcript_can_be_read(chunks: list[Chunk]) -> None:
    assert all(isinstance(line, str) for line in unanswered(chunks))


# Replaying a transcript.


def test_the_recorded_requests_are_sent_again_in_order_each_after_its_replies() -> None:
    with RecordedServer(lambda piece: b"<" + piece + b">") as server, recorded(server) as recorder:
        with by_path(recorder) as client:
            for word in (b"one", b"two", b"three"):
                client.sendall(word)
                assert b"<" + word + b">" == read_exactly(client, len(word) + 2)
        chunks = recorder.chunks()
        server.received.clear()
        recorder.begin()
        assert send_again(recorder.path, chunks, reply_seconds=0.4) == ""
        assert server.received == [b"one", b"two", b"three"]


def test_sending_again_reports_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    why = send_again(address, [chunk("request", b"one"), chunk("reply", b"+OK\r\n")], reply_seconds=0.4)
    assert why.startswith("0 of 1 requests were sent: ")
    assert "refused" in why


def test_sending_again_keeps_connections_apart() -> None:
    answers = {b"a": b"A", b"b": b"B"}
    chunks = [
        chunk("request", b"a", connection=4),
        chunk("request", b"b", connection=7),
        chunk("reply", b"B", connection=7),
        chunk("reply", b"A", connection=4),
    ]
    with RecordedServer(lambda piece: answers[piece]) as server, recorded(server) as recorder:
        send_again(recorder.path, chunks, reply_seconds=0.4)
        assert {piece.connection for piece in recorder.chunks()} == {1, 2}
        assert sorted(server.received) == [b"a", b"b"]


def test_sending_again_ends_early_when_the_guest_dies() -> None:
    chunks = [chunk("request", b"deadly"), chunk("reply", b"+OK\r\n"), chunk("request", b"never")]
    with RecordedServer(lambda _: None) as server, recorded(server) as recorder:
        started = time.monotonic()
        why = send_again(recorder.path, chunks, reply_seconds=DEADLINE_SECONDS)
        assert why == "it closed a connection, 1 of 2 requests had been sent"
        assert server.received == [b"deadly"]
        assert time.monotonic() - started < DEADLINE_SECONDS


def test_a_reply_that_does_not_come_does_not_stop_the_sending() -> None:
    chunks = [chunk("request", b"one"), chunk("reply", b"+OK\r\n"), chunk("request", b"two")]
    with RecordedServer(lambda _: b"") as server, recorded(server) as recorder:
        send_again(recorder.path, chunks, reply_seconds=0.2)
        assert b"onetwo" == b"".join(server.received)  # noqa: SIM300


@pytest.mark.parametrize(("answer", "unread"), [(b"", True), (b"+", False)], ids=["blocked", "answers otherwise"])
def test_requests_of_a_client_that_stays_blocked_do_not_count_as_read(answer: bytes, *, unread: bool) -> None:
    chunks = [
        chunk("request", b"blocks"),
        chunk("reply", b"+OK\r\n"),
        chunk("request", b"two"),
        chunk("reply", b"+OK\r\n"),
    ]
    with RecordedServer(lambda _: answer) as server, recorded(server) as recorder:
        why = send_again(recorder.path, chunks, reply_seconds=0.2)
    assert why == ("a client whose reply did not come sent more requests, and received nothing" if unread else "")


def test_sending_to_nobody_ends_without_an_error(tmp_path: Path) -> None:
    with socket.create_server((peer_user.HOST, 0)) as unused:
        port = unused.getsockname()[1]
    for nobody in (tmp_path / "absent", (peer_user.HOST, port)):
        send_again(nobody, [chunk("request", b"x")], reply_seconds=0.2)


@pytest.mark.parametrize(
    ("sent", "whole"),
    [
        ([], True),
        ([b"*"], False),
        ([b"*1\r", b"PI"], False),
        ([b"*1\r", b"\n"], True),
        ([b"PING\n"], True),
        ([b"x" * INLINE_BYTES], True),
    ],
)
def test_a_server_only_waits_for_the_rest_of_requests_that_are_not_whole(sent: list[bytes], *, whole: bool) -> None:
    """Regression: a replay of one incomplete byte waited 20 s for a reply that no server gives."""
    chunks = [chunk("request", one) for one in sent]
    assert has_whole_request(chunks) == whole
    others = [chunk("request", b"PI", connection=9), chunk("reply", b"+OK\r\n", connection=9)]
    assert has_whole_request([*chunks, *others]) == (whole and bool(sent))
