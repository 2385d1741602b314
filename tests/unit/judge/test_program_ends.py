"""Programs below a command are judged one by one: each has its output and order, and no cause hides another."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.finding import Frame
from harness.judge.program_runs.program_ends import told_apart, without_lacking_calls, without_unblamed
from harness.judge.program_runs.program_evidence import counts
from harness.judge.sightings.places import of_caller
from harness.judge.sightings.sighting import Sighting, fields_of
from harness.record import cell_events, fault_log, program_launch
from harness.record.cell_events import End, GuestEvent, Outcome
from harness.record.program_launch import CommandRecord
from tests.support.stored import StoredRun, concluded, reproducer

if TYPE_CHECKING:
    from pathlib import Path


def sighting(
    identity: str, guest: Path, *, kind: str = "crash", place: tuple[str, int] = ("", 0), said: str = ""
) -> Sighting:
    file, line = place
    return Sighting(
        kind=kind,
        title=identity,
        frames=[Frame(function="main", file=file, line=line, origin="program", pc=0)] if file else [],
        instruction="",
        access="",
        direction="",
        target="armv5",
        suite=program_launch.SUITE,
        command="",
        evidence="",
        detector="process",
        identity=identity,
        launched=guest,
        output=said,
        **fields_of(None, None),
    )


def identities(*sightings: Sighting) -> list[str]:
    return [one.identity for one in told_apart(list(sightings))]


def test_crashes_at_two_lines_of_a_function_are_two_findings_whatever_their_order(tmp_path: Path) -> None:
    early = sighting("sigsegv-main", tmp_path, kind="sigsegv", place=("a.c", 5))
    late = sighting("sigsegv-main", tmp_path, kind="sigsegv", place=("a.c", 9))
    assert identities(early, late, early) == ["sigsegv-main", "sigsegv-main-2", "sigsegv-main"]
    assert identities(late, early) == ["sigsegv-main-2", "sigsegv-main"]


def test_functions_of_one_name_in_two_programs_are_two_findings(tmp_path: Path) -> None:
    one = sighting("alignment-main-store", tmp_path, kind="alignment", place=("u.c", 5))
    other = sighting("alignment-main-store", tmp_path, kind="alignment", place=("w.c", 5))
    assert identities(one, other) == ["alignment-main-store", "alignment-main-store-2"]


def test_misaligned_accesses_of_one_function_are_one_finding(tmp_path: Path) -> None:
    lines = [sighting("alignment-f-load", tmp_path, kind="alignment", place=("u.c", line)) for line in (5, 9)]
    assert identities(*lines) == ["alignment-f-load"] * 2


def test_aborts_are_told_apart_by_their_last_words_without_numbers(tmp_path: Path) -> None:
    said = ["no memory at 0x7f10\n", "no memory at 0x8a20\n", "free(): invalid pointer\n"]
    found = identities(*(sighting("crash-w-SIGABRT", tmp_path, said=text) for text in said))
    assert found == ["crash-w-SIGABRT-2", "crash-w-SIGABRT-2", "crash-w-SIGABRT"]


def test_aborts_of_one_function_are_told_apart_by_their_last_words(tmp_path: Path) -> None:
    """Many programs have one function that prints a message and ends them."""
    said = ["no memory for 10 items", "no memory for 20 items", "bad input"]
    found = identities(*(sighting("crash-w-SIGABRT", tmp_path, place=("die.c", 5), said=text) for text in said))
    assert found == ["crash-w-SIGABRT-2", "crash-w-SIGABRT-2", "crash-w-SIGABRT"]


@pytest.mark.parametrize(
    ("outcome", "ends", "expected"),
    [
        ("passed", ["stopped", "stopped"], (2, 0, 0)),
        ("failed", ["stopped", "exit"], (1, 1, 0)),
        ("passed", ["signal"], (0, 1, 0)),
        # The reason lies outside of the programs.
        ("failed", ["stopped"], (0, 1, 0)),
        ("skipped", [], (0, 0, 1)),
        ("skipped", ["stopped"], (0, 0, 1)),
    ],
)
def test_a_cell_counts_executions(
    tmp_path: Path, outcome: Outcome, ends: list[End], expected: tuple[int, int, int]
) -> None:
    assert counts(tmp_path, []) is None
    program_launch.write_command(tmp_path, CommandRecord(words=["make"], folder="/tree"))
    guests = [GuestEvent(name=f"guest-{number}", end=end) for number, end in enumerate(ends, 1)]
    found = counts(tmp_path, [*guests, cell_events.TestEvent(name="make", outcome=outcome, seconds=0.1)])
    assert found == expected
    assert found.ran is (outcome != "skipped")


def launched(cell: Path, name: str, *, ends: str = "") -> Path:
    """The folder of a program's execution. `ends`: those of its processes, of which the first is process 7."""
    guest = cell / name
    guest.mkdir()
    words = ["7", "0", "/tree", f"/tree/{name}", f"/tree/{name}", "1", f"./{name}"]
    (guest / program_launch.LAUNCH).write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (guest / program_launch.ENDS).write_text(ends, "utf-8")
    return guest


