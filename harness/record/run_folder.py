"""The run folder: the records that a check writes while it runs, and run.json. Evidence only: nothing here judges.

RUN/run.json                          what was run: RunRecord
RUN/tree-known.toml                   the tree's own list of known findings (harness.judge.known)
RUN/base-known.toml                   the same of the base revision (harness.workflows.premerge)
RUN/inherited.json                    findings that the base revision also shows (harness.judge.baseline)
RUN/cost.json                         what the run cost this machine: time, memory (harness.record.run_cost)
RUN/TARGET/SUITE/events.jsonl         Event lines: tests, guests (harness.record.event_log)
RUN/TARGET/SUITE/seal.json            length and digest of every file of evidence (harness.record.evidence_seal)
RUN/TARGET/SUITE/executed.jsonl       what code each test executed, if asked for (harness.record.instruction_counts)
RUN/TARGET/SUITE/profile.json         where the cell's process spent its time (harness.record.run_cost)
RUN/TARGET/SUITE/problem              why the cell's process gave up, if it did
RUN/TARGET/SUITE/audit/               the same files, from the audit that followed
RUN/TARGET/SUITE/guest-N/             log, faults.jsonl (the emulator's: harness.record.fault_log), transcript-N.jsonl
RUN/TARGET/SUITE/peers/OTHER/guest-N/ the same files, from servers on other targets and from the oracle
RUN/TARGET/SUITE/guest-unit-NAME/     log, faults.jsonl of a unit's run
"""

from __future__ import annotations

import hashlib
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Literal

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.digests import sha256_of
from harness.core.errors import InconclusiveError, UsageError
from harness.core.finding import Difference, Reproduction  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.model import (
    Allocator,
    BuildSettings,
    CompilerWarnings,
    DigestOrNone,
    GuestEnvironment,
    Name,
    NameOrNone,
    Program,
    Record,
    Tier,
    Transport,
)
from harness.core.target_model import DEFAULT_FAMILY, Policy, Target

ProblemKind = Literal["", "build", "deadline", "crash", "units", "absent"]
"""absent: the server or the user's selection has nothing that the suite could run. This is not a failure."""


class LeftOut(Record, frozen=True):
    """The tests of a cell that did not run, because they ended as expected on the same code (`plumb premerge`): they
    passed, were skipped, or failed with a known finding.
    """

    tests: int
    """How many did not run."""
    of: int
    """How many there are."""
    functions: list[str]
    """The functions whose code is another than before, and which tests of the target reach: these tests ran."""
    before: str
    """The run in which they ended so."""
    known: int = 0
    """How many of those that did not run had failed with findings that are known."""
    unreached: list[str] = msgspec.field(default_factory=list)
    """In runs of earlier commits, this has the content of `RunRecord.unentered`."""


class Unentered(Record, frozen=True):
    """The parts of a change that no test of a target enters (`plumb premerge`)."""

    functions: list[str]
    """Functions of the server that the change's base lacks or has with other code, and that nothing entered."""
    of: int
    """How many such functions there are, with those that tests entered."""
    data_differ: bool
    """Whether data differ besides, or functions are gone. Who uses them is not known."""
    unnoted: list[str]
    """Suites that ran and may have entered some of it, but were not recorded."""
    lines: list[str] = msgspec.field(default_factory=list)
    """Edited lines of sources that have code and that no test executed, as `FILE:LINE`, in order."""
    of_lines: int = 0
    """How many edited lines have code, with those that tests executed."""
    whole: bool = False
    """Whether these lines represent the whole change: it is a change to sources, and each of its parts has such a
    line.
    """
    beside: list[str] = msgspec.field(default_factory=list)
    """Of edited lines that the plain server lacks and the client, the benchmark or the server with TLS has: those that
    no test executed."""
    of_beside: int = 0
    """The number of such lines, including those that tests executed. None if they were not recorded."""
    whole_beside: bool = False
    """Whether the server's lines and these represent the whole change."""


