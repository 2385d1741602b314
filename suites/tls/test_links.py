"""Replicas and cluster nodes of different byte order and width communicate over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites._shared import cluster_nodes as nodes
from suites._shared import link
from suites._shared.formats import places
from suites._shared.keyspace import dataset, server
from suites.tls import certificates, tls_server
from suites.tls.certificates import ADDRESS

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.cluster_nodes import Node
    from suites._shared.ports import Ports

ROLES = ["primary", "replica"]
"""The role of the cell's own target; the companion has the other role."""
TRANSFERS = {
    "by a file": ["--repl-diskless-sync", "no"],
    "by a stream": ["--repl-diskless-sync", "yes", "--repl-diskless-load", "swapdb"],
}
OPTIONS = [*server.OPTIONS, "--repl-diskless-sync-delay", "0", "--tls-replication", "yes"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_a_replica_follows_over_tls(
    companion: str, transfer: str, role: str, cell: CellSpec, family: str, start_guest: StartGuest, ports: Ports
) -> None:
    """The primary has no other port, so the data must have crossed TLS."""
    targets = ("", companion) if role == "primary" else (companion, "")
    more = [*OPTIONS, *TRANSFERS[transfer]]
    primary, port = tls_server.start(start_guest, ports, *more, target=targets[0])
    replica, _ = tls_server.start(start_guest, ports, *more, target=targets[1])
    server.write(primary, family)
    with server.client(replica) as client:
        client.command("SLAVEOF", ADDRESS, port)
    link.await_in_step(replica, primary)
    expected = server.expected(cell, family)
    places.check_copies(expected, server.snapshot(replica), primary, replica)
    link.cut(replica)
    large = dataset.noise(100_001)
    with server.client(primary) as client:
        client.pipeline([("SETBIT", "bits", 77, 1), ("SET", "large", large), ("INCRBYFLOAT", "float", "0.1")])
    link.await_in_step(replica, primary)
    with server.client(replica) as client:
        assert client.pipeline([("GETBIT", "bits", 77), ("GET", "large")]) == [1, large]


def test_a_plain_replica_does_not_follow(start_guest: StartGuest, ports: Ports) -> None:
    """The test proves that the replicas of the other test used TLS."""
    primary, port = tls_server.start(start_guest, ports)
    replica, _ = tls_server.start(start_guest, ports, "--tls-replication", "no")
    with server.client(replica) as client:
        client.command("SLAVEOF", ADDRESS, port)
    link.await_that(
        lambda: b"Error accepting a client connection" in primary.evidence.log.read_bytes(),
        [primary, replica],
        "the primary to refuse a plain replica",
    )
    assert link.info(replica, "replication")["master_link_status"] == "down"


def test_a_cluster_speaks_tls(companion: str, start_guest: StartGuest, ports: Ports) -> None:
    pair = [_node(start_guest, ports, target) for target in ("", companion)]
    nodes.join(pair)
    for source, goal in (pair, pair[::-1]):
        slot = source.slots()[0]
        tag = nodes.key_in(slot, slot).decode()
        values = {f"{{{tag}}}:{length}".encode(): dataset.noise(length) for length in (0, 1, 44, 16384, 70_000)}
        for name, content in values.items():
            source.ask("SET", name, content)
        # Keys also move over TLS, because the nodes have no other port.
        nodes.move_key_by_key(slot, values, source, goal)
        nodes.await_agreement(pair)
        assert {name: goal.ask("GET", name) for name in values} == values


def _node(start_guest: StartGuest, ports: Ports, target: str) -> Node:
    more = tls_server.options(0)[2:]
    return nodes.start(
        start_guest,
        ports,
        target=target,
        port_option="--tls-port",
        more=[*more, "--tls-cluster", "yes"],
        files=certificates.files(),
    )
