"""Every policy evicts keys in the order of the numbers that it compares, whatever their width."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.byte_diff import DifferenceError
from harness.core.finding import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

FAR = 1 << 43
"""A time in milliseconds since 1970 that no test reaches: in 2248."""
# The low words, signed or unsigned, are not in the order of the times. Half of the times differ only in the low word.
MOMENTS = [
    FAR + (high << 32) + low
    for high, low in (
        *((0, 0xFFFFFFF0), (1, 0x80000000), (2, 0x7FFFFFFF), (255, 0xFFFFFFFF), (256, 0x00000001)),
        *((257, low) for low in (0x00001000, 0x00002000, 0x7FFF0000, 0x80001000, 0x90000000)),
    )
]
FILLERS = 50
LATER = [FAR + (n << 32) + 0x40000000 for n in range(1000, 1000 + FILLERS)]
# Seconds: around the limits of 8, 16 and 23 bits. The clock itself wraps after 24.
IDLE_TIMES = [16_000_000, 1 << 23, (1 << 23) - 60, 1 << 22, (1 << 22) - 60, 66_000, 60_000, 315, 200, 100]
FREQUENCIES = [0, 1, 4, 5, 6, 17, 127, 128, 253, 254]
PREFIXES = itertools.count()
MARK = "evicted so far"
# A sample contains all keys of a test, frequencies do not age, and eviction has no time limit (since 6.2).
SETTINGS = {"maxmemory-samples": 64, "lfu-decay-time": 0, "maxmemory-eviction-tenacity": 100}
DEFAULTS: dict[str, Any] = {"maxmemory-samples": 5, "lfu-decay-time": 1, "maxmemory-eviction-tenacity": 10}
DEFAULTS |= {"maxmemory": 0, "maxmemory-policy": "noeviction", "notify-keyspace-events": ""}


@pytest.fixture(autouse=True)
def _settings(both: PairedServers) -> Iterator[None]:
    both.guest.pipeline([["CONFIG", "SET", name, value] for name, value in SETTINGS.items()])
    yield
    both.guest.pipeline([["CONFIG", "SET", name, value] for name, value in DEFAULTS.items()])


def evicted(both: PairedServers, guest: Guest) -> list[bytes]:
    """Names of keys, in the order in which the guest evicts them when it may use no memory."""
    with guest.client() as listener:
        listener.command("PSUBSCRIBE", "__keyevent@*__:evicted", MARK)
        listener.receive()
        requests: list[list[Any]] = [
            ["CONFIG", "SET", "notify-keyspace-events", "Ee"],
            ["CONFIG", "SET", "maxmemory", 1],
            ["CONFIG", "SET", "maxmemory", 0],
            ["PUBLISH", MARK, ""],
        ]
        assert both.guest.pipeline(requests) == [b"OK", b"OK", b"OK", 1]
        names: list[bytes] = []
        while True:
            message = listener.receive()
            assert isinstance(message, list)
            _, pattern, _, name = message
            if pattern == MARK.encode():
                return names
            assert isinstance(name, bytes)
            names.append(name)


Making = Callable[[str, int], list[list[Any]]]
"""The requests that make a key with a number: a time of expiry, an idle time, or a frequency."""


def expect_order(
    both: PairedServers, guest: Guest, policy: str, numbers: list[int], later: list[int], making: Making
) -> None:
    """Require that a policy evicts keys with these numbers in this order. The order of creation is random. Keys with
    the `later` numbers must follow: they keep the table full, because a sample of a sparse table may be incomplete.
    """
    both.guest.command("CONFIG", "SET", "maxmemory-policy", policy)
    # The server remembers candidates by name: a key with the name of an earlier candidate would inherit its number.
    prefix = next(PREFIXES)
    keys = [(f"{prefix}:{number}", number) for number in numbers]
    every = keys + [(f"{prefix}:later:{n}", number) for n, number in enumerate(later)]
    both.guest.pipeline([request for key in both.random.sample(every, len(every)) for request in making(*key)])
    names = evicted(both, guest)
    found, due = names[: len(keys)], [name.encode() for name, _ in keys]
    if found != due or len(names) != len(every):
        message = f"{policy} evicts {b' '.join(found).decode()}; due is {b' '.join(due).decode()}"
        difference = Difference(
            where="notifications",
            record=f"order in which {policy} evicts keys",
            writer=both.target,
            reader="a model",
            function="evictionPoolPopulate",
        )
        raise DifferenceError(message, difference)


def test_what_expires_first_is_evicted_first(both: PairedServers, guest: Guest) -> None:
    both.guest.command("SET", "stays", 1)
    for _ in range(both.effort):
        expect_order(
            both, guest, "volatile-ttl", MOMENTS, LATER, lambda name, n: [["SET", name, 1], ["PEXPIREAT", name, n]]
        )
    assert both.guest.command("DBSIZE") == 1


def test_what_expires_first_is_evicted_first_of_all_databases(both: PairedServers, guest: Guest) -> None:
    def making(name: str, moment: int) -> list[list[Any]]:
        return [["SELECT", moment % 2 * 9], ["SET", name, 1], ["PEXPIREAT", name, moment]]

    expect_order(both, guest, "volatile-ttl", MOMENTS, LATER, making)


def restoring(both: PairedServers, option: str, *, lasting: bool) -> Making:
    """Makes keys with RESTORE and an option."""
    # The value is text: without a memory limit, keys with the same small integer share an object, its time and
    # frequency.
    both.guest.command("SET", "source", "text")
    payload = both.guest.command("DUMP", "source")
    both.guest.command("DEL", "source")
    return lambda name, number: [["RESTORE", name, 0 if lasting else FAR, payload, option, number]]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
def test_what_was_idle_longest_is_evicted_first(both: PairedServers, guest: Guest, policy: str, cell: CellSpec) -> None:
    # This shows only for some values of the clock, so a server cannot be asked.
    if cell.version < (7,):
        pytest.skip("before 7.0 a key that was idle when the clock last wrapped counts as idle for half of that time")
    making = restoring(both, "IDLETIME", lasting=policy == "allkeys-lru")
    expect_order(both, guest, policy, IDLE_TIMES, [0] * FILLERS, making)


@pytest.mark.parametrize("policy", ["allkeys-lfu", "volatile-lfu"])
def test_what_was_used_least_is_evicted_first(both: PairedServers, guest: Guest, policy: str) -> None:
    both.guest.command("CONFIG", "SET", "maxmemory-policy", policy)
    making = restoring(both, "FREQ", lasting=policy == "allkeys-lfu")
    expect_order(both, guest, policy, FREQUENCIES, [255] * FILLERS, making)


def test_without_a_policy_nothing_is_evicted_and_writing_is_refused(both: PairedServers) -> None:
    requests = [["SET", "k", 1], ["CONFIG", "SET", "maxmemory", 1], ["SET", "l", 1], ["GET", "k"], ["DEL", "k"]]
    stored, _, refused, value, deleted = both.guest.pipeline(requests)
    assert (stored, value, deleted) == (b"OK", b"1", 1)
    assert str(refused).startswith("OOM command not allowed"), repr(refused)