class CellRecord(Record, frozen=True):
    """The end of a cell's process."""

    target: Name
    suite: Name
    seconds: float
    problem: str = ""
    """Why the cell has no results of its own: a failed build, a deadline, a missing tool."""
    problem_kind: ProblemKind = ""
    audit: str = ""
    """`done` if an audit of the cell followed because misaligned accesses ended guests; else why the audit failed."""
    status: int | None = None
    """Exit status of the test process; None if none was started."""
    seal: str = ""
    """Digest of the cell's seal.json; empty if no test process was started."""
    emulator: DigestOrNone = ""
    """SHA-256 of the user-mode emulator that ran the target's programs; empty if none did."""
    audit_seal: str = ""
    """Digest of the audit's seal.json."""
    left_out: LeftOut | None = None
    """None if all tests of the cell were to run."""


VERSION = 5
"""The run folder's format. Raise it when earlier releases cannot judge the new records."""
READABLE = (2, 3, 4, VERSION)
"""The formats that this release judges. Format 2 records neither `policies` nor `source`; 3 has no tests of upstream's;
4 records no `release`."""


class RunRecord(Record, frozen=True):
    """RUN/run.json: what was requested, and the machines that ran it."""

    server: str
    family: str
    policy: str
    """The requested policy. A target's kernel may use another: harness.isa.rules.policy_for."""
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
    """Target's name -> its definition at the time of the run."""
    stages: dict[str, float]
    cells: list[CellRecord]
    """How the cells ended. A cell of `targets` times `suites` that is absent here did not finish."""
    allocator: Allocator = "libc"
    toolchain: Name = DEFAULT_FAMILY
    """The family of toolchains; the default: those that the targets name."""
    environment: GuestEnvironment = "usual"
    io: Transport = "unix"
    """How the suites' clients connected to the servers, except those in virtual machines, which have only TCP."""
    tests: list[str] = msgspec.field(default_factory=list)
    """The `--test` patterns for the names of tests; empty if all tests ran."""
    tier: Tier | Literal[""] = ""
    """How much the suites did; empty if there was no choice."""
    beside: dict[str, str] = msgspec.field(default_factory=dict)
    """Evidence file in the run folder that belongs to no cell -> its SHA-256."""
    warnings: CompilerWarnings = "note"
    """How a run treats compiler warnings that occur only on a target."""
    load: tuple[float, float] = (0.0, 0.0)
    """The machine's load average over one minute, before the cells ran and after."""
    release: str = ""
    """The version of the server's source, such as `7.0.15`. For a tree between two releases: of the one that it was
    treated as."""
    development: str = ""
    """For a tree between two releases: the release it was treated as, and why (harness.build.sources.tree_features)."""
    mixed: bool = False
    """Whether servers of the release's own tests that talk to each other alternated between the targets."""
    target_clients: bool = False
    """Whether redis-cli and redis-benchmark of those tests ran on the target."""
    policies: dict[str, Policy] = msgspec.field(default_factory=dict)
    """Name -> definition at the time, of the policies that the run used and of those that determine fates."""
    source: NameOrNone = ""
    """The cache entry that holds the source of a release; empty for a tree that the user named by its path."""
    settings: BuildSettings = BuildSettings()
    """The additions of the builds for targets to the makefile's own flags and variables."""
    revision: str = ""
    """The commit of a tree in a git checkout, with `+changes` behind it where files differ from it; else empty."""
    unentered: dict[Name, Unentered] = msgspec.field(default_factory=dict)
    """Target -> the part of a change that no test enters; empty if this is not known for every target."""
    uncompared: bool = False
    """Whether a change was checked and its code could not be compared with the base's. Older runs did not say."""
    timeout_multiplier: float = 1.0
    """How many times longer than usual its commands and servers could take (`--timeout-multiplier`)."""
    ended: bool = True
    """Whether the run came to its end. Until then the record has the cells that have ended so far."""
    version: int = VERSION
    digest: str = ""
    """SHA-256 of the file with this last key empty. `write_run` computes it, `read_run` checks it."""


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
    unit: str = ""
    """The unit that ran instead of a server, of a program from harness.build.unit_drivers or harness.run.selftests."""
    program: Program = "units"
    """The program that contains the unit."""
    wrong_line: str = ""
    """The line of the unit's output that differs from the model's."""
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


