"""A crowd of clients: each notices the first byte that is not due, a lost connection, and silence."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from harness.core.processes import scheduling
from harness.protocol.resp import Client, ServerGoneError
from harness.record.cell_events import ANSWERS_NOBODY
from suites.order import crowd
from suites.order.crowd import OK, Exchange, bulk, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.server_process import Guest

LONG_SECONDS = 60.0
"""For tests of a later pipeline, which must be sent however busy the machine is."""
CLIENTS = 3


class PipelineServer:
    """Replies to each pipeline of a client as a function says; nothing closes the connection."""

    deadline_seconds = LONG_SECONDS
    host_pid = os.getpid()
    spec = SimpleNamespace(patience_seconds=None)

    def __init__(
        self, reply: Callable[[int], list[bytes] | None], *, pongs: bool = True, crashes: bool = False
    ) -> None:
        """`reply`: the pieces of the reply to a client's Nth pipeline, sent one by one; None for silence. `pongs`:
        whether it answers PING meanwhile. `crashes`: whether it says that it has crashed.
        """
        self._crashes = crashes
        self._reply = reply
        self._pongs = pongs
        self.has_hung = False
        self.connections = 0
        self.access = self
        self._ends: list[socket.socket] = []

    def reports_crash(self) -> bool:
        return self._crashes

    def hung(self) -> None:
        self.has_hung = True

    def connection(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.settimeout(5)
        self._ends.append(ours)
        self.connections += 1
        threading.Thread(target=self._serve, args=(ours,), daemon=True).start()
        return theirs

    def client(self, *, deadline_seconds: float) -> Client:
        ours, theirs = socket.socketpair()
        theirs.settimeout(deadline_seconds)
        self._ends.append(ours)
        if self._pongs:
            ours.sendall(b"+PONG\r\n")
        return Client(theirs)

    def _serve(self, connected: socket.socket) -> None:
        with closing(connected):
            pipelines = 0
            try:
                while connected.recv(1 << 16):
                    pieces = self._reply(pipelines)
                    if pieces == []:
                        return
                    for piece in pieces or []:
                        connected.sendall(piece)
                    pipelines += 1
            except OSError:
                return


def load(number: int, round_of: int) -> Exchange:
    requests: list[tuple[Any, ...]] = [("SET", number, "x"), ("GET", number), ("STRLEN", round_of)]
    return Exchange(requests, [OK, bulk(b"x"), integer(1)])


def meet(server: PipelineServer, *, seconds: float = 0.1, anew: bool = False) -> None:
    crowd.crowd(cast("Guest", server), load, seconds=seconds, clients=CLIENTS, anew=anew)


def test_replies_that_are_due_are_accepted_in_any_pieces() -> None:
    whole = OK + bulk(b"x") + integer(1)
    server = PipelineServer(lambda _: [whole[at : at + 1] for at in range(len(whole))])
    meet(server)
    assert server.connections == CLIENTS


def test_each_pipeline_may_have_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    server = PipelineServer(lambda _: [OK, bulk(b"x"), integer(1)])
    # However busy the machine is, the time is over after some connections.
    monkeypatch.setattr(crowd, "time", SimpleNamespace(monotonic=lambda: server.connections))
    meet(server, seconds=2 * CLIENTS, anew=True)
    assert server.connections > CLIENTS


@pytest.mark.parametrize(("ran", "longer"), [(0.0, crowd.LONGER), (100.0, 1)])
def test_a_load_takes_longer_if_the_server_gets_little_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, ran: float, longer: int
) -> None:
    server = PipelineServer(lambda _: [OK, bulk(b"x"), integer(1)])
    monkeypatch.setattr(crowd, "time", SimpleNamespace(monotonic=lambda: server.connections))
    seconds = 10
    monkeypatch.setattr(scheduling, "ran_seconds", lambda _: ran * server.connections)
    meet(server, seconds=seconds, anew=True)
    assert server.connections // seconds == longer


def test_the_first_reply_that_is_not_due_is_named_with_its_request() -> None:
    wrong = [OK + bulk(b"y") + integer(1)]
    with pytest.raises(AssertionError, match=r"\('GET', \d\): got b'\$1.*y.*', expected b'\$1.*x"):
        meet(
            PipelineServer(lambda number: wrong if number == 1 else [OK, bulk(b"x"), integer(1)]), seconds=LONG_SECONDS
        )


def test_a_reply_to_nothing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="bytes that no request asked for: b':2"):
        meet(PipelineServer(lambda _: [OK + bulk(b"x") + integer(1) + integer(2)]))


def test_a_server_that_closes_its_connections_is_gone() -> None:
    with pytest.raises(ServerGoneError, match="while waiting for a reply"):
        meet(PipelineServer(lambda number: [] if number else [OK, bulk(b"x"), integer(1)]), seconds=LONG_SECONDS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "SILENT_SECONDS", 0.5)


def silent(*, pongs: bool = False) -> PipelineServer:
    """A server that answers each client once."""
    return PipelineServer(lambda number: None if number else [OK, bulk(b"x"), integer(1)], pongs=pongs)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_answers_nobody_hangs() -> None:
    server = silent()
    with pytest.raises(AssertionError, match=f"{ANSWERS_NOBODY}: 3 clients have no reply, and a new one has none"):
        meet(server, seconds=LONG_SECONDS)
    assert server.has_hung


@pytest.mark.usefixtures("impatient")
def test_a_server_that_answers_nobody_while_a_thread_is_held_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator lets a thread that pauses sleep for a millisecond, again and again."""
    sleeps = itertools.count(step=10 * crowd.HELD_SLEEPS)
    monkeypatch.setattr(scheduling, "sleeps", lambda _: {1: next(sleeps), 2: 0})
    server = silent()
    server.deadline_seconds = 2.0
    with pytest.raises(TimeoutError):
        meet(server, seconds=LONG_SECONDS)
    assert not server.has_hung


