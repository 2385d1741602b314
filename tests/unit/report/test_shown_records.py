"""A replay shows the stack of its finding, and one line for every other place."""

from __future__ import annotations

import pytest

from harness.core.finding import UNKNOWN_FILE, Frame
from harness.workflows.replay.shown_records import MOST_PLACES, ShownRecord, lines_of


def record(function: str, *, kind: str = "SIGBUS", detail: str = "ldr r1, [r3]", same: bool = False) -> ShownRecord:
    frames = [
        Frame(function=name, file="src/x.c", line=line, origin="server", pc=line)
        for line, name in enumerate((function, "call", "main"), start=1)
    ]
    return ShownRecord(heading=f"{kind}: {detail}", frames=frames, same=same)


def test_the_findings_record_is_shown_with_its_stack_and_every_other_one_in_a_line() -> None:
    """Regression: redis-3.2.6 faults again in its own crash handler, and each fault was shown with its whole stack."""
    first, finding, handler = record("f"), record("g", same=True), record("logStackTrace", kind="SIGSEGV")
    assert lines_of([first, finding, handler, handler]) == [
        "SIGBUS: ldr r1, [r3]",
        "    g (src/x.c:1) [server]",
        "    call (src/x.c:2) [server]",
        "    main (src/x.c:3) [server]",
        "also SIGBUS in f (src/x.c:1)",
        "also SIGSEGV in logStackTrace (src/x.c:1) (2×)",
    ]


def test_a_repeated_access_is_counted_whatever_its_address() -> None:
    lines = lines_of([record("f", same=True), record("f", detail="ldr r1, [r3]  at 2 mod 4", same=True)])
    assert (lines[0], len(lines)) == ("SIGBUS: ldr r1, [r3] (2×)", 4)


def test_without_a_finding_the_first_record_has_its_stack() -> None:
    assert lines_of([record("f"), record("g")])[:2] == ["SIGBUS: ldr r1, [r3]", "    f (src/x.c:1) [server]"]
    assert lines_of([]) == []


@pytest.mark.parametrize(("more", "last"), [(0, "also SIGBUS in f8"), (1, "and in 1 more place"), (2, "2 more places")])
def test_the_list_of_an_audits_other_places_is_limited(more: int, last: str) -> None:
    lines = lines_of([record(f"f{number}") for number in range(MOST_PLACES + 1 + more)])
    assert last in lines[-1]
    assert len(lines) == 4 + MOST_PLACES + bool(more)


def test_code_without_debug_information_has_no_line() -> None:
    unknown = Frame(function="memcpy", file=UNKNOWN_FILE, line=0, origin="libc", pc=1)
    found = ShownRecord(heading="SIGBUS: ldr", frames=[unknown], same=True)
    other = ShownRecord(heading="SIGSEGV: str", frames=[unknown], same=False)
    assert lines_of([found, other]) == [
        "SIGBUS: ldr",
        "    memcpy (line unknown) [libc]",
        "also SIGSEGV in memcpy (line unknown)",
    ]
