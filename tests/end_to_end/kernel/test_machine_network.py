"""A machine's devices lose no interrupt under load, and a machine whose network is silent ends with an error."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.runner import Runner
from harness.build.sources.source_tree import open_tree
from harness.build.toolchain import tool
from harness.core.errors import ExitCode, InfrastructureError
from harness.core.processes import process
from harness.core.sockets import connect
from harness.core.strict_toml import ROOT
from harness.isa import rules
from harness.run.servers.server_spec import ServerSpec
from harness.run.vm.guest import SERVER, VirtualMachine, VmGuest
from harness.run.vm.machine import Machine
from harness.run.vm.network_watch import CLOSED_PORT
from harness.run.vm.vm_image import VmImage
from tests.end_to_end.kernel.test_machine import archive, built
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import emulated_guest, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.model import Build

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
SHARED_WORD = ROOT / "tests" / "support" / "data" / "machines" / "shared_word.c"
ANSWER_SECONDS = 60.0
"""After a lost interrupt a device is silent for ever. A dropped packet only comes late: TCP sends it again after
seconds, and waits twice as long each time.
"""


def machine_with(name: str, target: str, folder: Path, *, options: Sequence[str]) -> Machine:
    """A machine with a kernel, and with other options of its emulator."""
    kernel = built(name)
    changed = msgspec.structs.replace(kernel.spec.machine, options=list(options))
    kernel = msgspec.structs.replace(kernel, spec=msgspec.structs.replace(kernel.spec, machine=changed))
    return Machine(VmImage(kernel=kernel, initramfs=archive(kernel, target, {})), folder / "machine", sockets=folder)


def hammer(machine: Machine, *, seconds: float) -> tuple[int, int]:
    """Use the network card and the control channel at the same time.

    Returns the numbers of connections and requests that the guest answered. Raises InfrastructureError or OSError at
    the first one without an answer.
    """
    closed, until = machine.endpoint(CLOSED_PORT), time.monotonic() + seconds
    refused = [0] * 4
    problems: list[Exception] = []

    def client(number: int) -> None:
        try:
            while time.monotonic() < until and not problems:
                with (
                    contextlib.suppress(ConnectionResetError),
                    connect(closed, deadline_seconds=ANSWER_SECONDS) as connection,
                ):
                    assert connection.recv(1) == b""
                refused[number] += 1
        except OSError as error:
            problems.append(error)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(len(refused))]
    for each in clients:
        each.start()
    requests = 0
    try:
        while time.monotonic() < until and not problems:
            machine.request("ping", deadline_seconds=ANSWER_SECONDS)
            requests += 1
    except InfrastructureError as error:
        problems.append(error)
    for each in clients:
        each.join()
    if problems:
        raise problems[0]
    return sum(refused), requests


@pytest.mark.parametrize(
    ("name", "target", "seconds"),
    [
        ("versatile", "armv5", 5),
        machines.beyond("sun4u", "sparc64", 5),
        machines.beyond("malta", "mips", 20),
        machines.beyond("virt-armv7", "armv7", 5),
        machines.beyond("virt-arm64", "aarch64", 5),
        machines.beyond("virt-riscv64", "riscv64", 5),
        machines.beyond("mac99", "powerpc", 5),
        machines.beyond("pseries", "powerpc64le", 5),
    ],
)
def test_a_machine_answers_while_its_network_and_its_control_channel_are_busy(
    name: str, target: str, seconds: int, tmp_path: Path
) -> None:
    with machine_with(name, target, tmp_path, options=built(name).spec.machine.options) as machine:
        refused, requests = hammer(machine, seconds=seconds)
    assert min(refused, requests) > 50


@pytest.mark.slow(instead="the other tests of test_machine_network.py on Versatile: a busy machine answers")
def test_devices_of_malta_have_interrupts_of_their_own(tmp_path: Path) -> None:
    with machine_with("malta", "mips", tmp_path, options=built("malta").spec.machine.options) as machine:
        interrupts = machine.read("/proc/interrupts").decode()
    lines = re.findall(r"^.*\bvirtio.*$", interrupts, re.MULTILINE)
    assert [line.count("virtio") for line in lines] == [1, 1], interrupts


@pytest.mark.slow(instead="the other tests of test_machine_network.py on Versatile: a busy machine answers")
def test_a_device_and_the_processor_of_s390x_undo_nothing_of_each_other_in_one_word(tmp_path: Path) -> None:
    """A device announces events with a bit of a word in which the kernel clears other bits. The host acts as it."""
    host, guest, memory = tmp_path / "host", tmp_path / "guest", tmp_path / "memory"
    tools = CATALOG.toolchain_of(CATALOG.targets["s390x"])
    for compiler, program, more in (("gcc", host, []), (tool(tools, "gcc"), guest, ["-march=z10"])):
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *more]
        compiled = process.run([compiler, *flags, str(SHARED_WORD), "-o", str(program)], deadline_seconds=60)
        assert compiled.code == 0, compiled.text
    kernel = built("ccw-s390x")
    spec = kernel.spec.machine
    backend = f"memory-backend-file,id=ram,mem-path={memory},share=on,size={spec.memory_mib}M"
    changed = msgspec.structs.replace(
        spec, machine=f"{spec.machine},memory-backend=ram", options=[*spec.options, "-object", backend]
    )
    kernel = msgspec.structs.replace(kernel, spec=msgspec.structs.replace(kernel.spec, machine=changed))
    image = VmImage(kernel=kernel, initramfs=archive(kernel, "s390x", {"/srv/program": guest}))
    with Machine(image, tmp_path / "machine", sockets=tmp_path) as machine:
        machine.start(["/srv/program", "guest", "60"], traced=False)
        ran = process.run([str(host), "host", str(memory), "10"], deadline_seconds=60)
    changes, undone = map(int, ran.text.split())
    assert changes > 100_000
    assert undone == 0


@pytest.mark.slow(
    instead=(
        "the other tests of test_machine_network.py on Versatile: a busy machine answers; a machine that may have "
        "a second processor has a place for it"
    )
)
@pytest.mark.parametrize(
    ("name", "target", "operation"),
    [
        ("ccw-s390x", "s390x", "atomic_cmpxchg"),
        ("ccw-s390x", "s390x", "mb"),
        ("malta", "mips", "mb"),
        ("virt-armv7", "armv7", "mb"),
    ],
)
def test_the_emulator_translates_what_orders_and_protects_accesses_that_devices_see(
    name: str, target: str, operation: str, tmp_path: Path
) -> None:
    """Devices run in a different thread than the processor. With a single processor, the emulator would omit these
    operations.
    """
    log = tmp_path / "operations"
    options = [*built(name).spec.machine.options, "-d", "op", "-D", str(log)]
    with machine_with(name, target, tmp_path, options=options):
        pass
    assert re.search(rf"^ (call )?{operation}", log.read_text("utf-8", "replace"), re.MULTILINE)


@pytest.mark.parametrize(
    "name", [name if name in machines.KERNELS else machines.beyond(name) for name in CATALOG.kernels]
)
def test_a_machine_that_supports_a_second_processor_has_room_for_it(name: str) -> None:
    """Only then does the emulator emit atomic accesses and barriers."""
    spec = CATALOG.kernels[name].machine
    words = [spec.emulator, "-nodefaults", "-display", "none", "-S", "-M", "none", "-qmp", "stdio"]
    asked = '{"execute": "qmp_capabilities"}{"execute": "query-machines"}{"execute": "quit"}'
    replies = subprocess.run(words, input=asked, capture_output=True, encoding="utf-8", timeout=60, check=True).stdout
    listed = next(json.loads(line)["return"] for line in replies.splitlines() if '"cpu-max"' in line)
    kind = spec.machine.partition(",")[0]
    (most,) = [one["cpu-max"] for one in listed if kind in {one["name"], one.get("alias")}]
    assert ("1,maxcpus=2" in spec.options) == (most > 1)


def without_card(options: Sequence[str]) -> list[str]:
    assert "nic,model=smc91c111,netdev=network" in options
    return [word.replace("nic,model=smc91c111,netdev=network", "none") for word in options]


@pytest.fixture
def _soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.vm.network_watch.SILENT_SECONDS", 3.0)


@pytest.mark.usefixtures("_soon_silent")
def test_a_machine_whose_network_is_silent_ends_with_an_error(tmp_path: Path) -> None:
    options = without_card(built("versatile").spec.machine.options)
    with machine_with("versatile", "armv5", tmp_path, options=options) as machine:
        machine.request("ping")
        assert wait_for(lambda: not machine.alive(), seconds=30)
        with pytest.raises(InfrastructureError, match="versatile failed: its network did not answer for 3 s"):
            machine.request("ping")


def guest_on(host: VirtualMachine, build: Build, folder: Path) -> VmGuest:
    target = CATALOG.targets["armv5-kernel"]
    policy = rules.policy_for(CATALOG.policies, "signal", target)
    runner = Runner(target=target, policy=policy, program=None, options=[], records_faults=False)
    return VmGuest(ServerSpec(build=build, version=(3, 2, 6)), runner, folder, host=host)


@pytest.mark.usefixtures("_soon_silent")
def test_a_server_is_blamed_for_its_silence_only_if_the_network_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("harness.run.vm.network_watch.LOOK_SECONDS", 1000.0)
    release = CATALOG.servers["redis-3.2.6"]
    build = machines.build(
        open_tree(machines.release("redis-3.2.6"), name="redis-3.2.6", digest=release.sha256), "armv5"
    )
    kernel = built("versatile")
    files = archive(kernel, "armv5", {SERVER: build.server_binary})
    host = VirtualMachine(VmImage(kernel=kernel, initramfs=files, mode=4), tmp_path, sockets=tmp_path)
    try:
        with guest_on(host, build, tmp_path / "guest-1") as hanging:
            hanging.send_signal(signal.SIGSTOP)
            hanging.hung()
            assert hanging.ended is not None
            assert hanging.ended.how == "hang"
        with guest_on(host, build, tmp_path / "guest-2") as unreachable:
            host.refuse_ended()
            # The network card loses IFF_UP. init still answers.
            host.machine().write("/sys/class/net/eth0/flags", b"0x1002\n")
            assert unreachable.alive()
            with pytest.raises(InfrastructureError, match="its network did not answer for 3 s"):
                unreachable.hung()
            assert unreachable.ended is None
            # Once the machine has ended, a test's failure is no evidence either.
            with pytest.raises(InfrastructureError, match="its network did not answer for 3 s"):
                host.refuse_ended()
    finally:
        host.close()


@pytest.mark.slow(instead="the other tests of test_machine_network.py: a machine whose network is silent for 3 s ends")
def test_a_machine_that_stands_still_makes_its_cell_unknown_within_minutes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["--tier", "kernel", "--target", "armv5-kernel", "--suite", "protocol", "--seed", 1, "--json"]
    with running("check", *words, "--run", folder) as check:
        events = folder / "armv5-kernel" / "protocol" / "events.jsonl"
        assert wait_for(lambda: events.is_file() and events.read_bytes().count(b"\n") > 5, seconds=300)
        emulator = emulated_guest(events.parent)
        emulator.suspend()
        stopped = time.monotonic()
        output, _ = check.communicate(timeout=400)
    assert time.monotonic() - stopped < 180
    read = json.loads(output)
    assert (check.returncode, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert read["findings"] == []
    (cell,) = [cell for cell in read["cells"] if cell["suite"] == "protocol"]
    assert "its network did not answer for 60 s" in cell["reason"]
