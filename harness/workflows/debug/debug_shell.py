"""Opens gdb on a running server, through the emulator's stub or natively, and stops everything when gdb ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.detectors import registry
from harness.build import host_packages
from harness.build.emulators.runner import with_stub
from harness.build.sources import server_tree
from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.processes import process
from harness.isa import rules
from harness.judge.reproducer import files_of
from harness.plan.catalog import DEFAULT_SERVER
from harness.plan.name_selection import select
from harness.protocol import pipeline
from harness.protocol.command_stream import from_text
from harness.protocol.resp import Client
from harness.record import transcript
from harness.run.gdb_stub import await_stub
from harness.run.server_process import Guest
from harness.run.servers.probes import answers_ping
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.debug.gdb_relay import RELAY, Relay, native_script, remote_script
from harness.workflows.replay import package_change
from harness.workflows.target_setup import set_up_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.model import Allocator, BuildSettings, GuestEnvironment, MemoryOrder, Transport
    from harness.core.progress import Progress
    from harness.core.target_model import Target
    from harness.judge.reproducer import Reproducer
    from harness.plan.catalog import Catalog
    from harness.workflows.workbench import Workbench

STUB_SECONDS = 20.0
REPLY_SECONDS = 3600.0
"""This is long because a server that gdb has stopped does not answer."""
POLL_SECONDS = 0.1
STUB = "stub"
"""The socket of the emulator's stub, in the shell's folder."""


class DebugSession(Record, frozen=True):
    """The server to debug, and how to start it."""

    target: str
    server: str
    """Empty: the reproducer's, or the default."""
    policy: str
    """Empty: the reproducer's, or `signal`."""
    optimisation: str
    """Empty: the reproducer's, or O2."""
    running: bool
    """Whether the server runs at once instead of stopping in main."""
    install: bool
    gdb: tuple[str, ...]
    """More arguments for gdb."""


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    """How the server starts: as the session says, or else as the reproducer's did, or else as usual."""

    server: str
    policy: str
    optimisation: str
    environment: GuestEnvironment = "usual"
    memory_order: MemoryOrder = "usual"
    seed: int = 0
    allocator: Allocator = "libc"
    settings: BuildSettings | None = None
    options: Sequence[str] = ()
    files: Mapping[str, bytes] = {}
    io: Transport = "unix"


def _start_of(session: DebugSession, reproducer: Reproducer | None) -> _Start:
    if reproducer is None:
        return _Start(
            server=session.server or DEFAULT_SERVER,
            policy=session.policy or "signal",
            optimisation=session.optimisation or "O2",
        )
    return _Start(
        server=session.server or reproducer.server,
        policy=session.policy or rules.base_name(reproducer.policy),
        optimisation=session.optimisation or reproducer.optimisation,
        environment=reproducer.environment,
        memory_order=reproducer.memory_order,
        seed=reproducer.seed,
        allocator=reproducer.allocator,
        settings=reproducer.settings,
        options=reproducer.options,
        files=files_of(reproducer),
        io=reproducer.io,
    )


def debuggable(catalog: Catalog, name: str) -> Target:
    """The target of that name. Raises UsageError for a target whose programs gdb cannot debug."""
    target = catalog.targets[select("target", [name], catalog.targets)[0]]
    why = registry.named(target.emulator.detector).hides_program
    if target.emulator.has_kernel:
        why = "a machine's gdb stub sees its kernel but no programs"
    if why:
        remedy = f"plumb shell {target.userland or 'native'}"
        raise UsageError(f"plumb shell does not support {target.name}", where="TARGET", because=why, remedy=remedy)
    return target


