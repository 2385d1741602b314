"""What two tests have awaited in vain, a third one awaits for a short time, and is then blocked."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from harness.run.servers.hang_ledger import HangLedger
from harness.run.servers.waits import ENOUGH, FRACTION, IN_A_ROW, LEAST_SECONDS, BlockedError, Waits
from suites._shared import link

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.run.server_process import Guest

STATE = "the replica to be up to date"


class Running:
    """The test that runs, whose name the waits ask."""

    def __init__(self) -> None:
        self.name = ""
        self.waits = Waits(lambda: self.name)

    def wait(self, name: str, what: str = STATE) -> Exception:
        """A test that waits to its limit: the error."""
        self.name = name
        return self.waits.expired(what, ": gave up")

    def limit(self, name: str, what: str = STATE) -> float:
        self.name = name
        return self.waits.limit(what, 20.0)


def test_two_tests_that_waited_in_vain_block_the_others_in_the_same_words() -> None:
    tests = Running()
    for number in range(ENOUGH):
        error = tests.wait(f"test {number}")
        assert isinstance(error, TimeoutError)
        assert str(error) == f"timed out waiting for {STATE}: gave up"
    assert tests.limit("another") == 20.0 * FRACTION
    error = tests.wait("another")
    assert isinstance(error, BlockedError)
    assert str(error) == f"timed out waiting for {STATE}, for which test 0 and test 1 waited in vain"
    assert error.blockers == ("test 0", "test 1")


def test_a_test_that_waits_again_and_a_wait_for_something_else_are_not_blocked() -> None:
    tests = Running()
    for name in ("first", "first", "first"):
        tests.wait(name)
    assert tests.limit("second") == 20.0, "one test proves nothing about the others"
    tests.wait("second")
    assert tests.limit("first") == tests.limit("third", "the nodes to agree") == 20.0
    assert isinstance(tests.wait("first"), TimeoutError)


def test_servers_that_hung_in_two_tests_at_one_command_leave_others_a_fraction_of_the_time() -> None:
    tests = Running()
    for name, command in (("first", "SET"), ("second", "GET"), ("first", "SET")):
        tests.name = name
        tests.waits.hung(command)
    tests.name = "third"
    assert (tests.waits.reply_limit(75.0), tests.waits.late_reply()) == (75.0, None)
    tests.waits.hung("SET")
    assert tests.waits.reply_limit(75.0) == 75.0, "its own hang blocks no test"
    tests.name = "fourth"
    assert (tests.waits.reply_limit(75.0), tests.waits.reply_limit(5.0)) == (75.0 * FRACTION, 1.0)
    late = tests.waits.late_reply()
    assert late is not None
    assert str(late) == "timed out waiting for a reply to SET, for which first and third waited in vain"


def test_one_hang_of_a_server_that_had_a_processor_is_enough() -> None:
    tests = Running()
    tests.name = "first"
    tests.waits.hung("SET", certain=True)
    assert tests.waits.reply_limit(75.0) == 75.0, "its own hang blocks no test"
    tests.name = "second"
    assert tests.waits.reply_limit(75.0) == 75.0 * FRACTION


def test_each_blocked_test_leaves_the_next_less_time_and_four_in_a_row_leave_their_file_no_server() -> None:
    tests = Running()
    tests.name = "suite/one.py::hangs"
    tests.waits.hung("SET", certain=True)
    limits = []
    for number in range(IN_A_ROW):
        tests.name = f"suite/one.py::test_{number}"
        assert tests.waits.refusal() is None
        limits.append(tests.waits.reply_limit(75.0))
        tests.waits.blocked()
    assert limits == [7.5, 3.75, 1.875, LEAST_SECONDS]
    tests.name = "suite/one.py::another"
    refusal = tests.waits.refusal()
    assert refusal is not None
    assert refusal.blockers == ("suite/one.py::hangs",)
    tests.name = "suite/other.py::test_0"
    assert tests.waits.refusal() is None, "another file may do other things"


def test_a_test_with_replies_gives_its_file_servers_again() -> None:
    tests = Running()
    tests.name = "suite/one.py::hangs"
    tests.waits.hung("SET", certain=True)
    for number in range(2 * IN_A_ROW):
        tests.name = f"suite/one.py::test_{number}"
        assert tests.waits.refusal() is None
        tests.waits.blocked()
        if number % 3 == 2:
            tests.waits.replied()


def of_cell(folder: Path, suite: str) -> Waits:
    """What the tests of one of several cells await."""
    return Waits(lambda: f"{suite}/test.py::test", HangLedger(folder / "shared" / "hangs.jsonl", suite))


def test_a_command_at_which_servers_of_two_other_cells_hung_leaves_a_fraction_of_the_time(tmp_path: Path) -> None:
    hangs, sets, gets, other = (of_cell(tmp_path, suite) for suite in ("bitops", "sds", "protocol", "fuzz"))
    for waits, command in ((hangs, "SET"), (hangs, "SET"), (gets, "GET")):
        waits.hung(command)
    other.starting()
    assert (other.reply_limit(75.0), other.late_reply()) == (75.0, None), "each command hung in one cell alone"
    sets.hung("SET")
    assert other.reply_limit(75.0) == 75.0, "a server that runs keeps its time limit"
    other.starting()
    assert other.reply_limit(75.0) == 75.0 * FRACTION
    assert str(other.late_reply()) == (
        "timed out waiting for a reply to SET, for which bitops/test.py::test and sds/test.py::test waited in vain"
    )
    hangs.starting()
    assert hangs.late_reply() is None, "of the two cells it is one itself, and its own test had its time"


def test_a_damaged_ledger_costs_time_alone(tmp_path: Path) -> None:
    ledger = tmp_path / "shared" / "hangs.jsonl"
    for suite in ("bitops", "sds"):
        of_cell(tmp_path, suite).hung("SET", certain=True)
    whole = ledger.read_bytes()
    other = of_cell(tmp_path, "fuzz")
    for content, limit in ((whole[:-20], 75.0), (b"\xff{}\n" + whole, 7.5), (b"[1]\n", 75.0)):
        ledger.write_bytes(content)
        other.starting()
        assert other.reply_limit(75.0) == limit
    ledger.unlink()
    ledger.mkdir()
    other.hung("SET")
    other.starting()
    assert other.late_reply() is None


def test_without_a_test_nothing_is_blocked() -> None:
    waits = Waits()
    assert [type(waits.expired(STATE)) for _ in range(4)] == [TimeoutError] * 4


def guests(waits: Waits, *, alive: Callable[[], bool] = lambda: True) -> list[Guest]:
    """As much of a server as a wait looks at; a second on the clock takes a hundred times as long."""
    target = SimpleNamespace(deadline_seconds=lambda seconds: seconds / 100)
    evidence = SimpleNamespace(crashed_children=lambda _: 0)
    shape = SimpleNamespace(
        name="replica",
        detail="SIGSEGV",
        alive=alive,
        waits=waits,
        runner=SimpleNamespace(target=target),
        evidence=evidence,
        first_pid=7,
    )
    return [cast("Guest", shape)]


def test_a_wait_of_a_suite_is_short_where_others_were_in_vain() -> None:
    tests = Running()
    seconds = []
    for name, error in (("one", TimeoutError), ("two", TimeoutError), ("three", BlockedError)):
        tests.name, began = name, time.monotonic()
        with pytest.raises(error, match=f"^timed out waiting for {STATE}"):
            link.await_that(lambda: False, guests(tests.waits), STATE)
        seconds.append(time.monotonic() - began)
    assert seconds[2] < seconds[1] / 2
    # What comes about in a short time lets the test go on.
    tests.name = "four"
    link.await_that(lambda: True, guests(tests.waits), STATE)