@pytest.mark.usefixtures("impatient")
def test_a_server_of_a_test_that_runs_again_is_given_up_if_its_threads_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may even answer another client."""
    sleeps = itertools.count(step=10 * crowd.HELD_SLEEPS)
    monkeypatch.setattr(scheduling, "sleeps", lambda _: {1: next(sleeps)})
    server = silent(pongs=True)
    server.spec = SimpleNamespace(patience_seconds=0.5)
    with pytest.raises(TimeoutError, match="threads of the server were held"):
        meet(server, seconds=LONG_SECONDS)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_answers_nobody_for_want_of_a_processor_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = itertools.count()
    monkeypatch.setattr(scheduling, "waited_seconds", lambda _: next(waits))
    server = silent()
    server.deadline_seconds = 2.0
    with pytest.raises(TimeoutError):
        meet(server, seconds=LONG_SECONDS)
    assert not server.has_hung


@pytest.mark.usefixtures("impatient")
def test_a_reply_that_never_comes_is_lost_if_the_server_answers_another_client() -> None:
    """A thread of the server may have seen an old queue: its job is gone. This is no matter of time."""
    with pytest.raises(AssertionError, match="answers a new client, and 3 others have no reply"):
        meet(PipelineServer(lambda number: None if number else [OK, bulk(b"x"), integer(1)]), seconds=LONG_SECONDS)


def test_a_server_that_reports_a_crash_is_gone_although_its_connections_are_open() -> None:
    silent = PipelineServer(lambda number: None if number else [OK, bulk(b"x"), integer(1)], crashes=True)
    with pytest.raises(ServerGoneError, match="the server reports a crash"):
        meet(silent, seconds=LONG_SECONDS)


@pytest.mark.usefixtures("impatient")
def test_a_server_without_a_processor_may_be_silent_up_to_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = itertools.count()
    monkeypatch.setattr(scheduling, "waited_seconds", lambda _: next(waits))
    silent = PipelineServer(lambda number: None if number else [OK, bulk(b"x"), integer(1)])
    silent.deadline_seconds = 2.0
    began = time.monotonic()
    with pytest.raises(AssertionError, match="others have no reply"):
        meet(silent, seconds=LONG_SECONDS)
    assert time.monotonic() - began > silent.deadline_seconds


def test_what_arrives_late_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be suspended for longer than the limit: only one look is lost."""
    monkeypatch.setattr(crowd, "SILENT_SECONDS", 3.0)

    def reply(_: int) -> list[bytes]:
        time.sleep(0.6)
        return [OK + bulk(b"x") + integer(1)]

    meet(PipelineServer(reply), seconds=2)
