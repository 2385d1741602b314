"""Starts cluster nodes on their own loopback ports, introduces them to each other, and assigns slots.

This module computes slots itself, according to the cluster specification: CRC16 of the key's tag, modulo 16384.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from harness.core.byte_diff import DifferenceError
from harness.core.finding import Difference
from harness.protocol.resp import info_fields
from suites._shared.checksums import crc16
from suites._shared.keyspace import server
from suites._shared.link import await_that, info, on_a_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

SLOTS = 16384


class Node:
    """A server in cluster mode."""

    def __init__(self, guest: Guest, port: int) -> None:
        self.guest = guest
        self.port = port
        self.identifier = str(_text(self.ask("CLUSTER", "MYID")))

    def ask(self, *words: Any) -> Any:
        """Send one command; an error reply raises."""
        with server.client(self.guest) as client:
            return client.command(*words)

    def state(self) -> dict[str, str]:
        """CLUSTER INFO."""
        return self.look()[0]

    def view(self) -> dict[str, list[str]]:
        """CLUSTER NODES: identifier -> the words of its line."""
        return self.look()[1]

    def milliseconds(self) -> int:
        """The time in milliseconds since 1970, according to the node."""
        seconds, microseconds = (int(word) for word in self.ask("TIME"))
        return seconds * 1000 + microseconds // 1000

    def keys(self) -> int:
        """The number of keys on the node."""
        return int(self.ask("DBSIZE"))

    def slots(self) -> tuple[int, int]:
        """The first and the last slot of the first range that the node serves."""
        first, _, last = self.view()[self.identifier][8].partition("-")
        return int(first), int(last or first)

    def end(self) -> None:
        """End the server before the test ends."""
        self.guest.__exit__()

    def look(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The state and the view, one directly after the other."""
        with server.client(self.guest) as client:
            state, view = (client.command("CLUSTER", what) for what in ("INFO", "NODES"))
        return info_fields(state), {line.split()[0]: line.split() for line in _text(view).splitlines()}


def _text(reply: Any) -> str:
    return bytes(reply).decode()


def start(
    start_guest: StartGuest,
    ports: Ports,
    *,
    target: str = "",
    files: Mapping[str, bytes] | None = None,
    more: Sequence[str] = (),
    port_option: str = "--port",
) -> Node:
    """Start a node with more options. It knows only the nodes in `files`, and listens as link.on_a_port specifies."""
    options = [*more, "--cluster-enabled", "yes", "--cluster-node-timeout", "15000"]
    # There is no second replica, so a transfer must not wait for one.
    options += ["--repl-diskless-sync-delay", "0"]
    # At this level the log contains every number that the node receives over the bus.
    options += ["--loglevel", "debug"]
    return Node(*on_a_port(start_guest, ports, target, *options, files=files, port_option=port_option))


def slot_of(key: bytes) -> int:
    """The slot of a key, computed from the text between its first pair of braces unless that is empty or missing."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return crc16(key[start + 1 : end] if -1 < start < end - 1 else key) % SLOTS


def key_in(first: int, last: int, prefix: str = "key") -> bytes:
    """A key whose slot is in a range."""
    return next(
        key for number in range(100000) if first <= slot_of(key := b"%s:%d" % (prefix.encode(), number)) <= last
    )


def divide(nodes: Sequence[Node]) -> None:
    """Give each node a share of the slots, and a configuration epoch that no other node has."""
    share = SLOTS // len(nodes)
    for number, node in enumerate(nodes):
        last = SLOTS if number == len(nodes) - 1 else (number + 1) * share
        slots = list(range(number * share, last))
        for at in range(0, len(slots), 4096):
            node.ask("CLUSTER", "ADDSLOTS", *slots[at : at + 4096])
        if not node.guest.lacks("command cluster|set-config-epoch"):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)


def join(nodes: Sequence[Node]) -> None:
    """Introduce all nodes to the first, divide the slots among them, and wait until all nodes agree."""
    divide(nodes)
    for node in nodes[1:]:
        nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    await_agreement(nodes)


def await_agreement(nodes: Sequence[Node]) -> None:
    """Wait until every node sees all nodes, all slots, and a healthy cluster. Raises TimeoutError."""

    def agreed() -> bool:
        views = set()
        for node in nodes:
            state, view = node.look()
            if state["cluster_state"] != "ok" or len(view) != len(nodes):
                return False
            if not all(_healthy(words) for words in view.values()):
                return False
            views.add(_slots_in_view(view))
        return len(views) == 1

    await_that(agreed, [node.guest for node in nodes], "the nodes to agree")


def move_key_by_key(slot: int, keys: Iterable[bytes], source: Node, goal: Node) -> None:
    """Move a slot with commands that every release has: MIGRATE for its keys, then CLUSTER SETSLOT for its owner."""
    goal.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.identifier)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", goal.identifier)
    for name in keys:
        assert source.ask("MIGRATE", "127.0.0.1", goal.port, name, 0, 60000) == b"OK"
    for node in (goal, source):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", goal.identifier)


def move_at_once(slot: int, source: Node, goal: Node) -> None:
    """Move a slot by an atomic migration (Valkey 9). Raises TimeoutError."""
    assert source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", goal.identifier) == b"OK"

    def state() -> str:
        (migration,) = source.ask("CLUSTER", "GETSLOTMIGRATIONS")
        reply = dict(zip(migration[::2], migration[1::2], strict=True)) if isinstance(migration, list) else migration
        return _text(reply[b"state"])

    await_that(lambda: state() in {"success", "failed"}, [source.guest, goal.guest], "a slot's migration to end")
    assert state() == "success", source.ask("CLUSTER", "GETSLOTMIGRATIONS")


def _healthy(words: list[str]) -> bool:
    return "connected" in words and "handshake" not in words[2] and "fail" not in words[2]


def _slots_in_view(view: Mapping[str, list[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The owners of the slots in a node's view, without migrations, which only the nodes involved know."""
    found = []
    for identifier, words in sorted(view.items()):
        found.append((identifier, tuple(word for word in words[8:] if not word.startswith("["))))
    return tuple(found)