@pytest.mark.parametrize(
    ("ends", "skips"),
    [("7 exited 77\n", 1), ("8 exited 0\n7 exited 77\n", 1), ("8 exited 77\n7 exited 0\n", 0), ("7 killed 77\n", 0)],
    ids=["it", "it and not its child", "its child", "killed"],
)
def test_a_program_that_says_that_it_was_skipped_counts_as_skipped(tmp_path: Path, ends: str, skips: int) -> None:
    program_launch.write_command(tmp_path, CommandRecord(words=["make"], folder="/tree"))
    launched(tmp_path, "guest-1", ends=ends)
    launched(tmp_path, "guest-2", ends="7 exited 0\n")
    guests = [GuestEvent(name=f"guest-{number}", end="stopped") for number in (1, 2)]
    found = counts(tmp_path, [*guests, cell_events.TestEvent(name="make", outcome="passed", seconds=0.1)])
    assert found == (2 - skips, 0, skips)


@pytest.mark.usefixtures("fake_symbols")
@pytest.mark.parametrize("read", [b"1 2\n", b"", None])
def test_a_failed_program_is_replayed_with_what_it_read(tmp_path: Path, read: bytes | None) -> None:
    run = StoredRun(tmp_path / "run", suites=("canary", program_launch.SUITE))
    run.canary("armv5")
    cell = run.cell("armv5", program_launch.SUITE)
    program_launch.write_command(cell, CommandRecord(words=["make", "check"], folder="/tree"))
    guest = launched(cell, "guest-1", ends="7 exited 1\n")
    (guest / fault_log.NAME).write_text('{"event":"end","pid":7,"signal":0,"status":1}\n', "utf-8")
    if read is None:
        (guest / program_launch.INPUT_LOST).touch()
    else:
        (guest / program_launch.INPUT).write_bytes(read)
    run.test("armv5", program_launch.SUITE, "make check", outcome="failed", message="exit status 2")
    told = "exited with status 1"
    ended = GuestEvent(name=guest.name, end="exit", detail=told, test="make check", own=True, pid=7)
    run.add("armv5", program_launch.SUITE, ended)
    judgement, _ = concluded(tmp_path, run)
    (finding,) = judgement.findings
    replayed = reproducer(finding).launch
    assert replayed is not None
    assert (replayed.words, replayed.folder, replayed.input_lost) == (["./guest-1"], "/tree", read is None)
    assert (None if replayed.requests is None else base64.b64decode(replayed.requests)) == read
    assert any("1 execution " in remark and "/tree/guest-1" in remark for remark in judgement.remarks)


def asked_in_vain(cell: Path, name: str, *calls: str) -> Path:
    """A program that asked for system calls that the emulator lacks."""
    guest = launched(cell, name)
    lines = [f'{{"event":"lacking","pid":7,"call":"{call}"}}\n' for call in calls]
    (guest / fault_log.NAME).write_text("".join(lines), "utf-8")
    return guest


def test_a_program_that_asked_for_what_the_emulator_lacks_is_not_blamed_for_its_end(tmp_path: Path) -> None:
    numa = [asked_in_vain(tmp_path, name, "get_mempolicy", "mbind", "mbind") for name in ("one", "two")]
    plain = sighting("exit-plain-1", asked_in_vain(tmp_path, "plain"), kind="exit")
    ends = [sighting(f"exit-{guest.name}-1", guest, kind="exit") for guest in numa]
    kept, doubts = without_lacking_calls([plain, *ends])
    assert kept == [plain]
    (doubt,) = doubts
    assert "get_mempolicy(2), mbind(2), which the emulator lacks" in doubt
    assert doubt.endswith(": one, two")


def test_what_the_emulator_lacks_explains_no_fault(tmp_path: Path) -> None:
    guest = asked_in_vain(tmp_path, "one", "get_mempolicy")
    fault = msgspec.structs.replace(sighting("alignment-main-load", guest, kind="alignment"), detector="signal")
    assert without_lacking_calls([fault]) == ([fault], [])


def test_a_status_is_not_blamed_if_a_program_could_not_be_traced(tmp_path: Path) -> None:
    """The tests of acl execute setfacl as another user, who cannot reach the emulator, and then fail as a whole."""
    guest = asked_in_vain(tmp_path, "setfacl")
    status, death = sighting("exit-setfacl-1", guest, kind="exit"), sighting("crash-setfacl-SIGABRT", guest)
    assert without_unblamed([status, death], tmp_path) == ([status, death], [])
    (tmp_path / program_launch.TROUBLE).write_text("/tree/getfacl: the kernel refused its emulator: x\n", "utf-8")
    kept, doubts = without_unblamed([status, death], tmp_path)
    assert kept == [death]
    assert doubts == ["programs failed, maybe because others could not be traced: setfacl"]
    assert without_unblamed([death], tmp_path) == ([death], [])


def test_a_system_call_with_an_odd_name_damages_the_log(tmp_path: Path) -> None:
    guest = asked_in_vain(tmp_path, "one", "bind(2): <b>")
    log = fault_log.read(guest / fault_log.NAME)
    assert (log.lacking, log.damage) == ([], ["line 1 of faults.jsonl is damaged"])


def test_what_starts_a_program_is_not_the_caller_that_its_stack_lacks() -> None:
    """`return strlen(s)` may be a jump, and leave no frame between the C library and the start of the program."""

    def frame(function: str, origin: str) -> Frame:
        return Frame(function=function, file="", line=0, origin=origin, pc=0)

    jumped = [frame("strlen", "libc"), frame("__libc_start_main", "libc"), frame("_start", "program")]
    assert of_caller(jumped) == (jumped, "")
    called = [jumped[0], frame("measure", "program"), *jumped[1:]]
    assert of_caller(called) == (called[1:], "strlen")
