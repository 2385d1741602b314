"""A cluster node that cannot write nodes.conf replies with an error if a command requests the write. Otherwise it
exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hiredis
import pytest

from suites._shared.keyspace import server
from suites.injection import faults, leaks
from suites.injection.faults import Call, Faults

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports

CALLS = [Call.OPEN, Call.WRITE, Call.FSYNC]


@pytest.fixture
def node(cell: CellSpec, start_guest: StartGuest, ports: Ports) -> Guest:
    """A single node."""
    options = ["--port", str(ports.free()), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
    return start_guest(preload=cell.preload, options=options, files=faults.FILES)


def test_a_node_that_is_asked_to_write_says_that_it_cannot(node: Guest) -> None:
    orders = Faults(node)
    with server.client(node) as client:
        client.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        opened = leaks.descriptors(node)
        for call in CALLS:
            orders.arm(call)
            with pytest.raises(hiredis.ReplyError):
                client.command("CLUSTER", "SAVECONFIG")
            assert orders.failed() == 1
            orders.disarm()
            assert client.command("CLUSTER", "SAVECONFIG") == b"OK"
    assert b" 0-16383\n" in node.read("nodes.conf")
    leaks.await_closed(node, opened)


@pytest.mark.parametrize("call", [Call.OPEN, Call.WRITE], ids=["OPEN", "WRITE"])
def test_a_node_that_cannot_write_what_it_is_ends(call: Call, node: Guest, start_guest: StartGuest) -> None:
    Faults(node).arm(call)
    with server.client(node) as client:
        client.send(client.pack([("CLUSTER", "ADDSLOTSRANGE", 0, 16383)]))
        assert node.await_end() == 1
    log = node.evidence.log_tail(20)
    start_guest.dismiss()
    assert "Fatal: can't update cluster config file." in log
