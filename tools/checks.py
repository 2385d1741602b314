"""One `plumb check` as the tools that store answers run it: tools.matrix and tools.trees.

It is run as a person types it. Its judgement becomes what a file of answers keeps; without one, its last words do.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.core.finding import Verdict  # noqa: TC001  msgspec reads it
from harness.core.model import CANARY_SUITE, Record
from harness.core.processes import process
from harness.judge.findings import Judgement
from harness.report.formats import findings_json
from tools import project

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harness.core.finding import Finding, Witness
    from harness.judge.verdict import CellVerdict

LONGEST_MESSAGE = 2000
LAST_LINES = 5
LATE = "the check did not end in time"
JUDGED = {ExitCode.PASS, ExitCode.FINDINGS, ExitCode.INCONCLUSIVE}
_ADDRESS = re.compile(r"\b[a-z]+://\S*/| *\[IP: [^]]*\]|(?<![\w.])/(?:[\w.+-]+/)+")
"""An address, or the folders of an absolute path: each machine has its own."""


class SuiteTally(Record, frozen=True):
    """The results of one suite's tests, which prove that the check looked."""

    suite: str
    verdict: Verdict
    passed: int
    failed: int
    skipped: int
    reason: str = ""


class CellFinding(Record, frozen=True):
    """A finding of a cell."""

    id: str
    title: str
    suites: tuple[str, ...]
    known: str = ""
    """Why it is in the known list; empty if it is not."""
    tests: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """The beginnings of the messages of its failed tests, by which docs/found distinguishes bugs."""


class CheckEnd(NamedTuple):
    """How a check ended."""

    judgement: Judgement | None
    code: int
    """The exit status."""
    seconds: int
    reason: str
    """Why there is no judgement, with the last lines of its output; empty if there is one."""
    output: str
    """Everything that it printed, where the middle of a very long output is cut out."""


def run_check(
    words: Sequence[str], run: Path, *, jobs: int | None, deadline_seconds: float, usable: bool = False
) -> CheckEnd:
    """Run `plumb` with these words, into a new run folder. `jobs`: None for a command that has no such option.

    `usable`: only the time that its processes could use counts towards the deadline, not waits for processors.

    Raises KeyboardInterrupt where the check was interrupted, and InfrastructureError if it cannot be started.
    """
    began = time.monotonic()
    several = [] if jobs is None else ["--jobs", str(jobs)]
    result = project.plumb(*words, *several, "--run", run, deadline_seconds=deadline_seconds, usable=usable)
    seconds = round(time.monotonic() - began)
    if result.code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    file = run / findings_json.FORMAT.file
    if not result.expired and result.code in JUDGED and file.is_file():
        return CheckEnd(json_codec.decode(file.read_bytes(), Judgement), result.code, seconds, "", result.text)
    ended = LATE if result.expired else f"the check ended with status {result.code}"
    return CheckEnd(None, result.code, seconds, f"{ended}\n{last_lines(result.text)}", result.text)


def last_lines(output: str) -> str:
    """The end of an output, without what only this machine has."""
    return "\n".join(without_places(line) for line in output.strip().splitlines()[-LAST_LINES:])


def without_places(line: str) -> str:
    """A line without what only this machine has: addresses, and folders of absolute paths."""
    return _ADDRESS.sub("", line)


@contextlib.contextmanager
def trial_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder for a check, which is removed however this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    process.keep_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_run(run: Path, keep: Path | None, name: str) -> None:
    """Move a run into the folder for kept ones, in place of an earlier one of that name. Without a folder, or a run:
    nothing.
    """
    if keep is not None and run.is_dir():
        keep.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(keep / name, ignore_errors=True)
        shutil.move(run, keep / name)


def tallies(cells: Iterable[CellVerdict]) -> tuple[SuiteTally, ...]:
    """What is stored of the verdicts of one target's cells."""
    return tuple(
        SuiteTally(
            suite=one.suite,
            verdict=one.verdict,
            passed=one.passed,
            failed=one.failed,
            skipped=one.skipped,
            reason=one.reason,
        )
        for one in cells
    )


def canaries(suites: Iterable[SuiteTally]) -> int:
    """How many canaries behaved."""
    return sum(one.passed for one in suites if one.suite == CANARY_SUITE)


def tests(suites: Iterable[SuiteTally]) -> Counter[str]:
    """How many tests passed, failed and were skipped, without the canaries."""
    counts: Counter[str] = Counter()
    for one in suites:
        if one.suite != CANARY_SUITE:
            counts.update(passed=one.passed, failed=one.failed, skipped=one.skipped)
    return counts


def seen(finding: Finding, witnesses: Sequence[Witness]) -> CellFinding:
    """The data that distinguish a finding from others, according to some of its witnesses."""
    occasions = [one for witness in witnesses for one in witness.occasions]
    return CellFinding(
        id=finding.id,
        title=finding.title,
        known=finding.known,
        suites=tuple(sorted({witness.suite for witness in witnesses})),
        tests=tuple(sorted({one.test for one in occasions})),
        said=tuple(sorted({one.said[:LONGEST_MESSAGE] for one in occasions} - {""})),
    )
