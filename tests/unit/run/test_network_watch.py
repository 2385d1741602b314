"""A network answers if the guest refuses a connection; one that only accepts it is silent."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.run.vm import network_watch
from harness.run.vm.network_watch import NetworkWatch, answers
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_watch, "SILENT_SECONDS", 0.6)
    monkeypatch.setattr(network_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(network_watch, "POLL_SECONDS", 0.1)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that accepts connections but sends nothing, as the emulator does when its guest is unreachable."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def never() -> bool:
    return False


def test_a_network_that_accepts_but_sends_nothing_is_silent(listener: socket.socket) -> None:
    began = time.monotonic()
    assert not answers(listener.getsockname(), os.getpid(), given_up=never)
    assert time.monotonic() - began >= 0.6


def test_several_attempts_belong_to_one_silence(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_watch, "ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(network_watch, "SILENT_SECONDS", 2.0)
    assert not answers(listener.getsockname(), os.getpid(), given_up=never)
    listener.setblocking(False)
    attempts = 0
    try:
        while True:
            listener.accept()[0].close()
            attempts += 1
    except BlockingIOError:
        assert attempts >= 3


def test_a_connection_that_the_guest_ends_is_an_answer(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_watch, "SILENT_SECONDS", 30.0)

    def end_late() -> None:
        connection, _ = listener.accept()
        time.sleep(0.3)
        connection.close()

    guest = threading.Thread(target=end_late)
    guest.start()
    assert answers(listener.getsockname(), os.getpid(), given_up=never)
    guest.join()


def test_an_ended_emulator_has_no_silent_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ended:
        address = ended.getsockname()
    assert answers(address, os.getpid(), given_up=never)


def test_an_abandoned_wait_is_no_silence(listener: socket.socket) -> None:
    assert answers(listener.getsockname(), os.getpid(), given_up=lambda: True)


def test_time_in_which_the_emulator_waits_for_a_processor_does_not_count(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    # The emulator waits three quarters of the time.
    slow = "harness.run.vm.network_watch.scheduling.usable_clock"
    monkeypatch.setattr(slow, lambda _pid: (time.monotonic() - began) / 4)
    assert not answers(listener.getsockname(), os.getpid(), given_up=never)
    assert time.monotonic() - began >= 2.4


def test_a_watch_reports_a_silence_once_and_ends(listener: socket.socket) -> None:
    reports = []
    watch = NetworkWatch(listener.getsockname(), os.getpid(), lambda: reports.append(time.monotonic()))
    assert eventually(lambda: bool(reports))
    # Wait long enough for another silence.
    time.sleep(1)
    watch.close()
    assert len(reports) == 1


def test_a_watch_that_is_closed_reports_nothing(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_watch, "SILENT_SECONDS", 1.5)
    reports = []
    watch = NetworkWatch(listener.getsockname(), os.getpid(), lambda: reports.append(time.monotonic()))
    time.sleep(0.2)
    watch.close()
    time.sleep(2)
    assert reports == []
