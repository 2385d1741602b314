"""Runs one cell in its own process: the command, its deadline, and why a process gives no trustworthy result.

As a program it becomes the processes of many cells (harness.core.processes.fork_server). Such a process takes half a
second of processor time before its first test, most of it for imports that are the same for all cells. The program
makes these once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import re
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from harness.core.errors import ExitCode
from harness.core.processes import environment, fork_server, process, temporary_folder
from harness.core.processes.fork_server import ForkServer
from harness.core.processes.scheduling import UsableTime
from harness.core.processes.timeouts import if_slow
from harness.core.strict_toml import ROOT
from harness.record import run_folder
from harness.record.run_record import CellRecord
from harness.run.cell_spec import write_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.core.progress import Progress
    from harness.record.run_record import ProblemKind
    from harness.run.cell_spec import CellSpec

CELL_SECONDS = {"quick": 420.0, "full": 1500.0, "thorough": 5400.0, "kernel": 1500.0}
"""Tier -> deadline of a cell, in the time that its processes can use: on a busy machine a cell takes longer.

A target that faults without end is stopped and not waited for.
"""
LEAST_ROOM_BYTES = 1 << 20
"""With less free space, the disk with temporary files is full."""
MARGIN_SECONDS = 300.0
"""How long a cell with a time limit may take beyond the limit: a failure that it finds at the end is still shrunk."""
BEFORE_PYTEST = ("-I", "-B", "-m", "pytest")
"""The arguments of a cell's process between the interpreter and pytest's own arguments."""
IMPORTED = (
    "harness.protocol.pipeline",
    "harness.protocol.reply_comparison",
    "harness.run.session.cell_session",
    "harness.run.detector_canary",
    "harness.run.tcl.suite",
    "harness.run.upstream.test_files",
)
"""The modules that cells import, besides pytest. The plugin and the suites are not among them, because pytest rewrites
their assertions.
"""
WITHOUT = (
    "logging",
    "threadexception",
    "unraisableexception",
    "doctest",
    "junitxml",
    "pastebin",
    "setuponly",
    "stepwise",
)
"""Plugins of pytest that a cell does not need: they take a fifth of pytest's time for each test, and half of its time
to end. Two of them turn into warnings what Python itself prints.
"""
MANY_OBJECTS = 100_000
"""The number of new objects after which garbage is collected. With Python's default of 700, a cell spent one thirtieth
of its time on it.
"""
OUT_OF_TIME = "the time that --time allows was over before its tests had ended"
TESTS_FAILED, NO_TESTS_COLLECTED = 1, 5
"""Values of pytest.ExitCode; importing pytest for them would slow down the start of every command."""


@contextlib.contextmanager
def cell_server(*, timeout_multiplier: float = 1.0) -> Iterator[ForkServer]:
    """The fork server of many cells. `timeout_multiplier`: how many times longer than usual its imports may take.

    The cells of one suite share a folder for the compiled suite, which pytest would otherwise compile for each of them.
    """
    with tempfile.TemporaryDirectory(prefix="plumbline-", ignore_cleanup_errors=True) as compiled:
        command = [sys.executable, "-I", "-B", "-m", "harness.workflows.cell_process", compiled]
        deadline = fork_server.DEADLINE_SECONDS * timeout_multiplier
        with ForkServer(command, folder=ROOT, environment=environment.for_cell(), deadline_seconds=deadline) as server:
            yield server


def deadline_seconds(spec: CellSpec) -> float:
    """The deadline of a cell."""
    patient = spec.runner.target.host_deadline_seconds
    usual = spec.deadline_seconds or CELL_SECONDS["full" if spec.patient else spec.tier]
    # The limit of an open-ended suite is the user's own.
    return max(patient(usual), (spec.limit_seconds or 0) + patient(MARGIN_SECONDS))


class _OwnProgress:
    """A cell's progress, which it writes to a file in its folder."""

    def __init__(self, cell: str, folder: Path, progress: Progress) -> None:
        self._cell = cell
        self._file = folder / run_folder.PROGRESS
        self._progress = progress
        self._repeated = ""

    def repeat(self) -> None:
        """Say its last line, unless that was said before: a suite repeats it only if something new happened."""
        line = self._file.read_text("utf-8").strip() if self._file.is_file() else ""
        if line and line != self._repeated:
            self._progress.say(f"{self._cell}: {line}")
            self._repeated = line


class _NeedlessError(Exception):
    """Why the result of a cell that runs is no longer of use."""


