"""The events of a traced command record which of its programs count, and why the result may be unknown."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from harness.record import cell_events, event_log, program_launch
from harness.record.cell_events import GuestEvent
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


@pytest.mark.parametrize(
    ("number", "blamed"), [(signal.SIGALRM, True), (signal.SIGXCPU, True), (signal.SIGTERM, False)]
)
def test_a_program_that_its_own_timer_ends_counts_beside_another_that_failed(
    tmp_path: Path, number: signal.Signals, *, blamed: bool
) -> None:
    """A timer is how programs end themselves when they hang. Other signals are mostly another process'."""
    cell = tmp_path / "cell"
    for guest, end, fault in ((1, "exited 1", (0, 1)), (2, f"killed {number}", (number, 0))):
        folder = cell / f"guest-{guest}"
        folder.mkdir(parents=True)
        words = [str(guest), str(START_MS), "/tree", f"/tree/{guest}", f"/tree/{guest}", "1", f"./{guest}"]
        (folder / program_launch.LAUNCH).write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (folder / program_launch.ENDS).write_text(f"{guest} {end}\n", "utf-8")
        line = b'{"event":"end","pid":%d,"signal":%d,"status":%d}\n' % (guest, *fault)
        (folder / "faults.jsonl").write_bytes(line)
    write_events(cell, COMMAND, "armv5", CommandEnd(code=1, seconds=1.0))
    ends = {one.name: one.end for one in event_log.read_events(cell / event_log.NAME) if isinstance(one, GuestEvent)}
    assert ends == {"guest-1": "exit", "guest-2": "exit" if blamed else "stopped"}


def program(cell: Path, number: int, ends: str) -> Path:
    """The folder of an execution whose first process has ten times its number."""
    folder = cell / f"guest-{number}"
    folder.mkdir(parents=True)
    words = [str(10 * number), str(START_MS), "/tree", f"/tree/{number}", f"/tree/{number}", "1", f"./{number}"]
    (folder / program_launch.LAUNCH).write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / program_launch.ENDS).write_text(ends, "utf-8")
    lines = [(word.split()[0], word.split()[2]) for word in ends.splitlines()]
    log = "".join(f'{{"event":"end","pid":{pid},"signal":0,"status":{status}}}\n' for pid, status in lines)
    (folder / "faults.jsonl").write_text(log, "utf-8")
    return folder


@pytest.mark.parametrize(
    ("ends", "end"), [("11 exited 0\n10 exited 1\n", "exit"), ("11 exited 1\n10 exited 0\n", "stopped")]
)
def test_the_end_of_a_program_is_that_of_its_first_process_whichever_ends_first(
    tmp_path: Path, ends: str, end: str
) -> None:
    program(tmp_path, 1, ends)
    write_events(tmp_path, COMMAND, "armv5", CommandEnd(code=1, seconds=1.0))
    (event,) = [one for one in event_log.read_events(tmp_path / event_log.NAME) if isinstance(one, GuestEvent)]
    assert (event.end, event.pid) == (end, 10)


def test_what_the_kernel_refused_to_execute_leaves_nothing_and_hides_no_program(tmp_path: Path) -> None:
    (program(tmp_path, 1, "") / program_launch.REFUSED).touch()
    program(tmp_path, 2, "20 exited 1\n")
    write_events(tmp_path, COMMAND, "armv5", CommandEnd(code=1, seconds=1.0))
    ends = [one for one in event_log.read_events(tmp_path / event_log.NAME) if isinstance(one, GuestEvent)]
    assert [(one.name, one.end) for one in ends] == [("guest-2", "exit")]
    assert not (tmp_path / "guest-1").exists()


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ("/tree/tests/own\n", "if an earlier build for this machine left own, remove it first, as make clean does"),
        # Probes of Autoconf and Meson run natively where a package compiles tools for its own build.
        ("/tree/conftest\n/tree/b/meson-private/sanitycheckc.exe\n", "if it only built, run its tests"),
    ],
)
def test_a_program_of_the_host_in_the_tree_may_be_of_an_earlier_build(tmp_path: Path, here: str, told: str) -> None:
    """S7: a tree that was built for the host is tested, and nothing of the target runs."""
    cell = tmp_path / "cell"
    cell.mkdir()
    (cell / program_launch.NATIVES).write_text("sh\nown\n", "utf-8")
    (cell / program_launch.NATIVES_HERE).write_text(here, "utf-8")
    write_events(cell, COMMAND, "armv5", CommandEnd(code=0, seconds=1.0))
    (test,) = [
        event for event in event_log.read_events(cell / event_log.NAME) if isinstance(event, cell_events.TestEvent)
    ]
    assert f"only programs of this machine ran (own): {told}" in test.message


def test_what_observes_programs_of_the_host_runs_none_of_the_target(tmp_path: Path) -> None:
    """The tests of json-c run each program below valgrind if the host has it."""
    cell = tmp_path / "cell"
    cell.mkdir()
    (cell / program_launch.NATIVES).write_text("sh\ncmake\nvalgrind\n", "utf-8")
    write_events(cell, COMMAND, "armv5", CommandEnd(code=8, seconds=1.0))
    (test,) = [
        event for event in event_log.read_events(cell / event_log.NAME) if isinstance(event, cell_events.TestEvent)
    ]
    assert test.message.endswith(
        "(cmake, valgrind): valgrind of this machine cannot run programs of armv5: have the tests do without it"
    )
