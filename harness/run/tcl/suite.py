"""Tcl suites as pytest tests: one item for each tcltest test, judged by its printed summary, and one tclsh for each
file.

tcltest exits 0 when tests fail, so that only its summary line counts, and a missing summary is a failure.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.processes.line_process import LineProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.processes.line_process import Answer
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

RUNNER = Path(__file__).with_name("runner.tcl")
LIST_SECONDS = 60.0
TEST_REPLIES = 24
"""Time limit of a Tcl test, in replies: many tests are pipelines of hundreds of requests."""


class Interpreter:
    """One tclsh that has read one testsuite file and runs its tests on request; replaced when it does not end well.

    Starting a tclsh for every test would take longer than most tests run. The tests share only the constraints found so
    far: each has its own connections, keys, variables and random numbers.
    """

    def __init__(self, file: Path, cell: CellSpec) -> None:
        options = ["--client", str(cell.tcl_client), "--seed", str(cell.seed), "--tier", cell.tier]
        self._command = ["tclsh", str(RUNNER), "--serve", *options, str(file)]
        self._dialogue: LineProcess | None = None

    def run(self, name: str, guest: Guest, oracle: Guest | None = None) -> Answer:
        """Run one test against a guest and return what tcltest printed. A feature that a test needs must be the
        oracle's too.
        """
        servers = [guest] if oracle is None else [guest, oracle]
        endpoint, *beside = [str(server.recorded_path) for server in servers]
        if self._dialogue is None:
            self._dialogue = LineProcess(self._command)
        answer = self._dialogue.ask(
            "\t".join([endpoint, f"{guest.deadline_seconds:.0f}", name, *beside]),
            last=f"over: {name}",
            deadline_seconds=guest.deadline_seconds * TEST_REPLIES,
        )
        if answer.end != "complete":
            self.close()
        return answer

    def close(self) -> None:
        """End the tclsh."""
        if self._dialogue is not None:
            self._dialogue.close()
            self._dialogue = None


class TclFile(pytest.File):
    """One .testsuite file, and the interpreter that runs its tests."""

    def __init__(self, *, cell: CellSpec, **more: Any) -> None:
        super().__init__(**more)
        self._cell = cell
        self._interpreter: Interpreter | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """List the file's tests with the runner; this opens no connection."""
        if shutil.which("tclsh") is None:
            raise InfrastructureError("no tclsh", remedy="plumb doctor --install")
        words = ["tclsh", str(RUNNER), "--list", "--client", str(self._cell.tcl_client), str(self.path)]
        result = process.run(words, deadline_seconds=LIST_SECONDS)
        if result.code != 0:
            raise InfrastructureError(
                "the Tcl suite cannot be listed", where=str(self.path), because=result.text.strip()
            )
        for line in result.text.splitlines():
            name, _, description = line.partition("\t")
            yield TclItem.from_parent(self, name=name, description=description)

    def run(self, name: str, guest: Guest, oracle: Guest) -> None:
        """Run one test in the file's interpreter. Raises InfrastructureError when the oracle does not answer."""
        if self._interpreter is None:
            self._interpreter = Interpreter(self.path, self._cell)
        answer = self._interpreter.run(name, guest, oracle)
        if lost := re.search(r"^oracle lost: (.*)$", answer.text, re.MULTILINE):
            raise InfrastructureError("the native build does not answer", because=lost[1], log=str(oracle.log))
        verdict(answer.text, expired=answer.end == "expired")

    def teardown(self) -> None:
        """End the interpreter: pytest calls this after the file's last test."""
        if self._interpreter is not None:
            self._interpreter.close()


class TclFailedError(Exception):
    """A tcltest test failed; the message is its output."""


class TclItem(pytest.Function):
    """One tcltest test. It is a Function, so that it receives fixtures."""

    def __init__(self, *, name: str, parent: TclFile, description: str, **more: Any) -> None:
        def run_one(guest: Any, oracle: Any) -> None:
            parent.run(name, guest, oracle)

        super().__init__(name=name, parent=parent, callobj=run_one, **more)
        self.description = description

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """The output of Tcl, without a Python traceback."""
        if isinstance(excinfo.value, TclFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """The test's file and name."""
        return self.path, 0, f"{self.path.name}::{self.name}"


def verdict(output: str, *, expired: bool) -> None:
    """Judge a test by tcltest's summary: return, skip with the constraint's name, or raise TclFailedError."""
    if expired:
        raise TclFailedError(f"timed out\n{output}")
    summary = re.search(r"Total\s+(\d+)\s+Passed\s+(\d+)\s+Skipped\s+(\d+)\s+Failed\s+(\d+)", output)
    if summary is None:
        raise TclFailedError(f"tcltest printed no summary\n{output}")
    passed, failed = int(summary[2]), int(summary[4])
    if failed or passed > 1:
        raise TclFailedError(_first_failure(output))
    if not passed:
        reason = re.search(r"^\+\+\+\+ \S+ SKIPPED: (.*)$", output, re.MULTILINE)
        if reason is None:
            raise TclFailedError(f"no test ran and none was skipped\n{output}")
        pytest.skip(reason[1])


def _first_failure(output: str) -> str:
    start = output.find("====")
    return output[start:].strip() if start >= 0 else output.strip()
