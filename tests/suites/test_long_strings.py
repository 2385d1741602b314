"""Servers of tests with strings of half a GiB are empty again after a test, however it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from harness.protocol.resp import Client, ServerGoneError
from suites._shared import long_strings

if TYPE_CHECKING:
    from harness.protocol.resp import Reply

FLUSH = Client.pack([("FLUSHALL",)])
CELL: Any = SimpleNamespace(runner=SimpleNamespace(target=SimpleNamespace(name="armv5")), seed=1, tier="full")


class EmptiedServer:
    """A server that replies OK to what it keeps in `received`, until it ends."""

    deadline_seconds = 1.0

    def __init__(self, *, lasts: int = 9) -> None:
        self.received: list[bytes] = []
        self._lasts = lasts

    def client(self, *, deadline_seconds: float) -> Self:
        assert deadline_seconds > self.deadline_seconds
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The connection ends."""

    def exchange(self, packed: bytes, count: int) -> list[Reply]:
        if len(self.received) == self._lasts:
            raise ServerGoneError("it has ended")
        self.received.append(packed)
        return [b"OK"] * count


def fail_with(guest: Any, oracle: Any) -> None:
    with pytest.raises(AssertionError, match="the test failed"), long_strings.patient(guest, oracle, CELL):
        raise AssertionError("the test failed")


def test_servers_are_emptied_after_a_test_that_fails() -> None:
    guest, oracle = EmptiedServer(), EmptiedServer()
    fail_with(guest, oracle)
    assert guest.received == oracle.received == [FLUSH, FLUSH]


def test_a_test_whose_server_ends_fails_for_its_own_reason() -> None:
    fail_with(EmptiedServer(lasts=1), EmptiedServer())
