"""The plugin of a trial's pytest: it keeps the chosen tests and records their ends, and the lines that each executes.

It is loaded before the harness, whose modules' lines would be missed otherwise.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import coverage
import pytest

from tools.harness_mutants.observer import OBSERVER

if TYPE_CHECKING:
    from collections.abc import Generator

ENDS, LINES, FINISHED = "ends.jsonl", "lines.coverage", "finished"
"""In the folder of results: how tests ended, the data of coverage, and a file if the session came to its end."""

_STARTED: dict[str, float] = {}
_COVERAGE: list[coverage.Coverage] = []


def pytest_load_initial_conftests() -> None:
    """Record lines from here on: conftest.py imports the harness."""
    if OBSERVER is not None and OBSERVER.orders["lines"]:
        # The lines say which functions this process enters; what it starts is observed as usual.
        OBSERVER.stop()
        root = OBSERVER.orders["root"]
        recorder = coverage.Coverage(
            data_file=str(OBSERVER.folder / LINES), source=[f"{root}/harness"], config_file=False, messages=False
        )
        recorder.start()
        _COVERAGE.append(recorder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the chosen tests, in the chosen order."""
    if OBSERVER is None or OBSERVER.orders["chosen"] is None:
        return
    ranks = {name: rank for rank, name in enumerate(OBSERVER.orders["chosen"])}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in ranks])
    items[:] = sorted((item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be read is a test that fails."""
    if report.failed:
        _record(report.nodeid, "failed", "collect", 0)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    _STARTED[nodeid] = time.monotonic()
    _begin(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A part of a test has ended: setup, call or teardown."""
    if report.when == "teardown" or not report.passed:
        _record(report.nodeid, report.outcome, report.when, time.monotonic() - _STARTED[report.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object],
) -> Generator[None, object, object]:
    """What a fixture executes for several tests belongs to the file, not to its first test."""
    if OBSERVER is None or fixturedef.scope == "function":
        return (yield)
    before = OBSERVER.test
    _begin(before.partition("::")[0])
    try:
        return (yield)
    finally:
        _begin(before)


def pytest_sessionfinish() -> None:
    """The session has come to its end."""
    if OBSERVER is not None:
        (OBSERVER.folder / FINISHED).touch()


def pytest_unconfigure() -> None:
    """Write the lines."""
    for recorder in _COVERAGE:
        recorder.stop()
        recorder.save()


def _begin(test: str) -> None:
    if OBSERVER is not None:
        OBSERVER.begin(test)
    for recorder in _COVERAGE:
        recorder.switch_context(test)


def _record(test: str, outcome: str, when: str, seconds: float) -> None:
    if OBSERVER is not None:
        entry = {"test": test, "outcome": outcome, "when": when, "seconds": round(seconds, 3)}
        with (OBSERVER.folder / ENDS).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
