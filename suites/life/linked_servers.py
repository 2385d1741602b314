"""A primary and a replica on two machines, with a replication offset that passes 2^32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suites._shared import link
from suites._shared.formats import places
from suites._shared.formats.handmade import of_primary
from suites._shared.keyspace import server

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

# Without pings, only the writes of a test increase the offset.
OPTIONS = [*server.OPTIONS, "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "4mb"]
OPTIONS += ["--repl-ping-replica-period", "3600", "--repl-timeout", "3600"]
ROLES = ["primary", "replica"]
"""The role of the cell's own target; the companion has the other role."""
OFFSET = (1 << 32) - 500
"""A replication offset that exceeds 32 bits after the first writes."""


class LinkedServers:
    """A primary beyond OFFSET with the data set, its replica, and the port of each."""

    def __init__(
        self, start_guest: StartGuest, ports: Ports, cell: CellSpec, companion: str, role: str, *options: str
    ) -> None:
        targets = ("", companion) if role == "primary" else (companion, "")
        everything = [*OPTIONS, *options]
        files = {"dump.rdb": of_primary(OFFSET)}
        self.primary, self.port = link.on_a_port(start_guest, ports, targets[0], *everything, files=files)
        self.replica, self.replica_port = link.on_a_port(start_guest, ports, targets[1], *everything)
        self.cell = cell
        follow(self.replica, self.port)
        link.await_in_step(self.replica, self.primary)
        # A replica is online after its first acknowledgement. It sends one each second.
        link.await_that(self._is_online, [self.primary, self.replica], "the replica to be online")

    def _is_online(self) -> bool:
        return ",state=online," in link.info(self.primary, "replication").get("slave0", "")

    def ask(self, *words: Any) -> Any:
        """The primary's reply."""
        with server.client(self.primary) as client:
            return client.command(*words)

    def assert_same(self, family: str) -> None:
        """Assert that both have the data set, at the same offset beyond 2^32 of the same stream."""
        expected = server.expected(self.cell, family)
        places.check_copies(expected, server.snapshot(self.replica), self.primary, self.replica)
        both = [link.info(one, "replication") for one in (self.primary, self.replica)]
        for name in ("master_replid", "master_repl_offset"):
            assert both[0][name] == both[1][name], f"{name}: {both[0][name]} and {both[1][name]}"
        assert int(both[0]["master_repl_offset"]) > 1 << 32


def follow(replica: Guest, port: int) -> None:
    """Make a server replicate the one on a port."""
    with server.client(replica) as client:
        assert client.command("REPLICAOF", "127.0.0.1", port) == b"OK"


def failover_state(guest: Guest) -> str:
    """The state of a primary's failover."""
    return link.info(guest, "replication").get("master_failover_state", "no-failover")


def await_swapped(primary: Guest, replica: Guest) -> None:
    """Wait until a former primary follows its former replica."""

    def swapped() -> bool:
        roles = [link.info(one, "replication") for one in (primary, replica)]
        return roles[0]["role"] == "slave" and roles[1]["role"] == "master" and roles[0]["master_link_status"] == "up"

    link.await_that(swapped, [primary, replica], "the failover")
