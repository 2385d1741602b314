"""A failure is blamed on memory order only if the same test, in order, does not show it in any of several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from harness.core.digests import sha256_of
from harness.core.errors import ExitCode
from harness.core.model import StorePair
from harness.record import fault_log, run_folder
from harness.record.cell_events import ANSWERS_NOBODY
from tests.support.stored import concluded, reproducer

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from tests.support.stored import StoredRun

pytestmark = pytest.mark.usefixtures("fake_symbols")

NAME = "bitops/test_bitops.py::test_threads"
ASSERTION = b"""1:M 29 Nov 2026 10:00:00.000 # === ASSERTION FAILED ===
1:M 29 Nov 2026 10:00:00.000 # ==> bitops.c:93 'queue->data == NULL' is not true
"""


@pytest.fixture
def weak(run: StoredRun) -> StoredRun:
    """A run whose server's stores were reordered, and whose test failed."""
    run.memory_order = "weak"
    run.stores("armv5", "bitops", "guest-1", stores=1000, overtakes=300)
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_other")
    return run


def died(run: StoredRun, suite: str = "bitops", log: bytes = ASSERTION) -> None:
    run.log("armv5", suite, "guest-1", log)
    run.guest("armv5", suite, "guest-1", end="signal", detail="killed by SIGABRT", test=NAME)


def fails(run: StoredRun, *, message: str = "ServerGoneError: connection closed by the server") -> None:
    run.test("armv5", "bitops", NAME, outcome="failed", message=message, guest="guest-1")


def only(tmp_path: Path, run: StoredRun) -> Finding:
    judgement, code = concluded(tmp_path, run)
    (found,) = judgement.findings
    assert code == ExitCode.FINDINGS
    return found


