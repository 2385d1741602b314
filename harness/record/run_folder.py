"""The run folder: the nouns of what is written while a check runs, and run.json. Evidence only: nothing here judges.

RUN/run.json                          what was run: RunRecord
RUN/TARGET/SUITE/events.jsonl         Event lines: tests, guests (harness.record.event_log)
RUN/TARGET/SUITE/seal.json            length and digest of every file of evidence (harness.record.evidence_seal)
RUN/TARGET/SUITE/problem              why the cell gave up, if it did
RUN/TARGET/SUITE/audit/               the same again, of the audit that followed
RUN/TARGET/SUITE/guest-N/             log, faults.jsonl (the emulator's: harness.record.fault_log), transcript-N.jsonl
RUN/TARGET/SUITE/peers/OTHER/guest-N/ the same, of servers that a test started on another target, and of the oracle
RUN/TARGET/SUITE/guest-unit-NAME/     log, faults.jsonl of a unit's run
"""

from __future__ import annotations

import hashlib
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import InconclusiveError, UsageError
from harness.core.finding import Difference, Reproduction  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.model import Allocator, CompilerWarnings, Name, NameOrNone, Program, Record
from harness.core.target_model import Policy, Target  # noqa: TC001 - msgspec reads the annotations when it decodes

ProblemKind = Literal["", "build", "deadline", "crash", "units", "absent"]
"""absent: there is nothing of what the suite should run, in the server or among what was asked for; no fault."""


class CellRecord(Record, frozen=True):
    """How a cell's process ended."""

    target: Name
    suite: Name
    seconds: float
    problem: str = ""
    """Why it has no results of its own: a build that failed, a deadline, a missing tool."""
    problem_kind: ProblemKind = ""
    audit: str = ""
    """`done` if an audit of the same cell followed, because misaligned accesses ended guests; or why it failed."""
    status: int | None = None
    """Exit status of its test process; None where none was started."""
    seal: str = ""
    """Digest of the cell's seal.json; empty where no test process was started."""
    audit_seal: str = ""
    """The same, of the audit that followed."""


VERSION = 3
"""The run folder's format. Raise it when an earlier release could not judge what is recorded now."""
READABLE = (2, VERSION)
"""The formats that this release judges. Format 2 records neither `policies` nor `source`."""


class RunRecord(Record, frozen=True):
    """RUN/run.json: what was asked, and what it ran on."""

    server: str
    family: str
    policy: str
    """As it was asked for; a target's kernel may use another: harness.isa.rules.policy_for."""
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
    """How the cells ended; of `targets` times `suites`, those that are not here were never run to an end."""
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
    """Of a tree between two releases: which one it was taken for, and by what (harness.build.sources.tree_features)."""
    policies: dict[str, Policy] = msgspec.field(default_factory=dict)
    """Name -> what it said at the time: the policies that the run was made under, and those that tell fates."""
    source: NameOrNone = ""
    """The cache entry that holds the source of a release; empty for a tree that the user named by its path."""
    version: int = VERSION
    digest: str = ""
    """SHA-256 of the file with an empty digest here, its last key: `write_run` makes it, `read_run` checks it."""


Outcome = Literal["passed", "failed", "skipped"]
End = Literal["stopped", "signal", "exit", "hang", "start-failed"]


class Counters(Record, frozen=True):
    """What /proc/cpu/alignment counts (Linux arch/arm/mm/alignment.c), or would count, of the faults of programs."""

    user: int
    skipped: int
    """Not repaired: no handler knows the instruction."""
    half: int
    word: int
    dword: int
    multi: int


class TestEvent(Record, frozen=True, tag="test"):
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
    """What ran instead of a server: a unit of a program that harness.build.unit_drivers or harness.run.selftests
    makes."""
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
    again: Reproduction | None = None
    """How they are shown again."""
    doubt: str = ""
    """Why its outcome says nothing of the server: the oracle was killed, say, or somebody stopped the guest."""


class GuestEvent(Record, frozen=True, tag="guest"):
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
    pid: int = 0
    """Number of its first process, as the fault log has it; 0 where it is not known."""
    stopping: bool = False
    """It ended so after it had been told to stop."""
    oracle: bool = False
    """It is the native build that answers are compared with."""
    left: tuple[Name, ...] = ()
    """Files that it must have left in its folder, whatever happened."""


class CollectedEvent(Record, frozen=True, tag="collected"):
    """The first line: the cell's tests are known."""

    tests: int
    """How many there are to run."""


class EndEvent(Record, frozen=True, tag="end"):
    """The last line: the cell's process has nothing more to say."""

    tests: int
    """How many of the collected tests have come to their ends."""
    failed: int
    """How many of them failed."""
    lines: int
    """How many lines precede this one."""
    digest: str
    """SHA-256 of them."""


Event = TestEvent | GuestEvent


PEERS = "peers"
PROBLEM = "problem"
"""RUN/TARGET/SUITE/problem: why a cell gave up, where its process did: what this machine lacks."""
AUDIT = "audit"
"""RUN/TARGET/SUITE/audit/: the same evidence again, of the audit that follows guests' death by misaligned accesses."""

STOPPED = "stopped by SIGSTOP"
"""GuestEvent.detail of a guest that somebody stopped: nobody in a guest does that to it."""
NO_PONG = "no PONG before the deadline"
"""GuestEvent.detail of a guest that hung and was never ready."""
INPUTS = "inputs"
"""RUN/TARGET/SUITE/guest-N/inputs/: files that lay in the guest's folder when it started."""
PROGRESS = "progress"
"""RUN/TARGET/SUITE/progress: a line of how far a suite has come that goes on for long; overwritten as it works."""


def write_run(folder: Path, record: RunRecord) -> None:
    """Write RUN/run.json, replacing it whole."""
    unfinished = folder / ".run.json"
    unfinished.write_bytes(signed(json_codec.pretty(msgspec.structs.replace(record, digest=""))))
    unfinished.rename(folder / "run.json")


def signed(unsigned: bytes) -> bytes:
    """A record's text with the digest of itself, for one whose digest is empty."""
    before, _, after = unsigned.rpartition(_UNSIGNED)
    return before + _SIGNED % hashlib.sha256(unsigned).hexdigest().encode() + after


def read_run(folder: Path) -> RunRecord:
    """Read RUN/run.json.

    Raises UsageError when there is none, or one of another release's format, InconclusiveError for a damaged one.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError("not a run folder", where=str(folder), because="it has no run.json")
    try:
        content = path.read_bytes()
        # Before the rest: a newer release may have keys that are not known here.
        version = json_codec.decode(content, _Versioned).version
        if version not in READABLE:
            made_by = "a newer" if version > VERSION else "an older"
            raise UsageError(
                f"the run was made by {made_by} Plumbline",
                where=str(path),
                because=f"its format is {version}, and this release reads {' and '.join(map(str, READABLE))}",
                remedy="judge it with the release that made it, or run the check again",
            )
        record = json_codec.decode(content, RunRecord)
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from error
    before, _, after = content.rpartition(_SIGNED % record.digest.encode())
    if signed(before + _UNSIGNED + after) != content:
        raise _damaged(path, "it is not what was written: its digest differs")
    return record


class _Versioned(msgspec.Struct):
    """What every release's run.json has."""

    version: int = 1


_SIGNED = b'"digest": "%s"'
_UNSIGNED = _SIGNED % b""


def _damaged(path: Path, because: str) -> InconclusiveError:
    return InconclusiveError(
        "the run's record is damaged, and nothing can be concluded",
        where=str(path),
        because=because,
        remedy="run again",
    )
