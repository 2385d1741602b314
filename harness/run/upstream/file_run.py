"""Runs one file of upstream's tests to its end, or until it makes no progress, and keeps what it printed."""

from __future__ import annotations

import random
import re
import signal
import time
from typing import TYPE_CHECKING

from harness.build.qemu_user import EMULATED_SIGABRT
from harness.core.model import Record
from harness.core.processes import process
from harness.core.processes.capped_log import capped
from harness.run.upstream.journal import Journal, read_journal
from harness.run.upstream.test_files import PORTS, UpstreamFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.core.target_model import Target
    from harness.run.upstream.stage import Stage

STALL_SECONDS = 120.0
"""How long a file may make no progress on a machine as fast as the host, beyond what its slowest test takes."""
POLL_SECONDS = 0.1
FIRST_PORT, RANGES = 11000, 40
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class FileRun(Record, frozen=True):
    """One run of a file."""

    journal: Journal
    stalled: bool
    """Whether it was ended because it made no progress."""
    last_line: str
    """The last line that it printed."""
    seconds: float


class Pace(Record, frozen=True):
    """How long a file may stand still."""

    patience: float
    """How many times longer than usual upstream's own loops wait."""
    stall_seconds: float


def run_file(
    stage: Stage,
    file: UpstreamFile,
    *,
    log: Path,
    homes: list[Path],
    target: Target,
    seed: int,
    pace: Pace,
    server: tuple[str, int] | None = None,
    private: bool = True,
) -> FileRun:
    """Run a file, against `server` if one is given. Its processes, strays included, have ended when it returns.

    `private`: nobody else uses the network. Otherwise ports come from a range of their own.
    """
    stage.clear()
    environment = _environment(stage, homes, target=target, seed=seed, pace=pace, private=private)
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as stream, capped(stream.fileno(), start=stream.tell()):
        started = process.start(
            file.command(stage.folder, server, None if private else _first_port()),
            output=stream,
            folder=stage.folder,
            environment=environment,
        )
        try:
            stalled = _watch(stage, started.poll, pace.stall_seconds)
        finally:
            process.kill_group(started)
    content = stage.journal.read_bytes() if stage.journal.is_file() else b""
    return FileRun(
        journal=read_journal(content),
        stalled=stalled,
        last_line=_last_line(log),
        seconds=round(time.monotonic() - began, 2),
    )


def _environment(
    stage: Stage, homes: list[Path], *, target: Target, seed: int, pace: Pace, private: bool
) -> Mapping[str, str]:
    return {
        **process.PLAIN_ENVIRONMENT,
        "PLUMB_JOURNAL": str(stage.journal),
        "PLUMB_FOLDERS": ":".join(map(str, homes)),
        "PLUMB_PATIENCE": str(pace.patience),
        "PLUMB_MACHINE": target.machine,
        "PLUMB_SIGABRT": str(EMULATED_SIGABRT if target.emulator.is_qemu_user else int(signal.SIGABRT)),
        "PLUMB_PRIVATE_NETWORK": "yes" if private else "no",
        "PLUMB_SEED": str(seed + 1),
    }


def _first_port() -> int:
    """The first of a range of ports that no other cell takes, unless two draw the same one of forty."""
    return FIRST_PORT + PORTS * random.randrange(RANGES)


def _watch(stage: Stage, poll: Callable[[], int | None], stall_seconds: float) -> bool:
    """Wait for the end. Returns whether the file stood still for too long."""
    length, moved = -1, time.monotonic()
    while poll() is None:
        now = stage.journal.stat().st_size if stage.journal.is_file() else 0
        if now != length:
            length, moved = now, time.monotonic()
        elif time.monotonic() - moved > stall_seconds:
            return True
        time.sleep(POLL_SECONDS)
    return False


def _last_line(log: Path) -> str:
    lines = _COLOUR.sub("", log.read_text("utf-8", "replace")).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
