"""Several servers in one machine: each has its own port, folder, log and faults."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from harness.build.emulators.runner import Runner
from harness.build.sources.source_tree import open_tree
from harness.isa import rules
from harness.record import fault_log
from harness.run.servers.server_spec import ServerSpec
from harness.run.vm.guest import PORTS, SERVER, VirtualMachine, VmGuest
from harness.run.vm.vm_image import VmImage
from tests.end_to_end.kernel.test_machine import archive, ask, built
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG


def test_servers_of_one_machine_are_separate(tmp_path: Path) -> None:
    server = CATALOG.servers["redis-3.2.6"]
    tree = open_tree(machines.release("redis-3.2.6"), name="redis-3.2.6", digest=server.sha256)
    build = machines.build(tree, "armv5")
    target = CATALOG.targets["armv5-kernel"]
    policy = rules.policy_for(CATALOG.policies, "signal", target)
    runner = Runner(target=target, policy=policy, program=None, options=[], records_faults=False)
    kernel = built("versatile")
    prepared = VmImage(
        kernel=kernel, initramfs=archive(kernel, "armv5", {SERVER: build.server_binary}), snapshot=None, mode=4
    )
    host = VirtualMachine(prepared, tmp_path, sockets=tmp_path)

    def guest(name: str, files: dict[str, bytes] | None = None) -> VmGuest:
        spec = ServerSpec(build=build, version=tree.version, files=files or {})
        return VmGuest(spec, runner, tmp_path / name, host=host)

    try:
        with guest("guest-1") as one, guest("guest-2") as two:
            for each, value in ((one, "first"), (two, "second")):
                assert ask(each.access.endpoint, "SET", "key", value * 8) == b"+OK\r\n"
                assert ask(each.access.endpoint, "SAVE") == b"+OK\r\n"
            assert b"first" in one.read("dump.rdb")
            assert b"second" in two.read("dump.rdb")
            saved = two.read("dump.rdb")
            with socket.create_connection(two.access.endpoint, 10) as client:
                client.settimeout(1)
                with two.suspended():
                    client.sendall(b"PING\r\n")
                    with pytest.raises(TimeoutError):
                        client.recv(100)
                    assert ask(one.access.endpoint, "PING") == b"+PONG\r\n"
                client.settimeout(10)
                assert client.recv(100) == b"+PONG\r\n"
            assert ask(one.access.endpoint, "BITOP", "NOT", "target", "key") == b""
            assert not one.settle()
            assert two.alive()
            assert (one.evidence.faults() > 0, two.evidence.faults()) == (True, 0)
            assert {fault.session for fault in fault_log.read_faults(one.evidence.fault_log)} == {one.pid}
        # It was asked to end, and was not killed.
        assert two.ended is not None
        assert two.ended.how == "stopped"
        assert b"User requested shutdown" in two.evidence.log.read_bytes()
        # Both ports are free again, and the next server gets only the files of its own test.
        with guest("guest-3") as third, guest("guest-4", files={"dump.rdb": saved}) as fourth:
            assert {third.upstream, fourth.upstream} == {host.machine().endpoint(port) for port in PORTS[:2]}
            assert ask(third.access.endpoint, "GET", "key") == b"$-1\r\n"
            assert ask(fourth.access.endpoint, "GET", "key") == b"$48\r\n" + b"second" * 8 + b"\r\n"
    finally:
        host.close()
