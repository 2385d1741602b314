"""Runs a file of upstream's tests on after a test that never ends.

Upstream runs a file in one process, so such a test would take the results of all tests after it. The rest of the file
runs in a further process, which leaves that test out. Another test may need what it does: a failure there says nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from harness.run.upstream import results
from harness.run.upstream.file_run import run_file
from harness.run.upstream.journal import FAILED

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.run.upstream.file_run import FileRun, FileRunSettings
    from harness.run.upstream.journal import UpstreamTest
    from harness.run.upstream.stage import Stage
    from harness.run.upstream.test_files import UpstreamFile

MOST_ENDLESS, MOST_SILENT = 3, 1
"""A file runs on after so many tests that never end, each of which costs minutes; after so many of which a server does
not reply any more: what hangs in two tests hangs as a rule in most.
"""


def run_to_end(
    stage: Stage,
    file: UpstreamFile,
    settings: FileRunSettings,
    *,
    log: Path,
    cancelled: threading.Event,
    each: Callable[[FileRun], None] = lambda _: None,
) -> FileRun:
    """Run a file as `run_file` does, and its rest after each test that never ends.

    `each` is called with the run of every process when it has ended, while the files of its servers are there.
    """
    whole = part = run_file(stage, file, settings, log=log, cancelled=cancelled)
    each(part)
    left_out: list[UpstreamTest] = []
    silent = 0
    while (endless := endless_test(part)) is not None and len(left_out) < MOST_ENDLESS and not cancelled.is_set():
        silent += part.silent
        if silent > MOST_SILENT:
            break
        left_out.append(endless)
        settings = msgspec.structs.replace(settings, left_out=(*settings.left_out, pattern_of(endless)))
        part = run_file(stage, file, settings, log=log, cancelled=cancelled)
        each(part)
        whole = joined(whole, part, left_out)
    return whole


def endless_test(run: FileRun) -> UpstreamTest | None:
    """The test that a stalled file was in, the innermost if tests are nested; None if it was in none."""
    begun = [test for test in run.journal.tests if not test.reported]
    return begun[-1] if run.stalled and begun else None


def pattern_of(test: UpstreamTest) -> str:
    """The glob that leaves out a test, as in FileRunSettings.left_out."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", test.name).replace("\n", "?")


def joined(run: FileRun, rest: FileRun, left_out: Sequence[UpstreamTest]) -> FileRun:
    """The run of a file, and the run of its rest without the tests `left_out`, as one.

    A test has the result of the process in which it first ended.
    """
    ended = [test for test in run.journal.tests if test.reported]
    _, others = results.matched(results.items_of(ended), rest.journal.tests)
    further = [_without(left_out, test) for test in others]
    # Tests around the one that never ends began in both processes.
    again = {test.name for test in others}
    journal = msgspec.structs.replace(
        rest.journal,
        tests=[*(test for test in run.journal.tests if test.reported or test.name not in again), *further],
        # A failure outside of tests may follow from what was left out, too.
        outside=run.journal.outside,
        done=rest.journal.done and not rest.journal.outside,
    )
    return msgspec.structs.replace(rest, journal=journal, seconds=round(run.seconds + rest.seconds, 2))


def _without(left_out: Sequence[UpstreamTest], test: UpstreamTest) -> UpstreamTest:
    """A test as it counts where others were left out: a failure is no result."""
    if test.reported not in FAILED:
        return test
    names = ", ".join(f"'{one.name}'" for one in left_out)
    why = f"it failed in a process without what never ends in this file, {names}: {test.message}"
    return msgspec.structs.replace(test, reported="", message=why)
