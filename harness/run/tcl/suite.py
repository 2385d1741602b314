"""Tcl suites as pytest tests: one item for each tcltest test, judged by its printed summary, and one tclsh for all
files of a cell.

tcltest exits 0 when tests fail, so that only its summary line counts, and a missing summary is a failure.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.errors import InfrastructureError
from harness.core.processes import environment, process
from harness.core.processes.line_process import LineProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.processes.line_process import Answer, AnswerEnd
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

RUNNER = Path(__file__).with_name("runner.tcl")
LIST_SECONDS = 60.0
TEST_REPLIES = 24
"""Time limit of a Tcl test, in replies: many tests are pipelines of hundreds of requests."""


class Interpreter:
    """One tclsh that has read testsuite files and runs their tests on request; replaced if it fails.

    Starting a tclsh for every test would take longer than most tests run, and one for every file a second for a suite.
    The tests share only the constraints found so far: each has its own connections, keys, variables and random numbers,
    and the tests of each file a namespace.
    """

    def __init__(self, files: Sequence[Path], cell: CellSpec) -> None:
        options = ["--client", str(cell.tcl_client), "--seed", str(cell.seed), "--tier", cell.tier]
        self._list_seconds = cell.runner.target.host_deadline_seconds(LIST_SECONDS)
        self._command = ["tclsh", str(RUNNER), "--serve", *options, *map(str, files)]
        self._dialogue: LineProcess | None = None
        self._tests: dict[Path, list[tuple[str, str]]] = {file: [] for file in files}

    def tests(self, file: Path) -> list[tuple[str, str]]:
        """Name and description of each test of a file. Raises InfrastructureError if the files cannot be read."""
        self._open()
        return self._tests[file]

    def run(self, name: str, guest: Guest, oracle: Guest | None = None) -> Answer:
        """Run one test against a guest and return what tcltest printed. A feature that a test needs must be the
        oracle's too. Raises InfrastructureError if the files cannot be read.
        """
        endpoint, record = guest.access.client_endpoint
        beside = [oracle.access.path if oracle is not None else "", record or ""]
        answer = self._open().ask(
            "\t".join([str(endpoint), f"{guest.deadline_seconds:.0f}", name, *map(str, beside)]),
            last=f"over: {name}",
            deadline_seconds=guest.deadline_seconds * TEST_REPLIES,
        )
        if answer.end != "complete":
            self.close()
        return answer

    def _open(self) -> LineProcess:
        if self._dialogue is None:
            if shutil.which("tclsh") is None:
                raise InfrastructureError("tclsh is not installed", remedy="plumb doctor --install")
            # Tcl reads requests and names files in the locale's encoding.
            variables = {**process.PLAIN_ENVIRONMENT, **environment.CELL_SETTINGS}
            self._dialogue = LineProcess(self._command, environment=variables)
            answer = self._dialogue.read(last="over: TESTS", deadline_seconds=self._list_seconds)
            if answer.end != "complete":
                self.close()
                where = str(next(iter(self._tests)).parent)
                raise InfrastructureError(
                    "the Tcl suite cannot be listed", where=where, because=answer.text.strip() or answer.end
                )
            self._tests = {file: [] for file in self._tests}
            for line in answer.text.splitlines():
                file, name, description = line.split("\t", 2)
                self._tests[Path(file)].append((name, description))
        return self._dialogue

    def close(self) -> None:
        """End the tclsh."""
        if self._dialogue is not None:
            self._dialogue.close()
            self._dialogue = None


class TclFile(pytest.File):
    """One .testsuite file, whose tests an interpreter runs."""

    def __init__(self, *, interpreter: Interpreter, **more: Any) -> None:
        super().__init__(**more)
        self._interpreter = interpreter

    def collect(self) -> Iterator[pytest.Item]:
        """List the file's tests; this opens no connection."""
        for name, description in self._interpreter.tests(self.path):
            yield TclItem.from_parent(self, name=name, description=description)

    def run(self, name: str, guest: Guest, oracle: Guest) -> None:
        """Run one test of the file. Raises InfrastructureError when the oracle does not answer, and when what the test
        sent could not be recorded.
        """
        answer = self._interpreter.run(name, guest, oracle)
        if lost := re.search(r"^oracle lost: (.*)$", answer.text, re.MULTILINE):
            raise InfrastructureError("the native build does not answer", because=lost[1], log=str(oracle.evidence.log))
        if lost := re.search(r"^record lost: (.*)$", answer.text, re.MULTILINE):
            raise InfrastructureError("the requests of a test cannot be recorded", where=name, because=lost[1])
        verdict(answer.text, end=answer.end)


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


def verdict(output: str, *, end: AnswerEnd) -> None:
    """Judge a test by tcltest's summary: return, skip with the constraint's name, or raise TclFailedError.

    An interpreter that did not get to its `end` printed no summary: what looks like one is a server's.
    """
    if end == "expired":
        raise TclFailedError(f"timed out\n{output}")
    if end == "ended":
        raise TclFailedError(f"tclsh ended before the test did\n{output}")
    # Before it there may be a reply with the same words: a server's words judge nothing.
    summaries = re.findall(r"Total\s+\d+\s+Passed\s+(\d+)\s+Skipped\s+\d+\s+Failed\s+(\d+)", output)
    if not summaries:
        raise TclFailedError(f"tcltest printed no summary\n{output}")
    passed, failed = map(int, summaries[-1])
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