def test_a_crash_that_no_run_in_order_shows_is_of_kind_order(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    for number in (1, 2, 3):
        weak.ordered_test("armv5", "bitops", number, NAME)
    found = only(tmp_path, weak)
    assert (found.kind, found.id) == ("order", "order-assertion-bitops.c")


def test_a_crash_that_one_run_in_order_shows_too_keeps_its_kind(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    weak.ordered_test("armv5", "bitops", 1, NAME)
    weak.ordered_test("armv5", "bitops", 2, NAME, outcome="failed", message="ServerGoneError: closed", guest="guest-1")
    died(weak, f"bitops/{run_folder.ORDERED}-2")
    weak.ordered_test("armv5", "bitops", 3, NAME)
    found = only(tmp_path, weak)
    assert (found.kind, found.id) == ("assertion", "assertion-bitops.c")


def test_a_crash_without_runs_in_order_keeps_its_kind(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    assert only(tmp_path, weak).kind == "assertion"


def test_a_crash_whose_runs_in_order_are_damaged_keeps_its_kind(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    weak.ordered_test("armv5", "bitops", 1, NAME)
    weak.host_problem = "its process ran longer than 600 s"
    found = only(tmp_path, weak)
    assert found.kind == "assertion"


def test_a_wrong_value_that_no_run_in_order_shows_is_of_kind_order(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak, message="GET k: got 1, expected 2")
    weak.guest("armv5", "bitops", "guest-1", end="stopped")
    weak.ordered_test("armv5", "bitops", 1, NAME)
    assert only(tmp_path, weak).kind == "order"


@pytest.mark.parametrize(
    "message", ["the server did not finish its reply within 60 seconds", "TimeoutError: timed out"]
)
def test_a_time_limit_that_no_run_in_order_shows_is_unknown(tmp_path: Path, weak: StoredRun, message: str) -> None:
    """The emulator is slower while stores wait, so a good server may be late."""
    fails(weak, message=message)
    weak.guest("armv5", "bitops", "guest-1", end="stopped")
    weak.ordered_test("armv5", "bitops", 1, NAME)
    judgement, code = concluded(tmp_path, weak)
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)
    assert "it may only be slow" in judgement.cells[1].reason


def hangs(run: StoredRun, suite: str = "bitops") -> None:
    run.guest("armv5", suite, "guest-1", end="hang", detail="no reply within 60 s", test=NAME)


def test_a_hang_that_no_run_in_order_shows_is_unknown(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak, message="AssertionError: got 1, expected 2")
    hangs(weak)
    weak.ordered_test("armv5", "bitops", 1, NAME)
    judgement, code = concluded(tmp_path, weak)
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)


@pytest.mark.parametrize(("failing", "kind"), [(3, "order"), (2, "hang")])
def test_a_hang_that_is_no_slowness_is_of_kind_order(tmp_path: Path, weak: StoredRun, failing: int, kind: str) -> None:
    message = f"AssertionError: {ANSWERS_NOBODY}: 3 clients have no reply"
    fails(weak, message=message)
    hangs(weak)
    for number in (1, 2, 3):
        weak.ordered_test("armv5", "bitops", number, NAME)
        if number <= failing:
            told = {"message": message, "guest": "guest-1"}
            weak.delayed_test("armv5", "bitops", number, NAME, outcome="failed", **told)
            hangs(weak, f"bitops/{run_folder.DELAYED}-{number}")
        else:
            weak.delayed_test("armv5", "bitops", number, NAME)
    assert only(tmp_path, weak).kind == kind


def test_a_run_in_which_no_store_waited_is_unknown(tmp_path: Path, run: StoredRun) -> None:
    run.memory_order = "weak"
    run.test("armv5", "bitops", NAME, guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="stopped")
    judgement, code = concluded(tmp_path, run)
    assert code == ExitCode.INCONCLUSIVE
    assert "no store of its servers waited: nothing was reordered" in judgement.cells[1].reason


def test_a_run_says_how_many_stores_were_reordered(tmp_path: Path, weak: StoredRun) -> None:
    weak.guest("armv5", "bitops", "guest-1", end="stopped")
    for reader in (24, 32):
        weak.overtake("armv5", "bitops", "guest-1", early=16, late=8, reader=reader)
    judgement, code = concluded(tmp_path, weak)
    said = (
        "armv5: 1000 stores waited in its programs, 300 overtook older ones, and threads paused 1 times in between; "
        "other threads saw 1 pairs of stores in another order"
    )
    assert (code, said in judgement.remarks) == (ExitCode.PASS, True)


def test_a_finding_names_the_stores_that_its_function_saw_in_the_wrong_order(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak, log=ASSERTION.replace(b"bitops.c:93", b"io_threads.c:66"))
    early = weak.place("armv5", "removeJob", "src/io_threads.c", 114)
    late = weak.place("armv5", "removeJob2", "src/io_threads.c", 112)
    reader = weak.place("armv5", "pushJob", "src/io_threads.c", 66)
    weak.overtake("armv5", "bitops", "guest-1", early=early, late=late, reader=reader)
    (witness,) = only(tmp_path, weak).witnesses
    (said,) = witness.overtakes
    assert said == (
        "the store in removeJob (src/io_threads.c:114) was visible before removeJob2 (src/io_threads.c:112), "
        "read by pushJob (src/io_threads.c:66)"
    )


def test_a_finding_names_the_store_that_a_load_in_its_function_missed(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak, log=ASSERTION.replace(b"bitops.c:93", b"networking.c:66"))
    store = weak.place("armv5", "announce", "src/networking.c", 112)
    load = weak.place("armv5", "IOThreadMain", "src/networking.c", 66)
    weak.missed("armv5", "bitops", "guest-1", store=store, load=load)
    (witness,) = only(tmp_path, weak).witnesses
    (said,) = witness.overtakes
    assert said == (
        "the load in IOThreadMain (src/networking.c:66) was executed before the store in announce "
        "(src/networking.c:112)"
    )


def delayed(run: StoredRun, numbers: range, *, failing: int, pair: StorePair | None = None) -> None:
    """Record runs while stores wait, the first ones of which die as the cell did."""
    for number in numbers:
        dies = number - numbers.start < failing
        outcome: Literal["failed", "passed"] = "failed" if dies else "passed"
        told = {"message": "ServerGoneError: closed", "guest": "guest-1"} if dies else {}
        run.delayed_test("armv5", "bitops", number, NAME, outcome=outcome, pair=pair, **told)
        if dies:
            died(run, f"bitops/{run_folder.DELAYED}-{number}")


@pytest.mark.parametrize(
    ("failing", "of", "in_order", "kind"), [(3, 3, 3, "order"), (2, 3, 3, "assertion"), (4, 10, 10, "order")]
)
def test_the_number_of_runs_that_fail_decides_whether_it_is_chance(
    tmp_path: Path, weak: StoredRun, failing: int, of: int, in_order: int, kind: str
) -> None:
    fails(weak)
    died(weak)
    for number in range(1, in_order + 1):
        weak.ordered_test("armv5", "bitops", number, NAME)
    delayed(weak, range(1, of + 1), failing=failing)
    found = only(tmp_path, weak)
    assert found.kind == kind
    (said,) = found.witnesses[0].overtakes
    chance = "" if kind == "order" else ": this may be chance"
    assert said == f"{failing} of {of} runs failed while stores waited, and none of {in_order} in order{chance}"


def test_one_fault_may_end_a_server_by_several_crashes(tmp_path: Path, weak: StoredRun) -> None:
    """A planted one did: an assertion in some runs, and SIGSEGV in others."""
    fails(weak)
    died(weak)
    for number in (1, 2, 3):
        weak.ordered_test("armv5", "bitops", number, NAME)
    other = ASSERTION.replace(b"bitops.c:93", b"networking.c:7")
    for number in (1, 2, 3):
        told = {"message": "ServerGoneError: reset", "guest": "guest-1"}
        weak.delayed_test("armv5", "bitops", number, NAME, outcome="failed", **told)
        died(weak, f"bitops/{run_folder.DELAYED}-{number}", log=other)
    assert only(tmp_path, weak).kind == "order"


def test_other_crashes_do_not_count_if_the_test_fails_in_order_too(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    other = ASSERTION.replace(b"bitops.c:93", b"networking.c:7")
    told = {"message": "ServerGoneError: reset", "guest": "guest-1"}
    for number in (1, 2, 3):
        if number == 1:
            weak.ordered_test("armv5", "bitops", number, NAME, outcome="failed", **told)
            died(weak, f"bitops/{run_folder.ORDERED}-{number}", log=other)
        else:
            weak.ordered_test("armv5", "bitops", number, NAME)
        weak.delayed_test("armv5", "bitops", number, NAME, outcome="failed", **told)
        died(weak, f"bitops/{run_folder.DELAYED}-{number}", log=other)
    assert only(tmp_path, weak).kind == "assertion"


def test_time_limits_do_not_count_as_failures_of_another_kind(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    for number in (1, 2, 3):
        weak.ordered_test("armv5", "bitops", number, NAME)
        weak.delayed_test("armv5", "bitops", number, NAME, outcome="failed", message="TimeoutError: timed out")
    assert only(tmp_path, weak).kind == "assertion"


def test_the_two_stores_that_are_enough_are_the_place(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    for number in range(1, 11):
        weak.ordered_test("armv5", "bitops", number, NAME)
    early = weak.place("armv5", "removeJob", "src/io_threads.c", 114)
    late = weak.place("armv5", "removeJob2", "src/io_threads.c", 112)
    reader = weak.place("armv5", "pushJob", "src/io_threads.c", 66)
    delayed(weak, range(1, 4), failing=3)
    weak.overtake("armv5", f"bitops/{run_folder.DELAYED}-2", "guest-1", early=early, late=late, reader=reader)
    pair = StorePair(early=early, late=late)
    delayed(weak, range(4, 7), failing=0, pair=StorePair(early=late, late=early))
    delayed(weak, range(7, 17), failing=7, pair=pair)
    found = only(tmp_path, weak)
    place, rates = found.witnesses[0].overtakes
    assert place == (
        "the store in removeJob (src/io_threads.c:114) was visible before removeJob2 (src/io_threads.c:112), "
        "read by pushJob (src/io_threads.c:66)"
    )
    assert found.title.endswith(f": {place}")
    assert rates.endswith("none of 10 in order; 7 of 10 failed if only these two stores were reordered")
    replayed = reproducer(found)
    assert (replayed.pair, replayed.pair_program) == (pair, sha256_of(weak.binary("armv5")))
    # (1 - 7 / 11) ** 3 is less than 5 %, and the square is not.
    assert replayed.replays == 3


def test_a_finding_of_several_tests_has_the_place_that_one_of_them_has(tmp_path: Path, weak: StoredRun) -> None:
    """Only one of the tests that a fault fails runs with pairs of stores."""
    other = "bitops/test_bitops.py::test_others"
    weak.test("armv5", "bitops", other, outcome="failed", message="ServerGoneError: closed", guest="guest-2")
    weak.log("armv5", "bitops", "guest-2", ASSERTION)
    weak.guest("armv5", "bitops", "guest-2", end="signal", detail="killed by SIGABRT", test=other)
    fails(weak)
    died(weak)
    for number in range(1, 4):
        weak.ordered_test("armv5", "bitops", number, NAME)
        weak.ordered_test("armv5", "bitops", number, other)
    early = weak.place("armv5", "removeJob", "src/io_threads.c", 114)
    late = weak.place("armv5", "removeJob2", "src/io_threads.c", 112)
    delayed(weak, range(1, 4), failing=3)
    weak.overtake("armv5", f"bitops/{run_folder.DELAYED}-2", "guest-1", early=early, late=late, reader=late)
    delayed(weak, range(4, 7), failing=3, pair=StorePair(early=early, late=late))
    assert reproducer(only(tmp_path, weak)).pair == StorePair(early=early, late=late)


def test_a_pair_that_may_fail_by_chance_is_not_the_place(tmp_path: Path, weak: StoredRun) -> None:
    fails(weak)
    died(weak)
    for number in range(1, 4):
        weak.ordered_test("armv5", "bitops", number, NAME)
    delayed(weak, range(1, 4), failing=3)
    weak.overtake("armv5", f"bitops/{run_folder.DELAYED}-2", "guest-1", early=16, late=8, reader=32)
    delayed(weak, range(4, 14), failing=1, pair=StorePair(early=16, late=8))
    found = only(tmp_path, weak)
    assert (found.kind, len(found.witnesses[0].overtakes)) == ("order", 1)


def test_a_log_keeps_the_last_counts_of_a_process(tmp_path: Path) -> None:
    log = tmp_path / fault_log.NAME
    log.write_bytes(
        b'{"event":"order","pid":7,"stores":10,"overtakes":2,"pauses":0}\n'
        b'{"event":"order","pid":7,"stores":30,"overtakes":9,"pauses":1}\n'
    )
    read = fault_log.read(log)
    assert (read.stores[7].stores, read.stores[7].overtakes, read.faults, read.damage) == (30, 9, [], [])
