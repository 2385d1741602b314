"""The run folder: what is written while a check runs, and how it is read again. One JSON object a line.

Evidence only: nothing here judges. Writers append whole lines, so a run that was killed is readable to its last line.

    RUN/run.json                          what was run: RunRecord
    RUN/TARGET/SUITE/events.jsonl         Event lines: tests, guests
    RUN/TARGET/SUITE/problem              why the cell gave up, if it did
    RUN/TARGET/SUITE/audit/               the same again, of the audit that followed
    RUN/TARGET/SUITE/guest-N/             log, faults.jsonl (the emulator's), transcript-N.jsonl
    RUN/TARGET/SUITE/peers/OTHER/guest-N/ the same, of servers that a test started on another target
    RUN/TARGET/SUITE/guest-unit-NAME/     log, faults.jsonl of a unit's run
"""

from __future__ import annotations

import re
import signal
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Literal

import msgspec

from harness import codec
from harness.errors import UsageError
from harness.finding import Again, Difference  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.model import AccessClass, Allocator, CompilerWarnings, Name, NameOrNone, Noun, Program, Target

ProblemKind = Literal["", "build", "deadline", "crash", "units", "absent"]
"""absent: there is nothing of what the suite should run, in the server or among what was asked for; no fault."""


class CellRecord(Noun, frozen=True):
    """How a cell's process ended."""

    target: Name
    suite: Name
    seconds: float
    problem: str = ""
    """Why it has no results of its own: a build that failed, a deadline, a missing tool."""
    problem_kind: ProblemKind = ""
    audit: str = ""
    """`done` if an audit of the same cell followed, because misaligned accesses ended guests; or why it failed."""


class RunRecord(Noun, frozen=True):
    """RUN/run.json: what was asked, and what it ran on."""

    server: str
    family: str
    policy: str
    """As it was asked for; a target's kernel may use another: harness.alignment.policy_for."""
    optimisation: str
    emulator: str
    seed: int
    targets: list[Name]
    suites: list[Name]
    binaries: dict[str, str]
    """Target -> server binary, for symbols."""
    triples: dict[str, str]
    """Target -> prefix of its binary tools."""
    machines: dict[str, Target]
    """Target's name -> what it was at the time."""
    stages: dict[str, float]
    cells: list[CellRecord]
    allocator: Allocator = "libc"
    tests: list[str] = msgspec.field(default_factory=list)
    """What the names of its tests were to have in them; none: all tests were run."""
    beside: dict[str, str] = msgspec.field(default_factory=dict)
    """File of the run folder that is evidence and of no cell -> its SHA-256."""
    warnings: CompilerWarnings = "note"
    """What becomes of what a compiler warns of on a target alone."""
    load: tuple[float, float] = (0.0, 0.0)
    """The machine's load average over one minute, before the cells ran and after."""
    development: str = ""
    """Of a tree between two releases: which one it was taken for, and by what (harness.abilities)."""


Outcome = Literal["passed", "failed", "skipped"]
End = Literal["stopped", "signal", "exit", "hang", "start-failed"]


class Counters(Noun, frozen=True):
    """What /proc/cpu/alignment counts (Linux arch/arm/mm/alignment.c), or would count, of the faults of programs."""

    user: int
    skipped: int
    """Not repaired: no handler knows the instruction."""
    half: int
    word: int
    dword: int
    multi: int


class TestEvent(Noun, frozen=True, tag="test"):
    """One test's outcome."""

    name: str
    outcome: Outcome
    seconds: float
    message: str = ""
    blocked: bool = False
    """It could not run because the server does not start: a consequence, not an observation."""
    guest: NameOrNone = ""
    """Name of the guest folder it ran against, or empty."""
    fault_from: int = 0
    fault_to: int = 0
    """Lines of the guest's fault log that this test added: [from, to)."""
    log_from: int = 0
    log_to: int = 0
    """Bytes of the guest's log that were written during this test, after the guest was ready: [from, to)."""
    unanswered: tuple[str, ...] = ()
    """The requests that got no reply, as a person reads them."""
    transcript: NameOrNone = ""
    """The test's requests and replies, a file in the guest folder; kept when something went wrong."""
    unit: str = ""
    """What ran instead of a server: a unit of a program that harness.units or harness.selftests makes."""
    program: Program = "units"
    """Which program that was."""
    wrong_line: str = ""
    """The line of the unit's output that is not what the model says."""
    counters_before: Counters | None = None
    counters_after: Counters | None = None
    """What the machine's kernel had counted when the test began and when it ended; None where no kernel counts."""
    asked: str = ""
    """The one command that was answered wrongly, if that is known."""
    options: tuple[str, ...] = ()
    """What its guest was started with beyond the usual; files that it was given lie in the guest folder's `inputs`."""
    difference: Difference | None = None
    """Which bytes are wrong, where the test says it."""
    again: Again | None = None
    """How they are shown again."""


class GuestEvent(Noun, frozen=True, tag="guest"):
    """How a guest ended."""

    name: Name
    end: End
    detail: str = ""
    test: str = ""
    """The test during which it ended, or empty."""
    target: NameOrNone = ""
    """Where it ran, if it was not the cell's own target: its folder is peers/TARGET/NAME."""
    own: bool = False
    """It was started for one test alone: all that it did is that test's. What follows is then as in TestEvent."""
    commands: int = 0
    """How many commands it had carried out, as it said itself before it was stopped; 0 where it could not be asked."""
    strangers: int = 0
    """How many connections to it were turned away: another user's, or closed before it could be told whose."""
    unanswered: tuple[str, ...] = ()
    transcript: NameOrNone = ""
    options: tuple[str, ...] = ()


