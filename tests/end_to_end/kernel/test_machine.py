"""Real kernels treat misaligned accesses as the model prescribes, a server's SIGBUS is located, and machines end."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import disassembly, symbols
from harness.build import initramfs
from harness.build.emulators.runner import Runner
from harness.build.kernel import Kernel, Kernels
from harness.build.sources.archives import Fetcher
from harness.build.sources.source_tree import open_tree
from harness.build.toolchain import tool
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.progress import Progress
from harness.core.strict_toml import ROOT
from harness.isa import rules
from harness.record import fault_log
from harness.run import canary
from harness.run.vm.init_channel import RefusedError
from harness.run.vm.machine import ExitStatus, Machine
from harness.run.vm.snapshot import snapshot
from harness.run.vm.vm_image import VmImage
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.build.initramfs import Initramfs

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
CELLS = [
    # In the other modes a check of the kernel tier tests the same accesses, or the kernel writes a line for each.
    ("versatile", "armv5", "linux-arm-2"),
    *[machines.beyond("versatile", "armv5", f"linux-arm-{mode}") for mode in (3, 4, 5)],
    *[machines.beyond("realview", "armv6-kernel", f"linux-arm-{mode}") for mode in range(6)],
    *[machines.beyond("virt-armv7", "armv7-kernel", f"linux-arm-{mode}") for mode in range(6)],
    machines.beyond("virt-arm64", "aarch64-kernel", "linux-arm64"),
    machines.beyond("virt-arm64", "armv7-on-arm64-kernel", "linux-arm64-compat"),
    machines.beyond("sun4u", "sparc64-kernel", "linux-sparc"),
    machines.beyond("sun4u", "sparc32plus-kernel", "linux-sparc"),
    machines.beyond("virt-riscv64", "riscv64-kernel", "sbi-riscv"),
    *[machines.beyond("malta", "mips-kernel", f"linux-mips{suffix}") for suffix in ("", "-nofixade", "-show")],
    machines.beyond("ccw-s390x", "s390x-kernel", "linux-s390"),
    machines.beyond("mac99", "powerpc-kernel", "linux-powerpc"),
    machines.beyond("pseries", "powerpc64le-kernel", "linux-powerpc"),
]
"""Modes 0 and 1 of ARMv5 are missing. With the check switched off, QEMU does not rotate words, and allows only words
and halfwords, so the kernel repeats other accesses forever."""


SIGNAL_MODES = {"arm": 4, "mips": 1}
"""Linux' name of an architecture -> the mode in which its kernel repairs nothing. Other kernels have no modes."""


@functools.cache
def built(name: str) -> Kernel:
    cache, spec = Cache.default(), CATALOG.kernels[name]
    return Kernels(cache, Fetcher(cache, Progress()), Progress()).build(spec, CATALOG.toolchains[spec.toolchain])


def archive(kernel: Kernel, target: str, programs: Mapping[str, Path]) -> Initramfs:
    cache, tools = Cache.default(), CATALOG.toolchain_of(CATALOG.targets[target])
    init = initramfs.compile_init(cache, CATALOG.toolchains[kernel.spec.toolchain])
    places = initramfs.with_libraries(programs, tools)
    return initramfs.assemble(cache, init, places, memory_bytes=kernel.spec.machine.memory_mib << 20)


def canary_machine(name: str, target: str, folder: Path) -> Machine:
    found = CATALOG.targets[target]
    program = canary.compile_canary(Cache.default(), found, CATALOG.toolchain_of(found))
    kernel = built(name)
    return Machine(
        VmImage(kernel=kernel, initramfs=archive(kernel, target, {"/srv/canary": program})), folder, sockets=folder
    )


@pytest.mark.slow(
    instead="test_an_access_that_never_ends_is_reported_soon, under the user tier; tests/unit/run/test_machine.py"
)
def test_an_access_that_never_ends_is_killed_at_its_deadline(tmp_path: Path) -> None:
    with canary_machine("versatile", "armv5", tmp_path) as machine:
        machine.set_alignment(0)
        ran = machine.run(["/srv/canary", "vldr-double", "1"], deadline_seconds=3)
        assert ran.end is None
        assert [line.split()[3] for line in machine.processes()] == ["init"]


