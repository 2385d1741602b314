"""The server reports the same addresses and ports for both ends of a connection as the client's kernel."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import Client
from suites._shared import link

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.ports import Ports

ANY_PORT = 0
TIMEOUT_SECONDS = 20.0


def written(address: str, port: int) -> str:
    """An address and a port, as the server writes them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_ends_of_a_connection_tell_the_same_ports(
    address: str, cell: CellSpec, start_guest: StartGuest, ports: Ports
) -> None:
    if address == "::1" and not _has_it(address):
        pytest.skip("the host has no IPv6")
    guest, port = link.on_a_port(start_guest, ports, "", "--bind", address, "--loglevel", "verbose")
    patience = cell.runner.target.deadline_seconds(TIMEOUT_SECONDS)
    connected = socket.create_connection((address, port), timeout=patience)
    own_port = connected.getsockname()[1]
    with Client(connected) as client:
        client.command("CLIENT", "SETNAME", "it")
        listed = client.command("CLIENT", "LIST")
        assert isinstance(listed, bytes)
        (line,) = [each for each in listed.decode().splitlines() if "name=it" in each]
        fields = dict(word.partition("=")[::2] for word in line.split())
        assert fields["addr"] == written(address, own_port)
        # Since 6.2 the server also reports its own end.
        assert fields.get("laddr", written(address, port)) == written(address, port)
        accepted = f"Accepted {address}:{own_port}\n".encode()
        if cell.machine is not None:
            # The log line arrives later.
            link.await_that(
                lambda: accepted in guest.evidence.log.read_bytes(), [guest], f"the log to contain {accepted!r}"
            )
        assert accepted in guest.evidence.log.read_bytes(), f"the log does not contain {accepted!r}"
        with guest.client() as other:
            assert other.command("CLIENT", "KILL", "ADDR", written(address, own_port)) == 1


def _has_it(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_server((address, ANY_PORT), family=socket.AF_INET6):
        return True
    return False