def run_cell(
    spec: CellSpec,
    progress: Progress,
    *,
    fail_fast: bool = False,
    server: ForkServer | None = None,
    until: float = math.inf,
    needless: Callable[[], str] = lambda: "",
) -> CellRecord:
    """Run a cell's tests and record how its process ended. `fail_fast`: the first failed test ends the cell. `until`:
    when it is ended in any case, as of time.monotonic(). `needless`: why its result is no longer of use; empty while it
    is. Then it is ended, too, and absent.

    The process is one that `server` becomes, if given, and otherwise a new interpreter.
    """
    cell = f"{spec.runner.target.name}/{spec.suite}"
    folder = spec.folder
    folder.mkdir(parents=True)
    write_cell(folder / "cell.json", spec)
    own_progress = _OwnProgress(cell, folder, progress)

    def watch() -> None:
        if spec.limit_seconds or spec.upstream:
            own_progress.repeat()
        if why := needless():
            raise _NeedlessError(why)

    started = time.monotonic()
    try:
        result = process.run(
            [
                *pytest_command([*spec.tests_of, spec.suite], folder / "cell.json"),
                *(["--exitfirst"] if fail_fast else []),
            ],
            deadline_seconds=deadline_seconds(spec),
            log=folder / "pytest.log",
            folder=ROOT,
            environment=environment.for_cell(),
            watch=watch,
            watch_seconds=UsableTime.SAMPLE_SECONDS,
            spawn=server.spawn if server is not None else None,
            usable=True,
            until=until,
        )
    except _NeedlessError as why:
        return CellRecord(
            target=spec.runner.target.name,
            suite=spec.suite,
            seconds=round(time.monotonic() - started, 2),
            problem=str(why),
            problem_kind="absent",
        )
    problem, kind = _problem_and_kind(spec, result)
    if result.expired and time.monotonic() >= until:
        problem = OUT_OF_TIME
    beside = f" ({folder.name})" if run_folder.has_own_seal(folder.name) else ""
    progress.say(f"{cell}{beside}: {_last_line(result.text)}")
    return CellRecord(
        target=spec.runner.target.name,
        suite=spec.suite,
        seconds=round(result.seconds, 2),
        problem=problem,
        problem_kind=kind,
        status=result.code,
        emulator=spec.runner.emulator_digest,
    )


def pytest_command(suites: Sequence[str], cell: Path) -> list[str | Path]:
    """The command that runs one cell: the tests of these suites, one after the other.

    A person may type it as well, even while the run continues.

    Python is isolated (-I): it reads no PYTHON* variable, nothing of the user's site, and no module of the current
    folder. The command names the file that configures pytest, so that no file above the project does.
    """
    configuration: list[str | Path] = ["--config-file", ROOT / "pyproject.toml", "--rootdir", ROOT]
    options = ["-q", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--import-mode=importlib"]
    # Loading plugins takes a quarter of a short cell's time, and no suite uses one from outside the project.
    options.append("--disable-plugin-autoload")
    options += [f"-pno:{plugin}" for plugin in WITHOUT]
    return [
        sys.executable,
        *BEFORE_PYTEST,
        *(ROOT / "suites" / suite for suite in suites),
        "--plumb-cell",
        cell,
        *configuration,
        *options,
    ]


def cell_problem(result: process.Result, folder: Path, *, multiplier: float = 1.0) -> str:
    """Why a cell's process gives no trustworthy result; empty when pytest returned 0 (passed) or 1 (failed).

    `multiplier`: the factor of its deadline.
    """
    if result.code == ExitCode.INFRASTRUCTURE and (folder / run_folder.PROBLEM).is_file():
        return (folder / run_folder.PROBLEM).read_text("utf-8").strip().removeprefix("error: ")
    if result.expired:
        return f"it did not end within {result.seconds:.0f} s; {if_slow(multiplier)}"
    if result.code in {0, 1}:
        return ""
    if not temporary_folder.has_room(tempfile.gettempdir(), LEAST_ROOM_BYTES):
        # Python itself writes part of a compiled module then, and fails when it reads that (CPython issue 126606).
        return f"the disk with temporary files is full ({tempfile.gettempdir()})"
    return f"its test process ended with status {result.code}: {_last_line(result.text)}"


def _problem_and_kind(spec: CellSpec, result: process.Result) -> tuple[str, ProblemKind]:
    """Why a cell has no result, and whose fault that is; empty for a cell that has one."""
    if spec.tests and result.code == NO_TESTS_COLLECTED:
        return f"none of its tests match --test {' '.join(spec.tests)}", "absent"
    if spec.without and result.code == NO_TESTS_COLLECTED:
        return "the change can reach none of its tests", "absent"
    problem = cell_problem(result, spec.folder, multiplier=spec.runner.target.timeout_multiplier)
    return problem, "deadline" if result.expired else "crash" if problem else ""


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else "no output"


def _serve_cells(compiled: str) -> int:
    """Become the processes of cells, until the run has started its last. Returns the exit status of pytest in each.

    `compiled`: the folder for compiled suites.
    """
    # pytest would slow down the start of every command.
    import pytest  # noqa: PLC0415
    from _pytest.config import default_plugins  # noqa: PLC0415

    for name in (*(f"_pytest.{plugin}" for plugin in default_plugins), *IMPORTED):
        importlib.import_module(name)
    # The folder is new and belongs to this run only, so it contains nothing stale.
    sys.pycache_prefix, sys.dont_write_bytecode = compiled, False
    gc.set_threshold(MANY_OBJECTS)
    words = fork_server.serve()
    return 0 if words is None else int(pytest.main(words[1 + len(BEFORE_PYTEST) :]))


if __name__ == "__main__":
    sys.exit(_serve_cells(sys.argv[1]))
