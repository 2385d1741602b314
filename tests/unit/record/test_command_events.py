"""The events of a traced command record which of its programs count, and why the result may be unknown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.record import cell_events, event_log, program_launch
from harness.record.program_launch import CommandRecord
from harness.run.programs.command_events import write_events
from harness.run.programs.traced_command import CommandEnd

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = CommandRecord(words=["sh", "../build-and-test.sh"], folder="/tree")
START_MS = 1_700_000_000_000


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """The file that the command writes when its tests begin."""
    path = tmp_path / "testing"
    path.touch()
    os.utime(path, ns=(START_MS * 1_000_000, START_MS * 1_000_000))
    return path


def outcome(folder: Path, marker: Path, *, began_ms: int, code: int = 0, status: int = 0) -> cell_events.TestEvent:
    """The event of a command that exited with `code`. Its only program began at `began_ms`, and had this `status`."""
    cell = folder / "cell"
    guest = cell / "guest-1"
    guest.mkdir(parents=True)
    words = ["7", str(began_ms), "/tree", "/tree/test", "/tree/test", "1", "./test"]
    (guest / program_launch.LAUNCH).write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (guest / program_launch.ENDS).write_text(f"7 exited {status}\n", "utf-8")
    (guest / "faults.jsonl").write_bytes(b'{"event":"end","pid":7,"signal":0,"status":%d}\n' % status)
    write_events(cell, COMMAND, "armv5", CommandEnd(code=code, seconds=1.0), counts_from=marker)
    events = event_log.read_events(cell / event_log.NAME)
    (test,) = [event for event in events if isinstance(event, cell_events.TestEvent)]
    return test


def test_a_program_of_the_tests_counts(tmp_path: Path, marker: Path) -> None:
    test = outcome(tmp_path, marker, began_ms=START_MS)
    assert (test.outcome, test.doubt) == ("passed", "")


def test_a_program_of_the_build_does_not_count_as_a_test(tmp_path: Path, marker: Path) -> None:
    test = outcome(tmp_path, marker, began_ms=START_MS - 1)
    assert test.outcome == "skipped"
    assert "no program of armv5 ran in its tests" in test.message


def test_tests_that_remove_the_mark_of_their_start_are_in_doubt(tmp_path: Path, marker: Path) -> None:
    """For example `rm -rf ../*`, or a distclean of the parent folder. The build's programs would count as tests."""
    marker.unlink()
    test = outcome(tmp_path, marker, began_ms=START_MS - 1)
    assert test.doubt == f"the command removed {marker}, so it is not known which programs ran in its tests"


def test_a_command_that_fails_before_its_tests_has_failed(tmp_path: Path, marker: Path) -> None:
    marker.unlink()
    test = outcome(tmp_path, marker, began_ms=START_MS, code=2, status=1)
    assert (test.outcome, test.doubt) == ("failed", "")
    assert "of its programs: ./test" in test.message
