"""With `--io tcp` clients reach real servers over TCP, in a check and in replays of its findings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import ExitCode
from harness.core.finding import Reproduction
from harness.judge.reproducer import Reproducer, read_reproducer
from harness.plan.catalog import Catalog
from harness.protocol.resp import Client
from harness.run.server_process import Guest
from harness.run.servers.probes import processed_commands
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.replay import replay
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from harness.core.model import Transport

pytestmark = pytest.mark.end_to_end

SERVER = "redis-7.0.15"
ADDRESSES: dict[Transport, bytes] = {"unix": b" addr=/", "tcp": b" addr=127.0.0.1:"}
"""The text with which CLIENT LIST begins a client's address."""


def addresses(guest: Guest) -> set[Transport]:
    """The kinds of addresses of the server's clients. The only client sends this request, through the proxy."""
    with Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds) as client:
        listing = client.command("CLIENT", "LIST")
    assert isinstance(listing, bytes)
    return {io for io, address in ADDRESSES.items() if address in listing}


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A socket's path has at most 107 bytes."""
    return tmp_path_factory.mktemp("i")


@pytest.mark.parametrize("target", ["native", "armv5", "sparc64"])
@pytest.mark.parametrize("io", ADDRESSES)
def test_a_server_has_only_clients_of_the_requested_kind(target: str, io: Transport, short: Path) -> None:
    tree = machines.quiet_workbench().open_server(SERVER)
    build, runner = machines.build(tree, target), machines.runner(target)
    two = [
        Guest(ServerSpec(build=build, version=tree.version, io=io), runner, short / name, sockets=short)
        for name in ("g1", "g2")
    ]
    with two[0], two[1]:
        assert two[0].upstream != two[1].upstream
        for guest in two:
            assert addresses(guest) == {io}
            assert processed_commands(guest.upstream) > 0


@pytest.mark.slow(instead="test_a_server_has_only_clients_of_the_requested_kind")
def test_a_suite_passes_over_tcp_and_the_report_names_the_transport(tmp_path: Path) -> None:
    words = ("--target", "armv5", "--suite", "bitops", "--test", "bitpos_finds", "--io", "tcp")
    found = document(run("check", *words, "--server", SERVER, "--json", "--run", tmp_path / "run"))
    assert (found["verdict"], found["io"]) == ("PASS", "tcp")
    assert "io `tcp`" in (tmp_path / "run" / "summary.md").read_text("utf-8")


@pytest.mark.slow(
    instead="test_a_server_has_only_clients_of_the_requested_kind; test_a_replay_uses_the_transport_of_the_reproducer"
)
def test_a_finding_over_tcp_is_replayed_over_tcp(tmp_path: Path) -> None:
    words = ("--target", "armv5", "--suite", "bitops", "--test", "bitpos_finds", "--io", "tcp")
    finished = run("check", *words, "--server", "redis-3.2.6", "--json", "--run", tmp_path / "run")
    (one,) = [each for each in json.loads(finished.stdout)["findings"] if each["function"] == "redisBitpos"]
    path = Path(shlex.split(one["replay"])[-1])
    assert read_reproducer(str(path)).io == "tcp"
    again = run("replay", path)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (
        ExitCode.FINDINGS,
        "reproduced: alignment-redisBitpos-load",
    )


@pytest.mark.parametrize("io", ADDRESSES)
def test_a_replay_uses_the_transport_of_the_reproducer(io: Transport) -> None:
    """The replay reproduces a failure that depends on the client's kind of address, and not with the other kind."""
    asked = Reproducer(
        finding="bytes-differ-client",
        kind="bytes-differ",
        function="",
        server=SERVER,
        target=Catalog().targets["armv5"].name,
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=[],
        detector="suite",
        io=io,
    )
    for other, address in ADDRESSES.items():
        again = Reproduction(target="armv5", requests=("CLIENT LIST",), wrong=address.hex())
        result = replay.replay(machines.quiet_workbench(), msgspec.structs.replace(asked, again=again), server="")
        assert (result.outcome, other) == ("reproduced" if other == io else "gone", other), result.text
