"""The nouns of what there is: machines, servers, suites, builds. No behaviour beyond what identity needs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Annotated, Literal

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")]
"""What becomes part of a path: a target, suite, guest or file. A record that a stranger wrote leads nowhere else."""

NameOrNone = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+-]*)?\Z")]
"""The same, or empty."""

FileName = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+-]*/)*[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")]
"""A file's path below a folder that is told elsewhere: `dump.rdb`, `appendonlydir/appendonly.aof.1.base.rdb`."""

FileNameOrNone = Annotated[
    str, msgspec.Meta(pattern=r"^(([A-Za-z0-9_][A-Za-z0-9._+-]*/)*[A-Za-z0-9_][A-Za-z0-9._+-]*)?\Z")
]
"""The same, or empty."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen, keyword-only value; decoding one from a file refuses unknown keys."""


Allocator = Literal["libc", "jemalloc", "guard", "guard-natural"]
"""What gives a server its memory (harness.build.allocator)."""


CompilerWarnings = Literal["note", "fail", "off"]
"""What becomes of what a compiler warns of on a target alone: noted, findings that fail, not asked for (off)."""


class ArchivePlace(Record, frozen=True):
    """Where a source archive can be had."""

    registry: Literal["debian", "pypi"]
    package: str
    file: str
    suite: str = ""
    """Debian only: the suite whose sources index lists the file."""
    version: str = ""
    """PyPI only: the release."""


class Server(Record, frozen=True):
    """A source tree of the server under test: a release pinned by hash."""

    name: str
    family: Literal["redis", "valkey"]
    version: str
    sha256: str
    note: str
    places: list[ArchivePlace]
    folder: str = ""
    """Folder of the tree inside the archive, below its single top folder; empty for the top folder itself."""


class Abilities(Record, frozen=True):
    """What a server can do, as its source tells it (harness.build.sources.tree_features): of a release's number nothing
    is concluded.
    """

    commands: tuple[str, ...] = ()
    """In lower case; a container's as `CONTAINER|COMMAND`, which sources tell since Redis 7.0."""
    options: tuple[str, ...] = ()
    """What may stand in its configuration, and on its command line behind `--`; other words of its source, too."""


class SourceTree(Record, frozen=True):
    """An unpacked, readable tree of a server."""

    name: str
    family: Literal["redis", "valkey"]
    version: tuple[int, ...]
    """Its release; of a development tree, the one that it is taken for."""
    path: Path
    digest: str
    """SHA-256 of what the compiler can see: of the archive for a release, of the files for a path."""
    abilities: Abilities = Abilities()
    development: str = ""
    """Of a tree between two releases: what it calls itself, and by what it was taken for its `version`."""
    files: str = ""
    """The digest of the files (harness.build.sources.tree_files): what is compiled must have it. Empty where nothing is
    compiled."""
    copy: Path | None = None
    """A copy of the tree as it was when it was opened; None for a release, which nobody edits."""

    @property
    def content(self) -> Path:
        """What is built: the copy where there is one. `path` is where the user has it."""
        return self.copy or self.path


COMPILED_IN = "tree"
"""The folder of a build directory where a server is compiled: debug information keeps its name in every path."""

SuiteTier = Literal["quick", "full", "thorough"]
Tier = Literal["quick", "full", "thorough", "kernel"]
"""How much a run does: what suites say, and what real kernels are asked."""
Flavour = Literal["pinned", "distro"]
"""Which emulator runs it: the pinned QEMU with our changes, or the distribution's."""

Program = Literal["units", "selftests"]
"""The program that a suite runs instead of a server: the server's functions called by Plumbline's drivers
(harness.build.unit_drivers), or the server's own tests (harness.run.selftests)."""

SuiteRole = Literal["", "canary"]
"""The part that a suite plays for the harness: `canary` proves that a target enforces alignment."""

CANARY_SUITE = "canary"
"""The name of the suite with the role `canary`. Run folders record it, and are judged without a catalog."""


class Suite(Record, frozen=True):
    """A folder of tests."""

    name: str
    title: str
    path: Path
    needs_server: bool
    program: Program | Literal[""] = ""
    """The program that its tests run instead of a server. The drivers of `units` stand in units.toml and drivers/."""
    role: SuiteRole = ""
    """`canary` for the suite that proves that a target enforces alignment: every plan has it, and runs it first."""
    module: str = ""
    """The C source, in the suite's folder, of a module that its servers load (harness.build.server_module)."""
    tier: SuiteTier = "quick"
    """The least tier that runs it unasked."""
    guided: bool = False
    """Whether its thorough tier is led by the edges of the guest's code that it reaches."""
    source_globs: tuple[str, ...] = ()
    """Globs of the server's source files that the suites with such a glob test as well as the whole quick tier does:
    `plumb premerge` runs only these suites for a change of such a file alone."""
    multi_target_tier: SuiteTier | Literal[""] = ""
    """The lowest tier in which its tests combine several targets of the run, so that a single target tests less."""
    io_bound: bool = False
    """Whether its tests mostly wait for servers: its cells run in addition to the cells that `--jobs` counts."""
    since: tuple[int, ...] = ()
    """The first release that has what it tests; cells of an earlier one are skipped. Empty: every one has it."""


class Cell(Record, frozen=True):
    """Target x Server x Suite: the unit of planning, CI and reporting."""

    target: str
    server: str
    suite: str

    @property
    def identity(self) -> str:
        """`TARGET/SERVER/SUITE`, what globs select by."""
        return f"{self.target}/{self.server}/{self.suite}"


class Build(Record, frozen=True):
    """Compiled binaries of a server for a target, in the cache."""

    key: str
    target: str
    server: str
    optimisation: str
    folder: Path
    server_binary: Path
    command_line: list[str]
    """The make command, for the record."""
    allocator: Allocator = "libc"
    preload: Path | None = None
    """A shared object that the server is started with."""
    abilities: Abilities = Abilities()
    """What the source says that the server can do."""