def open_shell(bench: Workbench, session: DebugSession, reproducer: Reproducer | None) -> None:
    """Build, start, and hand the terminal to gdb until it ends.

    A reproducer's requests are sent once the server answers.
    Raises PlumblineError for a server that cannot be built or started.
    """
    if reproducer is not None:
        bench = bench.with_timeouts(reproducer.timeout_multiplier).with_toolchain(reproducer.toolchain)
    catalog, progress = bench.catalog, bench.progress
    target = debuggable(catalog, session.target)
    if reproducer is not None and (why := _why_no_requests(reproducer)):
        raise UsageError("the reproducer has no requests", where="--run", because=why, remedy="plumb replay REPRODUCER")
    start = _start_of(session, reproducer)
    server_tree.known_server(catalog, start.server, packages=True)
    policy = rules.policy_for(catalog.policies, start.policy, target)
    rules.check_toolchain(policy, target, catalog.toolchain_of(target))
    host_packages.install_missing(
        host_packages.diagnose(catalog, [target.name], emulator="pinned", debugger=True),
        progress,
        install=session.install,
    )
    tree = bench.open_server(start.server, start.settings, packages=True)
    setup = set_up_target(bench, target)
    runner = setup.runner(start.policy, start.environment, start.memory_order, start.seed)
    build = setup.build(tree, start.optimisation, start.allocator)
    # The packages of its run are those of its own target.
    compared = reproducer if reproducer is not None and reproducer.target == target.name else None
    if compared and (changed := package_change.changed_packages(compared, tree, [target.name], lambda _: build)):
        progress.say(f"{changed}. {compared.finding} may not come")
    spec = ServerSpec(
        build=build,
        version=tree.version,
        options=start.options,
        files=start.files,
        io=start.io,
    )
    with tempfile.TemporaryDirectory(prefix="plumbline-shell-") as folder, contextlib.ExitStack() as ends:
        guest = _guest(Path(folder), spec, runner)
        ends.callback(guest.__exit__)
        guest.start_recording()
        if target.emulator.is_qemu_user:
            ends.callback(_start_stopped(guest).close)
            commands = remote_script(guest, tree, setup.guest_root, running=session.running)
        else:
            guest.lay_files()
            commands = native_script(guest, tree, running=session.running)
        _introduce(guest, progress, reproducer=reproducer, running=session.running)
        if reproducer is not None:
            ended = Event()
            ends.callback(ended.set)
            Thread(target=send_requests, args=(guest, reproducer, ended), daemon=True).start()
        script = Path(folder) / "commands.gdb"
        script.write_text(commands, "utf-8")
        process.attend(
            [_gdb(target), "-q", "-x", script, *session.gdb], environment={**os.environ, **runner.environment}
        )


def _why_no_requests(reproducer: Reproducer) -> str:
    """Why a reproducer runs without a server of the shell; empty if the shell can send its requests."""
    if reproducer.unit:
        return f"it is one of the unit {reproducer.unit}, which runs without a server"
    if reproducer.upstream:
        return f"it is one of the release's own test {reproducer.upstream}, which starts its servers itself"
    return "it is one of a program that plumb exec ran" if reproducer.launch is not None else ""


def _guest(folder: Path, spec: ServerSpec, runner: Runner) -> Guest:
    """The server before its start, with the stub where it is emulated."""
    if runner.target.emulator.is_qemu_user:
        runner = with_stub(runner, folder / STUB)
    guest = Guest(spec, runner, folder / "guest-1", sockets=folder)
    guest.folder.mkdir()
    return guest


def _start_stopped(guest: Guest) -> Relay:
    """Start the emulator, which waits for gdb before the first instruction, and the relay that gdb connects to."""
    guest.launch()
    stub = guest.folder.parent / STUB
    await_stub(guest, stub, deadline_seconds=STUB_SECONDS)

    def interrupt() -> None:
        guest.send_signal(signal.SIGINT)

    return Relay(guest.folder.parent / RELAY, stub, interrupt)


def _gdb(target: Target) -> str:
    names = ("gdb", "gdb-multiarch") if target.emulator.runs_here else ("gdb-multiarch",)
    return next((name for name in names if shutil.which(name)), names[-1])


def send_requests(guest: Guest, reproducer: Reproducer, ended: Event) -> None:
    """Send the recorded requests once the server answers, which it does when gdb lets it run. `ended`: gdb's end."""
    while not answers_ping(guest.upstream, deadline_seconds=guest.probe_seconds):
        if ended.wait(POLL_SECONDS):
            return
    if reproducer.again is None:
        transcript.send_again(guest.access.path, reproducer.chunks, reply_seconds=REPLY_SECONDS)
        return
    with contextlib.suppress(OSError), Client.at_socket(guest.access.path, deadline_seconds=REPLY_SECONDS) as client:
        pipeline.ask(client, from_text("\n".join(reproducer.again.requests)))


def _introduce(guest: Guest, progress: Progress, *, reproducer: Reproducer | None, running: bool) -> None:
    """Print how to reach the server, on standard error because standard output is gdb's."""
    progress.say(f"{guest.build.server} on {guest.runner.target.name}: {guest.build.server_binary}")
    progress.say(
        f"once it runs, connect to it: redis-cli -s {guest.access.path}, or socat - UNIX-CONNECT:{guest.access.path}"
    )
    progress.say(f"its log: tail -f {guest.evidence.log}")
    if reproducer is not None:
        when = "as soon as it answers" if running else "as soon as it answers: type continue"
        progress.say(f"{reproducer.finding} is sent to it {when}")
