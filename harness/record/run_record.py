"""The record of a run as a value: what was requested, which machines ran it, and how each cell ended.

harness.record.run_folder writes and reads it as run.json.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.core.model import (
    Allocator,
    BuildSettings,
    CompilerWarnings,
    DigestOrNone,
    Everywhere,
    GuestEnvironment,
    MemoryOrder,
    Name,
    NameOrNone,
    Record,
    StorePair,
    Tier,
    Transport,
)
from harness.core.target_model import DEFAULT_FAMILY, Policy, Target

CHANGES = "+changes"
"""The suffix of the commit in RunRecord.revision if the tree differs from it."""
ProblemKind = Literal["", "build", "deadline", "crash", "units", "absent"]
"""absent: the server or the user's selection has nothing that the suite could run. This is not a failure."""


WITH_TLS = "with TLS, "
"""The beginning of a cell's problem if its server compiles, and the same server with TLS does not."""


class LeftOut(Record, frozen=True):
    """The tests of a cell that did not run, because they ended as expected on the same code (`plumb premerge`): they
    passed, were skipped, or failed with a known finding.
    """

    tests: int
    """How many did not run."""
    of: int
    """How many there are."""
    functions: list[str]
    """The functions whose code has changed and which tests of the target reach: these tests ran."""
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
    """Edited lines that no test executed, among those that only the client, the benchmark or the server with TLS
    contains."""
    of_beside: int = 0
    """The number of such lines, including those that tests executed. None if they were not recorded."""
    whole_beside: bool = False
    """Whether the server's lines and these represent the whole change."""

    @property
    def may_be_entered(self) -> bool:
        """Whether a test may have entered a function that differs, or used data that do."""
        return self.data_differ or bool(self.unnoted) or len(self.functions) < self.of


class HostRun(Record, frozen=True):
    """One more run of a cell's failed tests, for a second opinion on them: on the native build of the same tree, or on
    the target in the host's memory order.
    """

    problem: str
    """Why it has no result; empty if it has one."""
    seal: str
    """Digest of its seal.json."""
    preceded: bool = False
    """Whether all tests ran that precede the failed ones in their cell: some failures need what those leave behind."""
    launch: NameOrNone = ""
    """The folder in the cell's of the program that ran again, of a traced command; empty: the failed tests ran."""


class DelayedRun(HostRun, frozen=True):
    """One more run of a cell's failed tests while stores wait, as they did in the cell."""

    seed: int | None = None
    """The seed of the order, if threads paused more often, so that the log names more of the stores that others saw;
    None: all was as in the cell.
    """
    pair: StorePair | None = None
    """The only stores of which one could overtake the other, with such a seed; None: all could."""


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
    host: list[HostRun] = msgspec.field(default_factory=list)
    """The runs of its failed tests on the native build, in order; empty if no test failed that the build can run."""
    ordered: list[HostRun] = msgspec.field(default_factory=list)
    """Their runs in the host's memory order, of a cell with another one; empty if no test failed."""
    delayed: list[DelayedRun] = msgspec.field(default_factory=list)
    """Their runs in the cell's own order, if they do not fail in the host's."""


class BoardFacts(Record, frozen=True):
    """A board's machine as its programs see it: harness.run.boards.board_probe asks them."""

    endianness: str
    width_bits: int
    time_bits: int
    char: str
    """`signed` or `unsigned`."""
    page_size_bytes: int
    kernel: str = ""
    """Name, release and version of its system (uname(1))."""
    machine: str = ""
    """Its `uname -m`."""
    libc: str = ""
    """The C library that the probe was compiled with; empty if it does not name itself."""
    processor: str = ""
    """As /proc/cpuinfo names it; empty if that does not."""
    odd_load: str = ""
    """What an int does that is loaded from an odd address: `done`, `wrong`, or `signal` and its number."""


VERSION = 6
"""The run folder's format. Raise it when earlier releases cannot judge the new records."""
READABLE = (2, 3, 4, 5, VERSION)
"""The formats that this release judges. Format 2 records neither `policies` nor `source`; 3 has no tests of upstream's;
4 records no `release`; 5 has no digest of excerpts.json."""


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
    memory_order: MemoryOrder = "usual"
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
    everywhere: Everywhere = "note"
    """How a run treats what the native build does as well."""
    boards: dict[str, BoardFacts] = msgspec.field(default_factory=dict)
    """Target -> what its board told of itself; empty without `--board`, and if it did not tell."""
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
    packages: dict[Name, dict[str, str]] = msgspec.field(default_factory=dict)
    """Target -> file -> SHA-256 of each package that a distribution's server and its libraries were unpacked from."""
    ended: bool = True
    """Whether the run has ended. Until then, the record contains the cells that have ended so far."""
    version: int = VERSION
    digest: str = ""
    """SHA-256 of the file with this last key empty. run_folder computes it as it writes, and checks it as it reads."""
