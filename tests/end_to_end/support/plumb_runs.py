"""Runs `plumb` as a user would, in a separate process, and finds the processes and files that it leaves behind."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN_SECONDS = 1800.0
"""Deadline of a whole check. The first check builds emulators."""
GONE_SECONDS = 20.0

PLUMB = [sys.executable, "-m", "harness.cli"]
FIXUP_FOR_SIGNAL = (
    "from harness.build.emulators import runner as emulator; from harness.plan.catalog import Catalog; "
    "honest = emulator.alignment_option; "
    "emulator.alignment_option = lambda policy: honest(Catalog().policies['fixup']); "
    "from harness.cli.console_script import main; main()"
)
"""A sabotaged harness: the emulator repairs accesses that it should trap."""


def run(*words: object, program: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(program or PLUMB), *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_SECONDS,
        check=False,
    )


def document(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON document on standard output."""
    assert finished.stdout.startswith("{"), (
        f"exit {finished.returncode}, no document; standard error:\n{finished.stderr}"
    )
    read: dict[str, Any] = json.loads(finished.stdout)
    return read


@contextlib.contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Run `plumb` in the background, and kill it at the end if it is still running."""
    with subprocess.Popen(
        [*PLUMB, *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def processes_of(folder: Path, *, named: str = "") -> list[psutil.Process]:
    """Live processes that work in a folder, or whose command line mentions it, except `plumb` itself.

    A server that is not emulated overwrites its command line with its own title.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            works_there = Path(process.cwd()).is_relative_to(folder)
            ours = (works_there or any(str(folder) in word for word in words)) and "harness.cli" not in words
            # An ending process no longer has a command line.
            if ours and named in "".join(words[:1]) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_for(condition: Callable[[], Any], *, seconds: float) -> Any:
    """The condition's first true value, or its last one at the deadline."""
    deadline = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return result


def emulated_guest(folder: Path) -> psutil.Process:
    """The running server under QEMU; its command line names the fault log in the run folder."""
    found = wait_for(lambda: processes_of(folder, named="qemu-"), seconds=RUN_SECONDS)
    assert found, "no guest was started"
    first: psutil.Process = found[0]
    return first