def test_a_machine_answers_each_kind_of_request(tmp_path: Path) -> None:
    with canary_machine("versatile", "armv5", tmp_path) as machine:
        content = bytes(range(256)) * 700
        machine.write("/run/of/folders/large", content)
        assert machine.read("/run/of/folders/large") == content
        with pytest.raises(RefusedError, match="/run/absent: No such file"):
            machine.read("/run/absent")
        assert "Linux version" in machine.kernel_log()
        assert "Linux version" not in machine.kernel_log()
        machine.set_alignment(5)
        assert "5 (signal+warn)" in machine.alignment()
        before = machine.counters()
        assert before is not None
        ran = machine.run(["/srv/canary", "ldr", "1"], deadline_seconds=20, environment={"HOME": "/"})
        assert ran.end == ExitStatus(how="signal", number=signal.SIGBUS)
        assert machine.counters() == msgspec.structs.replace(before, user=before.user + 1)
        (line,) = [line for line in machine.kernel_log().splitlines() if "Alignment trap: canary" in line]
        (fault,) = fault_log.read_faults(machine.fault_log)
        assert line.partition("] ")[2] == fault.kernel_log[0]
        assert f"PC=0x{fault.pc:08x}" in line
        assert f"Address=0x{fault.address:08x}" in line
        # Mode 3 does not repair the access, so the kernel logs the access and the fault. In mode 4 it logs nothing.
        for mode, lines in ((3, 2), (4, 0)):
            machine.set_alignment(mode)
            machine.run(["/srv/canary", "vldr-double", "1"], deadline_seconds=20)
            assert len(fault_log.read_faults(machine.fault_log)[-1].kernel_log) == lines
        assert machine.run(["/srv/none"], deadline_seconds=20).end == ExitStatus(how="exit", number=127)
        assert abs(float(machine.read("/proc/uptime").split()[0])) < 120


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("versatile", "armv5"),
        machines.beyond("virt-arm64", "armv7"),
        machines.beyond("sun4u", "sparc64"),
        machines.beyond("sun4u", "sparc32plus"),
        machines.beyond("malta", "mips"),
        machines.beyond("virt-riscv64", "riscv64"),
        machines.beyond("ccw-s390x", "s390x"),
        machines.beyond("mac99", "powerpc"),
        machines.beyond("pseries", "powerpc64le"),
    ],
)
def test_a_fault_of_a_child_or_a_thread_is_recorded_with_what_ended_it_and_a_sent_signal_is_not(
    name: str, target: str, tmp_path: Path
) -> None:
    found = CATALOG.targets[target]
    compiler = tool(CATALOG.toolchain_of(found), "gcc")
    program = tmp_path / "children"
    source = ROOT / "tests" / "support" / "data" / "faults" / "children.c"
    flags = [*found.compiler_flags, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    compiled = process.run([compiler, str(source), *flags, "-o", str(program)], deadline_seconds=60)
    assert compiled.code == 0, compiled.text
    kernel = built(name)
    machine = Machine(
        VmImage(kernel=kernel, initramfs=archive(kernel, target, {"/srv/children": program})),
        tmp_path / "m",
        sockets=tmp_path,
    )
    fixed_up = kernel.spec.architecture == "arm64"
    with machine:
        if mode := SIGNAL_MODES.get(kernel.spec.architecture):
            machine.set_alignment(mode)
        forked = machine.run(["/srv/children"], deadline_seconds=30)
        assert forked.output == f"child ended by its signal: {int(not fixed_up)}\n".encode()
        assert forked.end == ExitStatus(how="exit", number=3)
        threaded = machine.run(["/srv/children", "thread"], deadline_seconds=30)
        aborting = machine.run(["/srv/children", "abort"], deadline_seconds=30)
        stopped = machine.start(["/srv/children", "asleep"], traced=False)
        machine.send_signal(stopped, signal.SIGSTOP)
        # init still answers, although a program that it does not trace remains stopped.
        assert wait_for(lambda: machine.is_stopped(stopped), seconds=20)
        machine.send_signal(stopped, signal.SIGKILL)
    log = fault_log.read(machine.fault_log)
    faults, ends = log.faults, {pid: end.signal for pid, end in log.ends.items()}
    assert aborting.end == ExitStatus(how="exit", number=0)
    assert aborting.pid not in ends
    # Its child is a process with several threads, one of which is named.
    assert list(ends.values()).count(signal.SIGABRT) == 1
    if fixed_up:
        # COMPAT_ALIGNMENT_FIXUPS repairs LDRD.
        assert faults == []
        assert len(ends) == 1
        assert threaded.end == ExitStatus(how="exit", number=0)
        return
    assert threaded.end == ExitStatus(how="signal", number=rules.signal_of(found))
    child, thread = faults
    assert len(ends) == 3
    assert {ends[child.pid], ends[thread.pid]} == {rules.signal_of(found)}
    assert child.pid == child.tid != forked.pid
    assert (thread.pid, thread.tid != thread.pid) == (threaded.pid, True)
    names = symbols.Symbols(CATALOG.toolchain_of(found).triple, str(program))
    assert {names.frames(fault.maps, fault.pc)[0].function for fault in faults} == {"misaligned"}


@pytest.mark.slow(instead="nothing: the required targets have no such instruction")
@pytest.mark.parametrize(
    ("name", "target"), [machines.beyond("mac99", "powerpc"), machines.beyond("pseries", "powerpc64le")]
)
def test_reserved_bits_of_mffs_are_ignored_as_by_processors_before_power_isa_3_0(
    name: str, target: str, tmp_path: Path
) -> None:
    compiler = tool(CATALOG.toolchain_of(CATALOG.targets[target]), "gcc")
    program, source = tmp_path / "program", ROOT / "tests" / "support" / "data" / "machines" / "reserved_bits.c"
    flags = [*CATALOG.targets[target].compiler_flags, "-O1", "-Wall", "-Wextra", "-Werror"]
    compiled = process.run([compiler, str(source), *flags, "-o", str(program)], deadline_seconds=60)
    assert compiled.code == 0, compiled.text
    kernel = built(name)
    image = VmImage(kernel=kernel, initramfs=archive(kernel, target, {"/srv/program": program}))
    with Machine(image, tmp_path / "machine", sockets=tmp_path) as machine:
        ran = machine.run(["/srv/program"], deadline_seconds=30)
    assert ran.end == ExitStatus(how="exit", number=0)
    assert ran.output == b"1 1 1\n"
    assert fault_log.count_faults(machine.fault_log) == 0


def ask(endpoint: tuple[str, int], *words: str) -> bytes:
    """The reply to one request; empty if the connection breaks."""
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    try:
        with socket.create_connection(endpoint, 10) as client:
            client.settimeout(10)
            client.sendall(request.encode())
            return client.recv(4096)
    except OSError:
        return b""


def serving(machine: Machine) -> int:
    pid = machine.start(["/srv/server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""])  # noqa: S104 - the guest's
    deadline = time.monotonic() + 60
    while not ask(machine.endpoint(6379), "PING").startswith(b"+PONG"):
        assert machine.end(pid) is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return pid


@pytest.mark.parametrize(
    ("name", "target", "resumed"),
    [
        ("versatile", "armv5", False),
        ("versatile", "armv5", True),
        machines.beyond("sun4u", "sparc64", False),
        machines.beyond("malta", "mips", False),
        machines.beyond("malta", "mips", True),
    ],
)
def test_a_servers_sigbus_has_its_function_and_line(name: str, target: str, resumed: bool, tmp_path: Path) -> None:
    tree = open_tree(machines.release("redis-3.2.6"), name="redis-3.2.6", digest=CATALOG.servers["redis-3.2.6"].sha256)
    build = machines.build(tree, target)
    kernel = built(name)
    files = archive(kernel, target, {"/srv/server": build.server_binary})
    state = snapshot(Cache.default(), kernel, files, sockets=tmp_path) if resumed else None
    with Machine(
        VmImage(kernel=kernel, initramfs=files, snapshot=state), tmp_path / "machine", sockets=tmp_path
    ) as machine:
        if mode := SIGNAL_MODES.get(kernel.spec.architecture):
            machine.set_alignment(mode)
        pid = serving(machine)
        for key in ("a", "b"):
            assert ask(machine.endpoint(6379), "SET", key, "x" * 40) == b"+OK\r\n"
        assert ask(machine.endpoint(6379), "BITOP", "AND", "d", "a", "b") == b""
        assert machine.wait(pid, deadline_seconds=30) == ExitStatus(how="signal", number=signal.SIGBUS)
        fault = fault_log.read_faults(machine.fault_log)[0]
    assert fault_log.is_misaligned(fault)
    found = symbols.Symbols(CATALOG.toolchain_of(CATALOG.targets[target]).triple, str(build.server_binary))
    frames = found.backtrace(fault, CATALOG.targets[target].emulator.qemu)
    assert [frame.function for frame in frames[:3]] == ["bitopCommand", "call", "processCommand"]
    assert (frames[0].file, frames[0].origin) == ("src/bitops.c", "server")


def test_a_kernel_panic_is_reported_with_its_last_messages(tmp_path: Path) -> None:
    kernel = built("versatile")
    cache = Cache(tmp_path / "cache")
    broken = initramfs.assemble(cache, ROOT / "LICENSE", {}, memory_bytes=1 << 28)
    with pytest.raises(InfrastructureError, match="its kernel panicked") as caught:
        Machine(VmImage(kernel=kernel, initramfs=broken), tmp_path / "machine", sockets=tmp_path).__enter__()
    assert "No working init found" in caught.value.because


@pytest.mark.parametrize(
    ("number", "what", "because", "remedy"),
    [
        (signal.SIGKILL, "SIGKILL ended its emulator", "ended with status -9", "run again; with fewer --jobs, if"),
        (signal.SIGSEGV, "SIGSEGV ended its emulator", "ended with status -11", "run again; if it happens again, read"),
        (signal.SIGTERM, "its emulator has ended", "terminating on signal 15", "run again; if it happens again, read"),
    ],
    ids=["killed", "crashed", "terminated"],
)
def test_a_machine_that_was_ended_from_outside_is_reported_with_what_ended_it(
    number: int, what: str, because: str, remedy: str, tmp_path: Path
) -> None:
    with canary_machine("versatile", "armv5", tmp_path) as machine:
        os.kill(machine.emulator_pid, number)
        with pytest.raises(InfrastructureError) as caught:
            wait_for(lambda: machine.request("ping"), seconds=10)
    assert caught.value.what == f"the machine versatile failed: {what}"
    assert because in caught.value.because
    # Neither an emptied cache nor another kernel helps.
    assert caught.value.remedy.startswith(remedy)
    assert "clean" not in caught.value.remedy


def test_a_boot_that_hangs_is_ended_and_reported_with_the_consoles_last_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("harness.run.vm.qemu_process.BOOT_SECONDS", 2.0)
    kernel = built("versatile")
    deaf = msgspec.structs.replace(kernel.spec.machine, control="/dev/absent")
    spec = msgspec.structs.replace(kernel.spec, machine=deaf)
    files = archive(kernel, "armv5", {})
    image = VmImage(kernel=msgspec.structs.replace(kernel, spec=spec), initramfs=files, timeout_multiplier=2.0)
    with pytest.raises(InfrastructureError, match="not ready within 4 s") as caught:
        Machine(image, tmp_path, sockets=tmp_path).__enter__()
    assert "Run /init as init process" in caught.value.because
    # It was booted twice, and both boots left console output.
    assert "Run /init as init process" in (tmp_path / "console-hung-1").read_text("utf-8")


@pytest.mark.parametrize(("pulse_seconds", "counted", "interrupted"), [(0.1, False, True), (0.1, True, False)])
def test_a_machine_that_may_lose_its_timer_is_interrupted_while_it_is_idle(
    pulse_seconds: float, *, counted: bool, interrupted: bool, tmp_path: Path
) -> None:
    assert CATALOG.kernels["sun4u"].machine.pulse_seconds == 1.0
    kernel = built("versatile")
    quick = msgspec.structs.replace(kernel.spec.machine, pulse_seconds=pulse_seconds)
    kernel = msgspec.structs.replace(kernel, spec=msgspec.structs.replace(kernel.spec, machine=quick))

    def interrupts(machine: Machine) -> int:
        lines = machine.read("/proc/interrupts").decode().splitlines()
        return sum(int(line.split()[1]) for line in lines if "uart" in line)

    with Machine(
        VmImage(kernel=kernel, initramfs=archive(kernel, "armv5", {}), counted=counted),
        tmp_path / "machine",
        sockets=tmp_path,
    ) as machine:
        before = interrupts(machine)
        time.sleep(3)
        assert (interrupts(machine) - before > 20) == interrupted


def test_a_missing_emulator_is_reported_with_its_package(tmp_path: Path) -> None:
    kernel = built("versatile")
    absent = msgspec.structs.replace(kernel.spec.machine, emulator="qemu-system-none")
    spec = msgspec.structs.replace(kernel.spec, machine=absent)
    files = archive(kernel, "armv5", {})
    with pytest.raises(InfrastructureError, match="qemu-system-none is not installed") as caught:
        Machine(
            VmImage(kernel=msgspec.structs.replace(kernel, spec=spec), initramfs=files), tmp_path, sockets=tmp_path
        ).__enter__()
    assert "qemu-system-arm" in caught.value.remedy


def test_two_simultaneous_machines_have_their_own_ports(tmp_path: Path) -> None:
    with (
        canary_machine("versatile", "armv5", tmp_path / "1") as one,
        canary_machine("versatile", "armv5", tmp_path / "2") as two,
    ):
        assert one.endpoint(6379) != two.endpoint(6379)


def test_nothing_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    built("versatile")
    script = textwrap.dedent(f"""
        import pathlib, time
        from tests.end_to_end.kernel.test_machine import canary_machine
        with canary_machine("versatile", "armv5", pathlib.Path({str(tmp_path / "machine")!r})) as machine:
            print(machine.emulator_pid, flush=True)
            time.sleep(60)
    """)
    harness = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)
    assert harness.stdout is not None
    emulator = int(harness.stdout.readline())
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    deadline = time.monotonic() + 10
    while (stat := Path(f"/proc/{emulator}/stat")).exists() and " Z " not in stat.read_text("utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Machine]]:
    """Boots machines with the canary program. Only one runs at a time, until a test requests another.

    Its tests are the last of the file, because an idle sun4u takes half a processor.
    """
    kept: dict[tuple[str, str], Machine] = {}

    with contextlib.ExitStack() as running:

        def boot(name: str, target: str) -> Machine:
            if (name, target) not in kept:
                running.close()
                kept.clear()
                folder = tmp_path_factory.mktemp("booted")
                kept[name, target] = running.enter_context(canary_machine(name, target, folder))
            return kept[name, target]

        yield boot


@pytest.mark.parametrize(("name", "target", "policy"), CELLS)
def test_a_real_kernel_does_what_the_model_prescribes(
    name: str, target: str, policy: str, booted: Callable[[str, str], Machine]
) -> None:
    found = CATALOG.targets[target]
    chosen = rules.policy_for(CATALOG.policies, policy, found)
    machine = booted(name, target)
    before = fault_log.count_faults(machine.fault_log)
    if chosen.mode is not None:
        machine.set_alignment(chosen.mode)
    ran = machine.run(["/srv/canary", "all"], deadline_seconds=120)
    assert ran.end == ExitStatus(how="exit", number=0), ran.output[-200:]
    outcomes: dict[str, list[str]] = {}
    for line in ran.output.decode().splitlines():
        access, _, rest = line.partition(" ")
        outcomes.setdefault(access, []).append(rest.partition(" ")[2])
    runner = Runner(target=found, policy=chosen, program=None, options=[], records_faults=False)
    performed = canary.CanaryResult(outcomes=outcomes, reports={})
    wrong = [
        f"{case.access.name}: {one}"
        for case in canary.cases(runner)
        for one in canary.disagreements(case, performed, runner)
    ]
    assert wrong == []
    (shown,) = rules.shown(found, "signal")
    signals = sum(outcome == shown for listed in outcomes.values() for outcome in listed)
    faults = fault_log.read_faults(machine.fault_log)[before:]
    assert len(faults) == signals
    assert all(fault_log.is_misaligned(fault) for fault in faults)
    # Where siginfo has no address, the record has one, and it is the address of a forbidden access.
    dying = {case.access.access_class for case in canary.cases(runner) if "signal" in case.prescribed}
    computed = [disassembly.access_of(fault, found.emulator.qemu) for fault in faults if fault.misaligned_address >= 0]
    assert len(computed) in {0, signals}
    assert {access.access_class for access in computed} in (set(), dying)
    assert all(access.modulo % access.size_bytes for access in computed)
