"""If a system call fails during a synchronisation, the servers lose only the current transfer, and try again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared import link
from suites._shared.keyspace import server
from suites.injection import faults, leaks, small_keys
from suites.injection.faults import Call, Faults

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

OPTIONS = [*server.OPTIONS, "--hz", "100", "--repl-diskless-sync-delay", "0"]
BY_FILE = [*OPTIONS, "--repl-diskless-sync", "no"]
BY_PIPE = [*OPTIONS, "--repl-diskless-sync", "yes"]
OF_A_FILE = [Call.FORK, Call.OPEN, Call.FWRITE, Call.FFLUSH, Call.FSYNC, Call.RENAME, Call.OPEN_TO_READ, Call.READ]
OF_A_PIPE = [Call.PIPE, Call.FORK, Call.WRITE_PIPE, Call.READ_PIPE]


def ask(guest: Guest, *words: Any) -> Any:
    with server.client(guest) as client:
        return client.command(*words)


def synchronise_again(primary: Guest, replica: Guest, port: int) -> None:
    """Make the replica request a full synchronisation."""
    ask(replica, "REPLICAOF", "NO", "ONE")
    ask(primary, "DEBUG", "CHANGE-REPL-ID")
    ask(replica, "REPLICAOF", "127.0.0.1", port)


def places(call: Call, count: int) -> list[int]:
    """The numbers of the calls to fail: some of those on a file, or the first on a pipe, whose number varies between
    runs.
    """
    if call in {Call.READ_PIPE, Call.WRITE_PIPE}:
        return list(range(1, min(count, 3) + 1))
    return sorted({1 + at * (count - 1) // 3 for at in range(4)})


def fail_each(armed: Guest, calls: list[Call], primary: Guest, replica: Guest, port: int) -> None:
    """Make calls of a server fail, each in its own synchronisation, after which both servers must agree."""
    orders, opened = Faults(armed), leaks.descriptors(armed)
    ask(replica, "REPLICAOF", "127.0.0.1", port)
    link.await_in_step(replica, primary)
    before = small_keys.digest(primary)
    orders.disarm()
    synchronise_again(primary, replica, port)
    link.await_in_step(replica, primary)
    counts = {call: orders.calls(call) for call in calls}
    assert all(counts.values()), counts
    for call, count in counts.items():
        for number in places(call, count):
            ask(replica, "REPLICAOF", "NO", "ONE")
            orders.arm(call, number)
            synchronise_again(primary, replica, port)
            link.await_that(
                lambda: orders.failed() == 1, [primary, replica], f"{call.name} {number} of {count} to fail"
            )
            orders.disarm()
            link.await_in_step(replica, primary)
            assert small_keys.digest(primary) == before, f"{call.name} {number}"
            assert small_keys.digest(replica) == before, f"{call.name} {number}"
    leaks.await_closed(armed, opened)


@pytest.mark.parametrize(
    ("options", "calls"), [(BY_FILE, OF_A_FILE), (BY_PIPE, OF_A_PIPE)], ids=["by a file", "by a pipe"]
)
def test_a_primary_that_cannot_send_its_data_set_sends_it_later(
    options: list[str],
    calls: list[Call],
    companion: str,
    cell: CellSpec,
    start_guest: StartGuest,
    ports: Ports,
) -> None:
    port = ports.free()
    listening = ["--port", str(port), "--bind", "127.0.0.1"]
    primary = start_guest(preload=cell.preload, options=[*listening, *options], files=faults.FILES)
    replica = start_guest(target=companion, options=OPTIONS)
    small_keys.write(primary)
    fail_each(primary, calls, primary, replica, port)


REPLICAS = {
    "by a file": (["--repl-diskless-sync", "no"], [Call.OPEN, Call.WRITE, Call.FSYNC, Call.RENAME]),
    "by a stream": (["--repl-diskless-sync", "yes"], [Call.OPEN, Call.WRITE, Call.FTRUNCATE, Call.FSYNC]),
}


@pytest.mark.parametrize("way", REPLICAS)
def test_a_replica_that_cannot_keep_the_data_set_asks_again(
    way: str, companion: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    sending, calls = REPLICAS[way]
    primary, port = link.on_a_port(start_guest, ports, companion, *OPTIONS, *sending)
    replica = start_guest(preload=cell.preload, options=OPTIONS, files=faults.FILES)
    small_keys.write(primary)
    fail_each(replica, calls, primary, replica, port)


def test_a_replica_that_cannot_read_what_it_received_ends(
    companion: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    """The replica has already dropped its own data set."""
    primary, port = link.on_a_port(start_guest, ports, companion, *OPTIONS)
    replica = start_guest(preload=cell.preload, options=OPTIONS, files=faults.FILES)
    small_keys.write(primary)
    before = small_keys.digest(primary)
    Faults(replica).arm(Call.FREAD, 20)
    ask(replica, "REPLICAOF", "127.0.0.1", port)
    status, log = replica.await_end(), replica.evidence.log_tail(100)
    content = replica.read("dump.rdb")
    start_guest.dismiss()
    assert "Internal error in RDB reading" in log
    # The file is complete: only reading it failed.
    again = start_guest(preload=cell.preload, options=OPTIONS, files={**faults.FILES, "dump.rdb": content})
    assert small_keys.digest(again) == before
    assert status == 1
