"""Runs one file of upstream's tests to its end, or until it makes no progress, and stores its output."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

import msgspec

from harness.build.emulators.runner import EMULATED_SIGABRT
from harness.core.model import Record
from harness.core.processes import process
from harness.core.processes.capped_log import capped
from harness.core.processes.scheduling import UsableTime
from harness.core.target_model import Target  # noqa: TC001 - msgspec reads the annotations
from harness.run.servers.probes import REPLY_SECONDS
from harness.run.upstream.awaited_server import are_silent, awaited, state_of, told
from harness.run.upstream.journal import Journal, read_journal
from harness.run.upstream.stage import NATIVE_HOME
from harness.run.upstream.test_files import PORTS, TEST_PORTS, UpstreamFile

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from harness.run.upstream.stage import Stage

STALL_SECONDS = 120.0
"""How long a file may make no progress on a machine as fast as the host, beyond what its slowest test takes."""
MOST_PATIENCE = 10.0
"""The longest that upstream's own loops wait, as a multiple of the usual, on a machine as fast as the host."""
POLL_SECONDS = 0.1
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class FileRun(Record, frozen=True):
    """One run of a file."""

    journal: Journal
    stalled: bool
    """Whether it was ended because it made no progress."""
    last_line: str
    """The last line that it printed."""
    seconds: float
    silent: bool = False
    """Whether it was ended while a server of it did not reply."""
    code: int | None = None
    """The exit status of upstream's program, negative for a signal; None for a program that was ended."""


class Pace(Record, frozen=True):
    """How long a file may make no progress."""

    patience: float
    """How many times longer than usual upstream's own loops wait."""
    stall_seconds: float
    silent_seconds: float
    """The same while a server of its present test does not reply to PING; no longer than that."""


class FileRunSettings(Record, frozen=True):
    """How a file runs."""

    target: Target
    pace: Pace
    homes: list[Path]
    """The folders in which its servers leave their records."""
    seed: int = 0
    server: tuple[str, int] | None = None
    """The server that its tests use, if they start none of their own."""
    guest: str = ""
    """The name of that server's guest."""
    left_out: tuple[str, ...] = ()
    """Tests that do not run: globs of their names."""
    private: bool = True
    """Whether no other process uses the network."""


def run_file(
    stage: Stage, file: UpstreamFile, settings: FileRunSettings, *, log: Path, cancelled: threading.Event
) -> FileRun:
    """Run a file. Its processes, strays included, have ended when it returns. Another thread ends it by `cancelled`."""
    stage.clear()
    command = file.command(stage.folder, stage.first_port, settings.server)
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as stream, capped(stream.fileno(), start=stream.tell()):
        started = process.start(command, output=stream, folder=stage.folder, environment=_environment(stage, settings))
        try:
            usable = UsableTime(started.pid)
            states = _watch(stage, started.poll, usable, settings, cancelled)
            code = started.poll()
            journal = _journal(stage)
            if states is not None:
                journal = _with_awaited(journal, told(states), _last_line(log))
        finally:
            process.kill_group(started)
    return FileRun(
        journal=_journal(stage) if states is None else journal,
        stalled=states is not None,
        silent=are_silent(states or ()),
        last_line=_last_line(log),
        seconds=round(time.monotonic() - began, 2),
        code=code,
    )


def _journal(stage: Stage) -> Journal:
    return read_journal(stage.journal.read_bytes() if stage.journal.is_file() else b"")


def _awaited(stage: Stage, settings: FileRunSettings) -> dict[str, list[str]]:
    """What the servers of the test that does not end do -> their names."""
    seconds = settings.target.deadline_seconds(REPLY_SECONDS)
    if settings.server is not None:
        return {state_of(settings.server, seconds): [settings.guest or "the server"]}
    journal = _journal(stage)
    begun = [test for test in journal.tests if not test.reported]
    homes = [*settings.homes, stage.folder / NATIVE_HOME]
    return awaited(begun[-1].servers if begun else (), homes, stage.folder, probe_seconds=seconds)


def _with_awaited(journal: Journal, servers: str, last_line: str) -> Journal:
    """The journal of a file that made no progress, whose tests without an end say what they waited for."""
    why = f"it made no progress, and was ended while it waited for {servers}; its last line: {last_line}"
    tests = [test if test.reported else msgspec.structs.replace(test, message=why) for test in journal.tests]
    return msgspec.structs.replace(journal, tests=tests)


def _environment(stage: Stage, settings: FileRunSettings) -> Mapping[str, str]:
    emulated = settings.target.emulator.is_qemu_user
    return {
        **process.PLAIN_ENVIRONMENT,
        "PLUMB_JOURNAL": str(stage.journal),
        "PLUMB_FOLDERS": ":".join(map(str, settings.homes)),
        "PLUMB_GUEST": settings.guest,
        "PLUMB_LEFT_OUT": "\n".join(settings.left_out),
        "PLUMB_PATIENCE": str(settings.pace.patience),
        "PLUMB_MACHINE": settings.target.machine,
        "PLUMB_SIGABRT": str(EMULATED_SIGABRT if emulated else int(signal.SIGABRT)),
        "PLUMB_PORT": str(stage.first_port),
        "PLUMB_PORTS": f"{PORTS - TEST_PORTS} {TEST_PORTS}",
        "PLUMB_PRIVATE_NETWORK": "yes" if settings.private else "no",
        "PLUMB_SEED": str(settings.seed + 1),
    }


def _watch(
    stage: Stage,
    poll: Callable[[], int | None],
    usable: UsableTime,
    settings: FileRunSettings,
    cancelled: threading.Event,
) -> dict[str, list[str]] | None:
    """Wait for the end; None at it. What servers do, as `awaited` returns it, if the file stood still for too long, by
    the time that its processes could use.
    """
    pace = settings.pace
    length, moved, next_look = -1, 0.0, 0.0
    while poll() is None and not cancelled.is_set():
        now = stage.journal.stat().st_size if stage.journal.is_file() else 0
        seconds = usable.look()
        if now != length:
            length, moved = now, seconds
            next_look = moved + pace.silent_seconds
        elif seconds > next_look:
            states = _awaited(stage, settings)
            if are_silent(states) or seconds - moved > pace.stall_seconds:
                return states
            next_look = min(seconds + pace.silent_seconds, moved + pace.stall_seconds)
        time.sleep(POLL_SECONDS)
    return None


def _last_line(log: Path) -> str:
    lines = _COLOUR.sub("", log.read_text("utf-8", "replace")).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