def misread(field: str, sent: int, received: int, writer: Node, reader: Node) -> DifferenceError:
    """The error for a number in the header of a bus message (clusterMsg, cluster.h) that changed in transit."""
    difference = _misread(f"{field} of the message's header", "clusterBuildMessageHdr", sent, received, writer, reader)
    return DifferenceError(f"{field} {sent} arrived as {received}", difference)


def misread_update(sent: int, received: int, writer: Node, reader: Node) -> DifferenceError:
    """The error for an epoch that changed in an UPDATE (clusterMsgDataUpdate, cluster.h)."""
    difference = _misread("configEpoch of an UPDATE", "clusterSendUpdate", sent, received, writer, reader)
    return DifferenceError(f"configuration epoch {sent} of an UPDATE arrived as {received}", difference)


def misread_gossip(about: Node, reader: Node, port: int) -> DifferenceError:
    """The error for a node's port that changed in gossip between other nodes (clusterMsgDataGossip, cluster.h)."""
    difference = _misread(
        "port in a gossip section", "clusterSetGossipEntry", about.port, port, about, reader, length=2
    )
    return DifferenceError(f"port {about.port} arrived as {port} at a node that learned it from gossip", difference)


def misread_message(field: str, sent: int, received: int, writer: Node, reader: Node) -> DifferenceError:
    """The error for a module's message (clusterMsgModule, cluster.h) that changed in transit."""
    difference = _misread(f"{field} of a module's message", "clusterSendModule", sent, received, writer, reader)
    return DifferenceError(f"{field} {sent} of a module's message arrived as {received}", difference)


def _misread(
    record: str, function: str, sent: int, received: int, writer: Node, reader: Node, *, length: int = 8
) -> Difference:
    """The bytes of a number on the bus, the most significant first, which `function` writes."""
    return Difference(
        where="a message on the cluster's bus",
        record=record,
        writer=writer.guest.runner.target.name,
        reader=reader.guest.runner.target.name,
        expected=sent.to_bytes(length, "big").hex(),
        actual=received.to_bytes(length, "big").hex(),
        function=function,
    )


def fields(reply: Any) -> dict[str, Any]:
    """The fields of a reply in which names and values alternate."""
    return {_text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def port_in(words: Sequence[str]) -> int:
    """The port of a node in a line of CLUSTER NODES: `127.0.0.1:7000@17000,host`. Before 4.0 there is no bus port."""
    return int(words[1].partition(",")[0].partition("@")[0].rpartition(":")[2])


def link_state(node: Node) -> str:
    """The state of the node's replication link."""
    return info(node.guest, "replication").get("master_link_status", "")


def meet_in_a_row(everybody: Sequence[Node]) -> None:
    """Give each node a share of the slots, introduce each node only to the next one, and wait until all nodes agree."""
    divide(everybody)
    for node, following in itertools.pairwise(everybody):
        node.ask("CLUSTER", "MEET", "127.0.0.1", following.port)

    def known() -> bool:
        for viewer in everybody:
            view = viewer.view()
            for about in everybody:
                # During a handshake a node has a temporary identifier.
                if about.identifier in view and (port := port_in(view[about.identifier])) != about.port:
                    raise misread_gossip(about, viewer, port)
        return all(len(viewer.view()) == len(everybody) for viewer in everybody)

    await_that(known, [node.guest for node in everybody], "every node to know every other node")
    await_agreement(everybody)


def shared_fields(viewer: Node, about: Node) -> dict[str, str]:
    """The fields on which all nodes must agree, from a node's CLUSTER NODES line about another node or itself."""
    words = viewer.view()[about.identifier]
    flags = [flag for flag in words[2].split(",") if flag != "myself"]
    fields = {"address": words[1], "flags": ",".join(flags), "primary": words[3], "configuration epoch": words[6]}
    return fields | {"slots": " ".join(words[8:])}


def agree(everybody: Sequence[Node]) -> bool:
    """Whether each node reports about every other node what that node reports about itself."""
    return all(
        shared_fields(viewer, about) == shared_fields(about, about) for about in everybody for viewer in everybody
    )
