"""The client makes a cluster of native servers, checks it, and moves slots with their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.core.target_model import ORACLE
from suites._shared.checksums import crc16
from suites._shared.keyspace import server
from suites._shared.link import await_that

if TYPE_CHECKING:
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports
    from suites.programs.program import Programs

NODES, SLOTS, KEYS = 3, 16384, 200
MOVED = 1000


class MadeCluster:
    """Three native servers, of which the target's client makes a cluster."""

    def __init__(self, start_guest: StartGuest, ports: Ports) -> None:
        self.ports = [ports.free() for _ in range(NODES)]
        self.nodes = [start_guest(target=ORACLE, options=self._options(port)) for port in self.ports]

    @staticmethod
    def _options(port: int) -> list[str]:
        return ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]

    @property
    def addresses(self) -> list[str]:
        """The nodes' addresses, as the client takes them."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    def serves(self) -> bool:
        """Whether every node thinks that the cluster works."""
        states = []
        for node in self.nodes:
            with server.client(node) as client:
                states.append(bytes(client.command("CLUSTER", "INFO")))  # type: ignore[arg-type]
        return all(b"cluster_state:ok" in state for state in states)

    def counts(self) -> list[int]:
        """How many slots each node says that it serves itself."""
        return [len(own_slots(node)) for node in self.nodes]

    def fill(self) -> None:
        """Store keys, each on the node that serves it."""
        owner = {slot: node for node in self.nodes for slot in own_slots(node)}
        for number in range(KEYS):
            with server.client(owner[crc16(b"%d" % number) % SLOTS]) as client:
                assert client.command("SET", number, "v" * number) == b"OK"

    def found(self) -> dict[int, int]:
        """Key -> the length of its value, of all nodes."""
        lengths: dict[int, int] = {}
        for node in self.nodes:
            with server.client(node) as client:
                for name in client.command("KEYS", "*"):  # type: ignore[union-attr]
                    lengths[int(name)] = client.command("STRLEN", name)  # type: ignore[arg-type,assignment]
        return lengths


def own_slots(node: Guest) -> set[int]:
    """The slots that a node serves, by CLUSTER NODES."""
    with server.client(node) as client:
        lines = bytes(client.command("CLUSTER", "NODES")).decode().splitlines()  # type: ignore[arg-type]
    ranges = next(line.split()[8:] for line in lines if "myself" in line.split()[2])
    ends = [[int(part) for part in one.split("-")] for one in ranges if not one.startswith("[")]
    return {slot for one in ends for slot in range(one[0], one[-1] + 1)}


@pytest.fixture
def cluster(start_guest: StartGuest, ports: Ports, programs: Programs) -> MadeCluster:
    """A cluster that the target's client has made."""
    made = MadeCluster(start_guest, ports)
    result = programs.run("cli", "--cluster", "create", *made.addresses, "--cluster-yes")
    assert "[OK] All 16384 slots covered" in result.text, result.text[-500:]
    await_that(made.serves, made.nodes, "every node to serve")
    return made


def test_slots_are_given_out_and_moved_with_their_keys(cluster: MadeCluster, programs: Programs) -> None:
    counts = cluster.counts()
    assert sum(counts) == SLOTS
    assert max(counts) - min(counts) <= 1, counts
    cluster.fill()
    expected = {number: number for number in range(KEYS)}
    assert cluster.found() == expected
    with server.client(cluster.nodes[0]) as first, server.client(cluster.nodes[2]) as last:
        names = [bytes(one.command("CLUSTER", "MYID")).decode() for one in (last, first)]  # type: ignore[arg-type]
    words = ["--cluster-from", names[0], "--cluster-to", names[1], "--cluster-slots", str(MOVED), "--cluster-yes"]
    result = programs.run("cli", "--cluster", "reshard", cluster.addresses[0], *words)
    assert result.code == 0, result.text[-500:]
    assert cluster.counts() == [counts[0] + MOVED, counts[1], counts[2] - MOVED]
    assert cluster.found() == expected
    with server.client(cluster.nodes[0]) as client, pytest.raises(hiredis.ReplyError, match="MOVED"):
        client.command("GET", next(n for n in range(KEYS) if crc16(b"%d" % n) % SLOTS in own_slots(cluster.nodes[1])))
    for command in ("check", "info"):
        words = ["--cluster", command, cluster.addresses[1]]
        await_that(
            lambda words=words: programs.run("cli", *words, target=ORACLE).code == 0,  # type: ignore[misc]
            cluster.nodes,
            "the nodes to agree",
        )
        programs.same("cli", *words)
    programs.run("cli", "--cluster", "rebalance", cluster.addresses[0])
    await_that(lambda: max(cluster.counts()) - min(cluster.counts()) <= 400, cluster.nodes, "the slots to be even")
    assert cluster.found() == expected
    output = programs.run("cli", "--cluster", "call", cluster.addresses[0], "DBSIZE").text
    assert sum(int(line.split(": ")[1]) for line in output.splitlines() if line.startswith("127.")) == KEYS, output


def test_a_key_is_followed_to_its_node(cluster: MadeCluster, programs: Programs) -> None:
    for number in range(5):
        output = programs.run("cli", "-c", "-p", str(cluster.ports[0]), "SET", str(number), "followed").text
        assert output.strip().endswith("OK"), output
    assert cluster.found() == dict.fromkeys(range(5), len("followed"))
