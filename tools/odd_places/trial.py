"""A trial: the tests outside end_to_end in one place, and which of the settings fails a test that fails there."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import msgspec

from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.processes import process
from tests.support import waits
from tools.odd_places import start
from tools.odd_places.place import Place, started, user_of
from tools.odd_places.runs import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tools.odd_places.runs import Run

TESTS = ("tests", "--ignore", "tests/end_to_end")
TRIAL_SECONDS = 5400.0
BLAMED = 60
"""Of so many failing tests at most it is asked which setting fails them."""
TIMES = "build/test-times/odd"


class Outcome(Record, frozen=True):
    """How the tests ended in a place."""

    run: str
    passed: int
    skipped: int
    failed: dict[str, list[str]]
    """Failing test -> the settings that each fail it alone; `the folder`; `not again`; or `not examined`."""
    complaint: str
    """Why pytest did not finish, or empty."""
    seconds: float
    product: list[str] | None = None
    """A line for each step with the product that did not do what it should. None: they were not tried."""

    @property
    def good(self) -> bool:
        """Whether all tests ran and none failed, and the product did what it should."""
        return not self.failed and not self.complaint and not self.product


class Trial:
    """Runs tests in one place."""

    def __init__(self, run: Run, place: Place, logs: Path, workers: int) -> None:
        """`logs`: the folder for this run's logs."""
        self._run = run
        self._place = place
        self._logs = logs
        self._workers = workers

    def outcome(self, number: int = 1) -> Outcome:
        """Run all tests, and those that fail again to find out why. Raises InfrastructureError."""
        settings = self._run.settings
        with busy(self._run.busy):
            records, ended = self._tests(settings, TESTS, f"tests-{number}", self._workers)
        failed = sorted({one.test for one in records if one.outcome == "failed"})
        complaint = ""
        if ended.expired:
            complaint = f"the tests did not end within {TRIAL_SECONDS:g} s"
        elif ended.code not in {0, 1} or (ended.code == 1 and not failed):
            complaint = f"pytest ended with {ended.code}"
        return Outcome(
            run=self._run.name,
            passed=sum(one.outcome == "passed" for one in records),
            skipped=sum(one.outcome == "skipped" for one in records),
            failed=self._blame(failed, number),
            complaint=complaint,
            seconds=ended.seconds,
        )

    def _blame(self, failed: Sequence[str], number: int) -> dict[str, list[str]]:
        """Failing test -> the settings that fail it."""
        found: dict[str, list[str]] = {test: [] for test in failed}
        asked = list(failed)[:BLAMED]
        for test in failed[BLAMED:]:
            found[test].append("not examined")
        if not asked:
            return found

        def failing(settings: Settings, tests: Sequence[str], name: str) -> set[str]:
            records, _ = self._tests(settings, tests, f"again-{number}-{name}", 0)
            return {one.test for one in records if one.outcome == "failed"} & set(tests)

        again = failing(self._run.settings, asked, "all")
        for test in set(asked) - again:
            found[test].append("not again")
        without = failing(Settings(), sorted(again), "folder") if again else set()
        for test in without:
            found[test].append("the folder")
        left = sorted(again - without)
        for setting in self._run.settings.named():
            if left:
                alone = msgspec.structs.replace(Settings(), **{setting: getattr(self._run.settings, setting)})
                for test in failing(alone, left, setting):
                    found[test].append(setting)
        return found

    def _tests(
        self, settings: Settings, tests: Sequence[str], name: str, workers: int
    ) -> tuple[list[waits.TimedTest], process.Result]:
        """Run these tests with these settings."""
        self._place.belong_to(settings)
        times = self._place.checkout / TIMES
        shutil.rmtree(times, ignore_errors=True)
        orders = start.Orders.of(settings, str(self._place.checkout), user_of(settings))
        words = [f"{self._place.checkout}/.venv/bin/python", "-m", "pytest", "-q", "--times", TIMES]
        ended = process.run(
            started(orders, [*words, "-n", str(workers), *tests]),
            deadline_seconds=TRIAL_SECONDS,
            log=self._logs / f"{name}.log",
            environment=self._place.environment(settings),
        )
        records = [one for one in waits.read(times) if one.test != waits.COLLECTION] if times.is_dir() else []
        if not records and not ended.expired:
            raise InfrastructureError(
                f"no test ran in {self._place.checkout}",
                because=ended.text[-1000:],
                log=str(self._logs / f"{name}.log"),
            )
        return records, ended


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """So many processes that each want a processor."""
    started_ones = [process.start(["sh", "-c", "while :; do :; done"]) for _ in range(number)]
    try:
        yield
    finally:
        for one in started_ones:
            process.kill_group(one)
