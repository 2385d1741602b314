"""The client makes a cluster of native servers, checks it, and moves slots with their keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.core.target_model import ORACLE
from suites._shared import cluster_nodes
from suites._shared.cluster_nodes import SLOTS, slot_of
from suites._shared.formats import rdb
from suites._shared.keyspace import server
from suites._shared.link import await_that, on_a_port

if TYPE_CHECKING:
    from harness.run.extra_servers import StartGuest
    from suites._shared.cluster_nodes import Node
    from suites._shared.ports import Ports
    from suites._shared.programs import Programs

NODES, KEYS = 3, 200
MOVED = 300


class MadeCluster:
    """Three native servers from which the target's client makes a cluster."""

    def __init__(self, start_guest: StartGuest, ports: Ports) -> None:
        self.nodes = [cluster_nodes.start(start_guest, ports, target=ORACLE) for _ in range(NODES)]
        self.guests = [node.guest for node in self.nodes]

    @property
    def addresses(self) -> list[str]:
        """The nodes' addresses, in the form that the client expects."""
        return [f"127.0.0.1:{node.port}" for node in self.nodes]

    def serves(self) -> bool:
        """Whether every node reports that the cluster works."""
        return all(node.state()["cluster_state"] == "ok" for node in self.nodes)

    def counts(self) -> list[int]:
        """The number of slots that each node reports for itself."""
        return [len(own_slots(node)) for node in self.nodes]

    def fill(self) -> None:
        """Store keys, each on the node that serves it."""
        owner = {slot: node for node in self.nodes for slot in own_slots(node)}
        for number in range(KEYS):
            assert owner[slot_of(b"%d" % number)].ask("SET", number, "v" * number) == b"OK"

    def found(self) -> dict[int, int]:
        """Key -> the length of its value, from all nodes."""
        return {int(name): node.ask("STRLEN", name) for node in self.nodes for name in node.ask("KEYS", "*")}


def own_slots(node: Node) -> set[int]:
    """The slots that a node serves, according to CLUSTER NODES."""
    ranges = node.view()[node.identifier][8:]
    ends = [[int(part) for part in one.split("-")] for one in ranges if not one.startswith("[")]
    return {slot for one in ends for slot in range(one[0], one[-1] + 1)}


@pytest.fixture
def cluster(start_guest: StartGuest, ports: Ports, programs: Programs) -> MadeCluster:
    """A cluster that the target's client has made."""
    made = MadeCluster(start_guest, ports)
    result = programs.run("cli", "--cluster", "create", *made.addresses, "--cluster-yes")
    assert "[OK] All 16384 slots covered" in result.text, result.text[-500:]
    await_that(made.serves, made.guests, "every node to serve")
    return made


def test_slots_are_given_out_and_moved_with_their_keys(cluster: MadeCluster, programs: Programs) -> None:
    counts = cluster.counts()
    assert sum(counts) == SLOTS
    assert max(counts) - min(counts) <= 1, counts
    cluster.fill()
    expected = {number: number for number in range(KEYS)}
    assert cluster.found() == expected
    first, second, last = cluster.nodes
    words = ["--cluster-from", last.identifier, "--cluster-to", first.identifier]
    words += ["--cluster-slots", str(MOVED), "--cluster-yes"]
    result = programs.run("cli", "--cluster", "reshard", cluster.addresses[0], *words)
    assert result.code == 0, result.text[-500:]
    assert cluster.counts() == [counts[0] + MOVED, counts[1], counts[2] - MOVED]
    assert cluster.found() == expected
    with pytest.raises(hiredis.ReplyError, match="MOVED"):
        first.ask("GET", next(n for n in range(KEYS) if slot_of(b"%d" % n) in own_slots(second)))
    for command in ("check", "info"):
        words = ["--cluster", command, cluster.addresses[1]]
        await_that(
            lambda words=words: programs.run("cli", *words, target=ORACLE).code == 0,  # type: ignore[misc]
            cluster.guests,
            "the nodes to agree",
        )
        programs.same("cli", *words)
    programs.run("cli", "--cluster", "rebalance", cluster.addresses[0])
    await_that(lambda: max(cluster.counts()) - min(cluster.counts()) <= 400, cluster.guests, "the slots to be even")
    assert cluster.found() == expected
    output = programs.run("cli", "--cluster", "call", cluster.addresses[0], "DBSIZE").text
    assert sum(int(line.split(": ")[1]) for line in output.splitlines() if line.startswith("127.")) == KEYS, output


def test_a_key_is_followed_to_its_node(cluster: MadeCluster, programs: Programs) -> None:
    for number in range(5):
        output = programs.run("cli", "-c", "-p", str(cluster.nodes[0].port), "SET", str(number), "followed").text
        assert output.strip().endswith("OK"), output
    assert cluster.found() == dict.fromkeys(range(5), len("followed"))


