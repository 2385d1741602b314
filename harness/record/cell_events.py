"""What happened in a cell, as values: its tests, its guests, and the cost of its process.

harness.record.event_log writes and reads them as events.jsonl.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.core.finding import Difference, Reproduction  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.model import Name, NameOrNone, Program, Record

SENT = ", which another process sent"
"""The end of a description of an end: the server says so, or its signal is one that no server raises."""
STOPPED = "stopped by SIGSTOP"
"""GuestEvent.detail of a guest that was stopped from outside: no process in a guest stops it."""
NO_PONG = "no PONG before the deadline"
"""GuestEvent.detail of a guest that hung and was never ready."""
ANSWERS_NOBODY = "the server answers nobody"
"""What the message of a test says that has seen a server hang for another reason than slowness: none of its threads
was held, and it could have had a processor.
"""
WHOLE_FILE = "(the whole file)"
"""The last part of TestEvent.upstream for the item that represents a file of upstream's tests instead of a test."""
BEFORE_TESTS, IN_TESTS = "start", "tests"
"""The phases of a cell's process: ProcessorTime has their seconds, and its profile begins with them."""
Outcome = Literal["passed", "failed", "skipped"]
End = Literal["stopped", "signal", "exit", "hang", "start-failed"]


def names_another_sender(detail: str) -> bool:
    """Whether a description of an end says that another process caused it: no process in a guest sends SIGKILL."""
    return "SIGKILL" in detail or detail.endswith(SENT)


class Counters(Record, frozen=True):
    """What /proc/cpu/alignment counts (Linux arch/arm/mm/alignment.c), or would count, of the faults of programs."""

    user: int
    skipped: int
    """Not repaired: no handler knows the instruction."""
    half: int
    word: int
    dword: int
    multi: int

    @property
    def by_class(self) -> dict[str, int]:
        """Class -> accesses that the kernel repaired, its own among them; without zeros."""
        counts = {"half": self.half, "word": self.word, "dword": self.dword, "multi": self.multi}
        return {name: number for name, number in counts.items() if number}


class TestEvent(Record, frozen=True, tag="test"):
    """One test's outcome."""

    name: str
    outcome: Outcome
    seconds: float
    message: str = ""
    blocked: bool = False
    """Whether the test could not run because the server does not start: a consequence, not an observation."""
    guest: NameOrNone = ""
    """Name of the folder of the guest that the test ran against, or empty."""
    fault_from: int = 0
    fault_to: int = 0
    """Lines of the guest's fault log that this test added: [from, to)."""
    log_from: int = 0
    log_to: int = 0
    """Bytes of the guest's log that were written during this test, after the guest was ready: [from, to)."""
    unanswered: tuple[str, ...] = ()
    """The requests without a reply, human-readable."""
    transcript: NameOrNone = ""
    """The file of the test's requests and replies in the guest folder. Kept only if something went wrong."""
    fails_natively: bool = False
    """Whether the native build, which was asked at the same time, fails in the same words: for the release's own tests,
    and for examples of the fuzzer.
    """
    unit: str = ""
    """The unit that ran instead of a server, of a program from harness.build.unit_drivers or harness.run.selftests."""
    program: Program = "units"
    """The program that contains the unit."""
    wrong_line: str = ""
    """The line of the unit's output that differs from the model's."""
    asserted: str = ""
    """The place of the failed assertion in the suite: `bitops/test_bitops.py:61`. Empty for tests that have only one.
    """
    counters_before: Counters | None = None
    counters_after: Counters | None = None
    """The kernel's counters before and after the test; None if the kernel does not count."""
    asked: str = ""
    """The one command with a wrong reply, if known."""
    options: tuple[str, ...] = ()
    """Extra options with which the guest was started. Its extra files are in the guest folder's `inputs`."""
    preloads: bool = False
    """Whether the guest preloaded the suite's shared object."""
    tls: bool = False
    """Whether the guest was compiled with TLS."""
    difference: Difference | None = None
    """The wrong bytes, if the test reports them."""
    again: Reproduction | None = None
    """How to reproduce the wrong bytes."""
    upstream: str = ""
    """The test of the release's own that ran: `unit/type/string::SET and GET an item`. It may have had several guests:
    """
    guests: dict[Name, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Guest -> the lines of its fault log that this test added: from, to."""
    announced: tuple[str, ...] = ()
    """Crashes that the test caused or expected, as `command: debug segfault` or `log: ASSERTION FAILED`."""
    blocked_by: NameOrNone = ""
    """The guest whose crash before this test is why it could not run."""
    doubt: str = ""
    """Why the outcome says nothing about the server, for example because the oracle was killed or the guest stopped."""
    blockers: tuple[str, ...] = ()
    """The tests before it that awaited a state in vain, for which this one, in vain as well, waited only for a short
    time. Its failure says nothing about the server, and `doubt` names the state.
    """


class GuestEvent(Record, frozen=True, tag="guest"):
    """How a guest ended."""

    name: Name
    end: End
    detail: str = ""
    test: str = ""
    """The test during which it ended, or empty."""
    target: NameOrNone = ""
    """The guest's target, if it is not the cell's own. The folder is then peers/TARGET/NAME."""
    own: bool = False
    """Whether it was started for only one test, which then owns all its actions. `unanswered`, `transcript`, `options`,
    `preloads` and `tls` are then as in TestEvent.
    """
    commands: int = 0
    """How many commands the server had executed, from its own statistics before it was stopped; 0 if unknown."""
    strangers: int = 0
    """How many connections the proxy rejected: another user's, or closed before the kernel reported their owner."""
    unanswered: tuple[str, ...] = ()
    transcript: NameOrNone = ""
    options: tuple[str, ...] = ()
    preloads: bool = False
    tls: bool = False
    pid: int = 0
    """Number of the guest's first process, as in the fault log; 0 if unknown."""
    stopping: bool = False
    """Whether it ended after the harness had asked it to stop."""
    oracle: bool = False
    """Whether it is the oracle: the native build whose replies are the reference."""
    upstream: bool = False
    """Whether a test of the release's own started it. Several tests may have used it."""
    announced: tuple[str, ...] = ()
    """The crashes that the test caused or expected during which it ended, as in TestEvent."""
    left: tuple[Name, ...] = ()
    """Files that the guest's folder must contain, however the guest ended."""


class CollectedEvent(Record, frozen=True, tag="collected"):
    """The first line: the cell's tests are known."""

    tests: int
    """How many there are to run."""


class ProcessorTime(Record, frozen=True):
    """Processor seconds of a cell, by consumer."""

    start: float
    """The cell's process before its first test: imports, and the list of tests."""
    tests: float
    """The cell's process from then on, without its proxies."""
    proxy: float
    """Its threads that record and pass on what clients send."""
    programs: dict[str, float]
    """Processes that it started and that have ended, by program."""
    others: float
    """Descendants of it whose program is not known."""


class EndEvent(Record, frozen=True, tag="end"):
    """The last line: the cell's process writes no more events."""

    tests: int
    """How many of the collected tests ended."""
    failed: int
    """How many of them failed."""
    lines: int
    """How many lines precede this one."""
    digest: str
    """SHA-256 of the preceding lines."""
    processor_seconds: float = 0.0
    """Processor time of the tests: of the cell's process and all that it started, from the first test on."""
    processor: ProcessorTime | None = None
    """The same by consumer, with the time before the first test."""
    blocks: tuple[int, ...] = ()
    """Addresses of blocks that the server's allocator gave on the cell's target, in the server's own words; empty if
    nothing in the cell was misaligned.
    """


Event = TestEvent | GuestEvent
