"""tests/support/waits.py tells apart what a test waits for. Every process that runs tests writes its records."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import process
from harness.core.strict_toml import ROOT
from tests.support import waits
from tests.support.waits import COLLECTION, WaitWatch, compiling
from tools import test_times as tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from tests.support.waits import Wait

pytestmark = pytest.mark.costly

SECONDS = 0.3
"""How long each wait lasts: many times the interval between two looks."""
DEADLINE_SECONDS = 120
CONFTEST = """
import pytest
from tests.support import order, waits

def pytest_addoption(parser):
    parser.addoption("--times")

def pytest_configure(config):
    waits.record(config)

def pytest_collection_modifyitems(items):
    order.longest_first(items, {f"test_{name}.py": seconds for name, seconds in zip("cadb", (9, 8, 2, 1))})

def pytest_xdist_make_scheduler(config, log):
    return order.LongAndShort(config, log)
"""
TEST = """
import subprocess, time

def test_one():
    subprocess.run(["python3", "-SIc", "sum(range(2_000_000))"])

def test_other():
    assert {passes}
"""


def sleep() -> None:
    time.sleep(SECONDS)


def poll() -> None:
    threading.Event().wait(SECONDS)


def wait_for_a_process() -> None:
    subprocess.run(["sleep", str(SECONDS)], check=True)


def wait_for_a_process_of_the_harness() -> None:
    process.run(["sleep", str(SECONDS)], deadline_seconds=DEADLINE_SECONDS)


def wait_for_an_answer() -> None:
    ours, theirs = os.pipe()
    with subprocess.Popen(["sleep", str(SECONDS)], stdout=theirs) as asked:
        os.close(theirs)
        os.read(ours, 1)
        asked.wait()
    os.close(ours)


def wait_for_a_thread(what: Callable[[], None]) -> None:
    thread = threading.Thread(target=what)
    thread.start()
    thread.join()


def wait_for_a_thread_that_waits_for_a_process() -> None:
    wait_for_a_thread(wait_for_a_process)


def wait_for_a_thread_that_sleeps() -> None:
    wait_for_a_thread(sleep)


@pytest.fixture
def watch() -> Iterator[WaitWatch]:
    """Looks at this test, which compiles nothing."""
    watch = WaitWatch(threading.current_thread(), list)
    watch.start()
    yield watch
    watch.stop()


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (sleep, "sleep"),
        (poll, "sleep"),
        (wait_for_a_process, "process"),
        (wait_for_a_process_of_the_harness, "process"),
        (wait_for_an_answer, "process"),
        (wait_for_a_thread_that_waits_for_a_process, "process"),
        (wait_for_a_thread_that_sleeps, "sleep"),
    ],
)
def test_what_a_test_waits_for_is_told(watch: WaitWatch, what: Callable[[], None], expected: Wait) -> None:
    with watch.measured():
        what()
    assert max(watch.waits, key=watch.waits.__getitem__) == expected
    assert watch.waits[expected] > SECONDS / 2
    longest = watch.places()[0]
    # The innermost line of the project's own: this file's, or the harness'.
    assert (longest.wait, longest.where.partition("/")[0] in {"tests", "harness"}) == (expected, True)


def test_computing_is_no_wait(watch: WaitWatch) -> None:
    used = time.thread_time()
    with watch.measured():
        while time.thread_time() - used < SECONDS:
            pass
    assert watch.running == pytest.approx(SECONDS, rel=0.2)


def test_while_a_compiler_runs_a_test_waits_for_a_build() -> None:
    watch = WaitWatch(threading.current_thread(), lambda: ["redis"])
    watch.start()
    with watch.measured():
        time.sleep(3 * waits.BUILD_LOOK_SECONDS)
    watch.stop()
    assert watch.waits["build"] > waits.BUILD_LOOK_SECONDS
    assert watch.built == ["redis"]


def test_a_descendant_in_a_work_folder_of_the_cache_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path))
    folder = tmp_path / "work" / "redis-armv5" / "src"
    folder.mkdir(parents=True)
    for place, expected in ((tmp_path, []), (folder, ["redis-armv5"])):
        # A child of a child, as compilers are.
        child = process.start(["sh", "-c", "sleep 60; true"], folder=place)
        try:
            assert compiling() == expected
        finally:
            process.kill_group(child)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of four files of two tests each, run by two processes."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "conftest.py").write_text(CONFTEST, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    for name in "abcd":
        (folder / f"test_{name}.py").write_text(TEST.format(passes=name != "d"), "utf-8")
    (folder / "times").mkdir()
    (folder / "times" / "gw7.jsonl").write_text("of an earlier run with more processes\n", "utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--times", "times", "-p", "no:cacheprovider"]
    # In the folder that all sessions share it would remove what earlier ones have left, which can take minutes.
    words += ["--basetemp", str(folder / "temporary")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    result = process.run(words, deadline_seconds=DEADLINE_SECONDS, folder=folder, environment=environment)
    assert "1 failed, 7 passed" in result.text
    return folder / "times"


def test_every_test_of_every_process_has_one_record(records: Path) -> None:
    found = waits.read(records)
    names = [f"test_{file}.py::test_{test}" for file in "abcd" for test in ("one", "other")]
    assert sorted(one.test for one in found) == [COLLECTION, COLLECTION, *names]
    assert [one.test for one in found if one.outcome == "failed"] == ["test_d.py::test_other"]
    assert all(one.children > 0 for one in found if one.test.endswith("::test_one"))
    assert all(one.real > 0 and one.own > 0 for one in found)


def test_each_process_begins_with_a_long_file_and_goes_on_with_a_short_one(records: Path) -> None:
    orders = [
        list(dict.fromkeys(one.test.partition("::")[0] for one in waits.read_file(file) if one.test != COLLECTION))
        for file in sorted(records.glob("*.jsonl"))
    ]
    assert sorted(files[0] for files in orders) == ["test_a.py", "test_c.py"]
    # One process may run both, while the other is still busy with its first.
    assert sorted(name for files in orders for name in files[1:]) == ["test_b.py", "test_d.py"]


def test_the_tables_name_the_classes_the_files_and_the_tests(records: Path) -> None:
    text = tool.report(waits.read(records), by="real", tests=8, files=4)
    assert text.startswith("8 tests in ")
    assert all(word in text for word in [*tool.COLUMNS, "test_a.py", "test_d.py::test_other", COLLECTION])


def test_no_collection_begins_while_the_interpreter_lists_its_frames(
    watch: WaitWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a run of all tests stood still for ever (CPython issue 106883)."""
    collected = []
    frames = sys._current_frames  # noqa: SLF001 - what is called

    def noting() -> dict[int, FrameType]:
        collected.append(gc.isenabled())
        return frames()

    monkeypatch.setattr(sys, "_current_frames", noting)
    with watch.measured():
        time.sleep(0.2)
    assert collected
    assert not any(collected)
    assert gc.isenabled()