Event = TestEvent | GuestEvent


BEFORE_TESTS, IN_TESTS = "start", "tests"
"""The phases of a cell's process: ProcessorTime has their seconds, and its profile begins with them."""
PEERS = "peers"
PROBLEM = "problem"
"""RUN/TARGET/SUITE/problem: why a cell's process gave up, such as what this machine lacks."""
AUDIT = "audit"
"""RUN/TARGET/SUITE/audit/: the evidence of the audit that follows when misaligned accesses ended guests."""

STOPPED = "stopped by SIGSTOP"
"""GuestEvent.detail of a guest that was stopped from outside: no process in a guest stops it."""
CHANGES = "+changes"
"""The suffix of the commit in RunRecord.revision if the tree differs from it."""
NO_PONG = "no PONG before the deadline"
"""GuestEvent.detail of a guest that hung and was never ready."""
WHOLE_FILE = "(the whole file)"
"""The last part of TestEvent.upstream for the item that represents a file of upstream's tests instead of a test."""
INPUTS = "inputs"
"""RUN/TARGET/SUITE/guest-N/inputs/: files that were in the guest's folder when it started."""
PROGRESS = "progress"
"""RUN/TARGET/SUITE/progress: one line on the progress of a long suite, overwritten as it runs."""


def write_run(folder: Path, record: RunRecord) -> None:
    """Write RUN/run.json, replacing the whole file."""
    write_whole(folder / "run.json", signed(json_codec.pretty(msgspec.structs.replace(record, digest=""))))


def signed(unsigned: bytes) -> bytes:
    """The text of a record with its own digest filled in. The digest in `unsigned` is empty."""
    before, _, after = unsigned.rpartition(_UNSIGNED)
    return before + _SIGNED % hashlib.sha256(unsigned).hexdigest().encode() + after


NAMES_ONE = "name the folder that the check's last line names; this lists runs: ls -d runs/*/"
"""The remedy for a folder that is not a run folder."""


def why_none(folder: Path) -> str:
    """Why a folder is not a run folder."""
    return "it has no run.json" if folder.is_dir() else "there is no such folder"


def read_run(folder: Path) -> RunRecord:
    """Read RUN/run.json.

    Raises UsageError if it is missing or in another release's format, and InconclusiveError if it is damaged.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError("not a run folder", where=str(folder), because=why_none(folder), remedy=NAMES_ONE)
    try:
        content = path.read_bytes()
        # Check the version first: a newer release may have keys that are unknown here.
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
        raise _damaged(path, "it has changed since it was written: its digest differs")
    return record


def is_recorded(folder: Path, run: RunRecord, name: str) -> bool:
    """Whether a file in the run folder that belongs to no cell is there, and is as the run recorded it."""
    path = folder / name
    return path.is_file() and run.beside.get(name) == sha256_of(path)


def refuse_other(folder: Path, digest: str) -> None:
    """Raise UsageError unless a judgement in a run folder is of the record there. `digest`: of the record that was
    judged; empty if the judgement does not say. A folder without a record has only the judgement.
    """
    if (folder / "run.json").is_file() and read_run(folder).digest != digest:
        raise UsageError(
            "the judgement is of another run" if digest else "the judgement does not say of which run it is",
            where=str(folder),
            because="its findings.json belongs to another run.json" if digest else "findings.json has no `record`",
            remedy=f"plumb judge {folder}",
        )


class _Versioned(msgspec.Struct):
    """The key that every release's run.json has."""

    version: int = 1


_SIGNED = b'"digest": "%s"'
_UNSIGNED = _SIGNED % b""


def _damaged(path: Path, because: str) -> InconclusiveError:
    return InconclusiveError(
        "the run's record is damaged, so nothing can be concluded",
        where=str(path),
        because=because,
        remedy="run again",
    )