def test_what_is_broken_is_fixed(cluster: MadeCluster, programs: Programs) -> None:
    cluster.fill()
    first, second, last = cluster.nodes
    address = cluster.addresses[0]

    def fix() -> None:
        assert programs.run("cli", "--cluster", "check", address).code == 1
        # The exit status of `fix` reports the problems that it found, not those that remain.
        programs.run("cli", "--cluster", "fix", address, sent=b"yes\n" * 3)
        await_that(
            lambda: programs.run("cli", "--cluster", "check", address).code == 0, cluster.guests, "all nodes to agree"
        )
        assert sum(cluster.counts()) == SLOTS
        assert cluster.found() == {number: number for number in range(KEYS)}

    # A slot whose migration has begun but not ended.
    slot = next(slot_of(b"%d" % number) for number in range(KEYS) if slot_of(b"%d" % number) in own_slots(second))
    first.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", second.identifier)
    second.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", first.identifier)
    fix()
    # Slots that no node serves, some of them with keys.
    lost = sorted(own_slots(last))[:100]
    for node in cluster.nodes:
        node.ask("CLUSTER", "DELSLOTS", *lost)
    fix()


def test_keys_of_a_server_are_imported(
    cluster: MadeCluster, programs: Programs, start_guest: StartGuest, ports: Ports
) -> None:
    alone, port = on_a_port(start_guest, ports, ORACLE)
    with server.client(alone) as client:
        client.pipeline([("SET", number, "v" * number) for number in range(KEYS)])
        words = ["--cluster-from", f"127.0.0.1:{port}", "--cluster-copy"]
        result = programs.run("cli", "--cluster", "import", cluster.addresses[0], *words)
        assert result.code == 0, result.text[-500:]
        assert client.command("DBSIZE") == KEYS
    assert cluster.found() == {number: number for number in range(KEYS)}


def test_nodes_come_and_go_and_are_saved(
    cluster: MadeCluster, programs: Programs, start_guest: StartGuest, ports: Ports
) -> None:
    cluster.fill()
    address = cluster.addresses[0]
    newcomer = cluster_nodes.start(start_guest, ports, target=ORACLE)
    result = programs.run("cli", "--cluster", "add-node", f"127.0.0.1:{newcomer.port}", address)
    assert result.code == 0, result.text[-500:]
    every = [*cluster.nodes, newcomer]
    guests = [node.guest for node in every]
    await_that(lambda: all(len(node.view()) == len(every) for node in every), guests, "the newcomer to be known")
    result = programs.run("cli", "--cluster", "set-timeout", address, "7001")
    assert result.code == 0, result.text[-500:]
    assert [node.ask("CONFIG", "GET", "cluster-node-timeout")[1] for node in every] == [b"7001"] * len(every)
    result = programs.run("cli", "--cluster", "del-node", address, newcomer.identifier)
    assert result.code == 0, result.text[-500:]
    await_that(lambda: all(len(node.view()) == NODES for node in cluster.nodes), guests, "the newcomer to be forgotten")
    folder = programs.fresh("saved", {"before": b""})
    result = programs.run("cli", "--cluster", "backup", address, str(folder))
    assert result.code == 0, result.text[-500:]
    entries = [rdb.read(file.read_bytes()).entries for file in folder.glob("*.rdb")]
    assert len(entries) == NODES
    assert {int(key.name) for found in entries for key in found} == set(range(KEYS))
    listed = {one["name"]: one for one in json.loads((folder / "nodes.json").read_text("utf-8"))}
    for node in cluster.nodes:
        slots = {slot for first, last in listed[node.identifier]["slots"] for slot in range(first, last + 1)}
        assert slots == own_slots(node)


def test_replicas_are_counted(cluster: MadeCluster, programs: Programs, start_guest: StartGuest, ports: Ports) -> None:
    primary = cluster.nodes[0]
    for number in (1, 2):
        newcomer = cluster_nodes.start(start_guest, ports, target=ORACLE)
        cluster.guests.append(newcomer.guest)
        words = ["--cluster-slave", "--cluster-master-id", primary.identifier]
        address = f"127.0.0.1:{newcomer.port}"
        result = programs.run("cli", "--cluster", "add-node", address, cluster.addresses[0], *words)
        assert result.code == 0, result.text[-500:]
        await_that(
            lambda known=number: all(  # type: ignore[misc]
                sum(words[3] == primary.identifier for words in node.view().values()) == known for node in cluster.nodes
            ),
            cluster.guests,
            "the replica to be known",
        )
        output = programs.same("cli", "--cluster", "check", cluster.addresses[0])
        assert b"   %d additional replica(s)\n" % number in output, output[-1000:]
