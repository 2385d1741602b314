"""What `plumb shell` sends to its server: a script instead of an emulator, which writes down what it gets."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.finding import Reproduction
from harness.protocol.command_stream import from_text, wire
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.debug.debug_shell import send_requests
from tests.support import fakes
from tests.support.reproducers import reproducer

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """#!/usr/bin/env python3
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
listener.listen()
while True:
    client, _ = listener.accept()
    while piece := client.recv(100):
        if b"PING" in piece:
            client.sendall(b"+PONG\\r\\n")
        else:
            with open("got", "ab") as stream:
                stream.write(piece)
            client.sendall(b"$-1\\r\\n")
    client.close()
"""
ASKED = wire(from_text("DUMP k"))


@pytest.mark.parametrize(
    "of",
    [
        {"chunks": [fakes.chunk("request", ASKED)]},
        {"again": Reproduction(target="armv5", requests=("DUMP k",), wrong="6162", file="")},
    ],
    ids=["recorded", "made-by-the-test"],
)
def test_the_requests_of_a_reproducer_are_sent(tmp_path_factory: pytest.TempPathFactory, of: dict[str, Any]) -> None:
    """Those of wrong bytes were announced and never sent."""
    # A socket's path has at most 107 bytes.
    short: Path = tmp_path_factory.mktemp("s")
    build = fakes.build(short / "build")
    fakes.write(build.server_binary, SERVER, mode=0o755)
    spec = ServerSpec(build=build, version=(7, 0, 15))
    with Guest(spec, fakes.unemulated(fakes.target()), short / "guest-1", sockets=short) as guest:
        send_requests(guest, reproducer(**of), Event())
    assert (short / "guest-1" / "got").read_bytes() == ASKED