Event = TestEvent | GuestEvent


class MapRecord(Noun, frozen=True):
    """A file-backed mapping of the guest."""

    start: int
    end: int
    offset: int
    path: str


class Fault(Noun, frozen=True):
    """One line of the emulator's fault log: toolchains/qemu/overlay/linux-user/plumbline.c writes it.

    On a real kernel toolchains/kernels/init/trace.c does, from what the kernel tells whoever traces a program.
    """

    event: Literal["fault", "access"]
    """A signal about to be delivered, or (policy audit) a misaligned access that was let through: its first time."""
    pid: int
    tid: int
    signal: int
    """The host's number; 0 for an access."""
    code: int
    address: int
    access: Literal["load", "store", ""]
    handled: bool
    """The program had installed a handler."""
    pc: int
    instruction: str
    registers: list[str]
    """In the order of QEMU's gdb stub, each in the guest's byte order; empty where there is none of that number."""
    stack_address: int
    stack: str
    maps: list[MapRecord]
    access_class: AccessClass | Literal[""] = ""
    access_bytes: int = 0
    """The unit whose alignment counts; 0 unless the signal came of a misaligned access."""
    session: int = 0
    """In a machine of the kernel tier: the program that the harness started, whose child or thread this may be."""
    kernel_log: tuple[str, ...] = ()
    """What a real kernel wrote of it in its log: nothing unless its alignment mode warns."""


BUS_ADRALN = 1
"""si_code of SIGBUS for a misaligned address (Linux, asm-generic/siginfo.h)."""


def is_misaligned(fault: Fault) -> bool:
    """Whether a record tells of a misaligned access: one that was reported, or one that raised its signal.

    On z/Architecture that is SIGILL, and only the emulator's word for the access tells it from other reasons.
    """
    by_signal = fault.signal == signal.SIGBUS and fault.code == BUS_ADRALN
    return fault.event == "access" or by_signal or (fault.signal == signal.SIGILL and bool(fault.access_class))


class Count(Noun, frozen=True):
    """A line of the fault log: how often an instruction's reported access has happened so far."""

    event: Literal["count"]
    pid: int
    pc: int
    count: int


PEERS = "peers"
PROBLEM = "problem"
"""RUN/TARGET/SUITE/problem: why a cell gave up, where its process did: what this machine lacks."""
AUDIT = "audit"
"""RUN/TARGET/SUITE/audit/: the same evidence again, of the audit that follows guests' death by misaligned accesses."""

INPUTS = "inputs"
"""RUN/TARGET/SUITE/guest-N/inputs/: files that lay in the guest's folder when it started."""
PROGRESS = "progress"
"""RUN/TARGET/SUITE/progress: a line of how far a suite has come that goes on for long; overwritten as it works."""


def append(path: Path, event: Event) -> None:
    """Add one line."""
    with path.open("ab") as stream:
        stream.write(codec.encode(event) + b"\n")


def read_events(path: Path) -> list[Event]:
    """All whole lines of a cell's event file; none when the cell wrote none."""
    return [codec.decode(line, Event) for line in _whole_lines(path)]  # type: ignore[arg-type]


def read_faults(path: Path) -> list[Fault]:
    """All whole lines of a fault log. A path with an escape that JSON lacks (an octal one) is read as it stands."""
    return [codec.decode(re.sub(rb"\\([0-7]{3})", rb"\\\\\1", line), Fault) for line in _fault_lines(path)]


def read_counts(path: Path) -> dict[int, int]:
    """Program counter -> how often its access was reported, by all processes of the log.

    Counts are written when they double, and when a process ends: of one that was killed, half may be missing.
    """
    lines = [codec.decode(line, Count) for line in _whole_lines(path) if line.startswith(_COUNT)]
    latest: dict[tuple[int, int], int] = {}
    for line in lines:
        latest[line.pid, line.pc] = max(line.count, latest.get((line.pid, line.pc), 0))
    counts: dict[int, int] = {}
    for (_, pc), count in latest.items():
        counts[pc] = counts.get(pc, 0) + count
    return counts


def count_faults(path: Path) -> int:
    """How many whole records a fault log has."""
    return len(_fault_lines(path))


_COUNT = b'{"event":"count"'


def _fault_lines(path: Path) -> list[bytes]:
    return [line for line in _whole_lines(path) if not line.startswith(_COUNT)]


def _whole_lines(path: Path) -> list[bytes]:
    if not path.is_file():
        return []
    content = path.read_bytes()
    return [line for line in content[: content.rfind(b"\n") + 1].splitlines() if line]


def write_run(folder: Path, record: RunRecord) -> None:
    """Write RUN/run.json, replacing it whole."""
    unfinished = folder / ".run.json"
    unfinished.write_bytes(codec.pretty(record))
    unfinished.rename(folder / "run.json")


def read_run(folder: Path) -> RunRecord:
    """Read RUN/run.json. Raises UsageError when there is none, or a damaged one."""
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError("not a run folder", where=str(folder), because="it has no run.json")
    try:
        return codec.decode(path.read_bytes(), RunRecord)
    except msgspec.DecodeError as error:
        raise UsageError("the run's record is damaged", where=str(path), because=str(error)) from error
