"""The data of servers, suites and builds, and `Record`, from which all data derives."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")]
"""A part of a path: a target, suite, guest or file. A record from a stranger cannot lead out of its folder."""

NameOrNone = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+-]*)?\Z")]
"""The same, or empty."""

FileName = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+-]*/)*[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")]
"""A file's path below a folder named elsewhere: `dump.rdb`, `appendonlydir/appendonly.aof.1.base.rdb`."""

FileNameOrNone = Annotated[
    str, msgspec.Meta(pattern=r"^(([A-Za-z0-9_][A-Za-z0-9._+-]*/)*[A-Za-z0-9_][A-Za-z0-9._+-]*)?\Z")
]
"""The same, or empty."""

DigestOrNone = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")]
"""A SHA-256 in hexadecimal, or empty."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen, keyword-only value. Decoding refuses unknown keys."""


Allocator = Literal["libc", "jemalloc", "makefile", "guard", "guard-natural"]
"""The memory allocator of a server (harness.build.allocator)."""


GuestEnvironment = Literal["usual", "musl-stack", "debian-service"]
"""The surroundings of an emulated program apart from the machine (harness.build.environments)."""

MemoryOrder = Literal["usual", "weak"]
"""The order in which threads of an emulated program see one another's stores: the host's, or whichever the target's
architecture allows (harness.isa.memory_order)."""


class StorePair(Record, frozen=True):
    """Two stores of one thread of an emulated program, by the addresses of their instructions."""

    early: Annotated[int, msgspec.Meta(ge=0)]
    """The later one in the program, which becomes visible first."""
    late: Annotated[int, msgspec.Meta(ge=0)]


Transport = Literal["unix", "tcp"]
"""How clients connect to a server under test: over a Unix socket, or over TCP on loopback. Machines of the kernel tier
have only TCP.
"""


Everywhere = Literal["note", "fail", "off"]
"""How a finding is handled that the native build shows as well: noted, or like every other finding. off: the native
build is not asked.
"""
CompilerWarnings = Literal["note", "fail", "off"]
"""How compiler warnings that occur only on a target are handled: noted, failing findings, or not requested (off)."""


class ArchivePlace(Record, frozen=True):
    """A place to download a source archive from."""

    registry: Literal["debian", "pypi"]
    package: str
    file: str
    suite: str = ""
    """Debian only: the suite whose sources index lists the file."""
    version: str = ""
    """PyPI only: the release."""


class Server(Record, frozen=True):
    """A release of the server under test, pinned by hash."""

    name: str
    family: Literal["redis", "valkey"]
    version: str
    sha256: str
    note: str
    places: list[ArchivePlace]
    folder: str = ""
    """The tree's folder in the archive, below the single top folder; empty for the top folder itself."""


class Abilities(Record, frozen=True):
    """What a server can do. Its native build was asked (harness.workflows.server_abilities); if nothing could ask it,
    its source was read (harness.build.sources.tree_features). The version number does not matter.
    """

    commands: tuple[str, ...] = ()
    """Its commands, in lower case. Subcommands are `CONTAINER|COMMAND`; sources list them since Redis 7.0."""
    options: tuple[str, ...] = ()
    """The words that its configuration and, after `--`, its command line may contain. Before 6.0, CONFIG GET does not
    report those that only a start sets, such as cluster-enabled. Those of a source include other words.
    """
    fields: tuple[str, ...] = ()
    """The fields that INFO reports just after the start."""
    forms: tuple[str, ...] = ()
    """The forms of requests that it understands, by their names in harness/run/server_questions.toml."""
    api: tuple[str, ...] = ()
    """The names that its header for modules declares, of those in harness/run/server_questions.toml."""
    asked: bool = False
    """Whether the server itself was asked. If it was not, only commands and options are known."""

    def lacks(self, needs: Sequence[str]) -> str:
        """The first of these needs that the server does not meet, for a reader; empty if it meets all.

        A need is a kind and a name: `command xinfo|stream`, `option io-threads`, `info lazyfreed_objects`,
        `form RESTORE IDLETIME`, `api RedisModule_RegisterNumericConfig`. What nobody could ask counts as met: a test
        then shows whether it is. Raises ValueError for another kind.
        """
        return next((need for need in needs if not self._meets(*need.split(" ", 1))), "")

    def _meets(self, kind: str, name: str) -> bool:
        match kind:
            case "command":
                container, _, sub = name.partition("|")
                # Old servers do not list a container's subcommands.
                listed = any(one.startswith(f"{container}|") for one in self.commands)
                return (name if sub and listed else container) in self.commands or not self.commands
            case "option":
                return name in self.options
            case "info":
                return name in self.fields or not self.asked
            case "form":
                return name in self.forms or not self.asked
            case "api":
                return name in self.api or not self.asked
        raise ValueError(f"no such kind of need: {kind} {name}")


_LTO = "-lto"


def is_lto(optimisation: str) -> bool:
    """Whether an optimisation level includes link-time optimisation, as O2-lto does."""
    return optimisation.endswith(_LTO)


def level_flags(optimisation: str) -> list[str]:
    """The compiler's flags of an optimisation level: `-O2 -flto` for O2-lto. None without a level."""
    if not optimisation:
        return []
    return [f"-{optimisation.removesuffix(_LTO)}", *(["-flto"] if is_lto(optimisation) else [])]


def level_text(optimisation: str) -> str:
    """These flags as reports show them. Empty without a level, for a program that Plumbline did not compile."""
    return " ".join(level_flags(optimisation))


class BuildSettings(Record, frozen=True):
    """What a distribution adds to a server's build for a target. The native build never has it, because flags name
    machines.
    """

    cflags: tuple[str, ...] = ()
    """Compiler flags for every file, after the makefile's own."""
    make: tuple[str, ...] = ()
    """Variables of make's command line, `NAME=VALUE`, after Plumbline's own."""

    @property
    def words(self) -> list[str]:
        """The options of `plumb` that give these settings."""
        flags = [f"--cflags={shlex.join(self.cflags)}"] if self.cflags else []
        return flags + [f"--make={variable}" for variable in self.make]


DISTRIBUTION = "debian:"
"""The beginning of a package's name as `--server` accepts it. No release or path begins so."""


class ServerPackage(Record, frozen=True):
    """A server in a package of Debian."""

    suite: str
    """`bookworm`."""
    name: str
    """`redis-server`."""
    version: str = ""
    """`5:7.0.15-1~deb12u7`; empty: the version in the suite."""

    @property
    def family(self) -> str:
        """`redis`: packages are named after their server."""
        return self.name.partition("-")[0]

    @property
    def title(self) -> str:
        """Its name as `--server` accepts it."""
        return f"{DISTRIBUTION}{self.suite}/{self.name}" + (f"={self.version}" if self.version else "")


class SourceTree(Record, frozen=True):
    """An unpacked source tree of a server."""

    name: str
    family: Literal["redis", "valkey"]
    version: tuple[int, ...]
    """The release; for a development tree, the release that it is treated as."""
    path: Path
    digest: str
    """SHA-256 of everything that the compiler can see: the archive of a release, the files of a path."""
    abilities: Abilities = Abilities()
    development: str = ""
    """For a tree between two releases: its own version string, and why it is treated as `version`."""
    files: str = ""
    """The digest of the files (harness.build.sources.tree_files), which compiled files must match. Empty if nothing is
    compiled.
    """
    copy: Path | None = None
    """A copy of the tree from when it was opened; None for a release, which does not change."""
    settings: BuildSettings = BuildSettings()
    """What its builds for targets add to the makefile's own flags and variables."""
    package: ServerPackage | None = None
    """The package that contains its server, which is then not compiled: the tree is the release from which the package
    was built, without the distribution's changes.
    """

    @property
    def content(self) -> Path:
        """The folder to build: the copy, if there is one. `path` is the user's own folder."""
        return self.copy or self.path


DEFAULT_OPTIMISATION = "O2"
"""The level of servers, unless the command line names another."""
COMPILED_IN = "tree"
"""The folder of a build directory where a server is compiled: debug information keeps its name in every path."""

SuiteTier = Literal["quick", "full", "thorough"]
Tier = Literal["quick", "full", "thorough", "kernel"]
"""How thorough a run is: the tiers of suites, and the tier on real kernels."""
TIERS: dict[str, int] = {"kernel": 0, "quick": 0, "full": 1, "thorough": 2}
"""Tier -> its rank; it runs the suites of every rank up to its own. The kernel tier runs the quick tier's suites."""
Flavour = Literal["pinned", "distro"]
"""Which emulator runs it: the pinned QEMU with Plumbline's patches, or the distribution's."""

Program = Literal["units", "selftests"]
"""The program that a suite runs instead of a server: the server's functions called by Plumbline's drivers
(harness.build.unit_drivers), or the server's own tests (harness.run.selftests)."""

SuiteRole = Literal["", "canary"]
"""The part that a suite plays for the harness: `canary` proves that a target enforces alignment."""

CANARY_SUITE = "canary"
"""The name of the suite with the role `canary`. Run folders record it, and are judged without a catalog."""


_FILE = "file "
"""The kind of a suite's need that the source itself answers."""


class Suite(Record, frozen=True):
    """A folder of tests."""

    name: str
    title: str
    path: Path
    needs_server: bool
    program: Program | Literal[""] = ""
    """The program that its tests run instead of a server. units.toml and drivers/ contain the drivers of `units`."""
    upstream: bool = False
    """Whether its tests are the release's own (harness.run.upstream)."""
    quick_files: tuple[str, ...] = ()
    """The files of the release's own tests that run with other suites in the tiers `quick` and `kernel`."""
    quick_leaves_out: tuple[str, ...] = ()
    """Tests of those files that do not run in this case: globs of `FILE::TEST`."""
    deadline_seconds: float = 0.0
    """The deadline of a cell; 0: the tier's."""
    role: SuiteRole = ""
    """`canary` for the suite that proves that a target enforces alignment: every plan contains it, and runs it
    first.
    """
    module: str = ""
    """The C source of a module that its servers load (harness.build.server_module), by its path from the suite."""
    preload: str = ""
    """The C source of a shared object that its servers may preload, by its path from the suite."""
    programs: bool = False
    """Whether its tests run the release's other programs on the target: its client, its benchmark."""
    tls: bool = False
    """Whether its servers are compiled with TLS (harness.build.sources.openssl)."""
    settings: dict[str, str] = {}
    """Parameters of its servers' configuration, and their values. A release that lacks a parameter starts without it.
    The oracle keeps its defaults."""
    tests_of: tuple[str, ...] = ()
    """Other suites whose tests it also runs, before its own."""
    only: tuple[str, ...] = ()
    """Globs of the tests that it runs, as `SUITE/FILE::TEST`; none for all. So a quick suite can run the shortest tests
    of larger ones."""
    tier: SuiteTier = "quick"
    """The lowest tier that includes it by default."""
    guided: bool = False
    """Whether coverage of the guest's code guides its thorough tier."""
    source_globs: tuple[str, ...] = ()
    """Globs of the server's source files that this suite tests as thoroughly as the whole quick tier does. If a change
    touches only such files, `plumb premerge` runs only the suites with a glob for them."""
    partial_globs: tuple[str, ...] = ()
    """Globs of further source files, of which this suite tests a part that the quick tier does not. `plumb premerge`
    also runs it for a change to them, beside the suites that cover the file or the whole quick tier, on one target of
    each width and byte order. If it is `costly`, so few targets suffice that each of these occurs.
    """
    multi_target_tier: SuiteTier | Literal[""] = ""
    """The lowest tier in which its tests combine several targets of the run, so a single target tests less."""
    io_bound: bool = False
    """Whether its tests mostly wait for servers: its cells run in addition to the cells that `--jobs` counts."""
    spins: bool = False
    """Whether its servers' threads spin while they wait for one another: its cells run last and one at a time, beside
    none but those that mostly wait. Beside another, each of its requests would wait for time slices."""
    on_host: bool = False
    """Whether its tests need servers that are processes of the host: at ports that the tests choose, with files
    that they change, or as peers of other servers. Its cells are skipped in the kernel tier, whose servers run inside
    an emulated machine."""
    needs: tuple[str, ...] = ()
    """What a server needs for its tests (harness.core.model.Abilities.lacks); cells of servers that lack one of it are
    skipped. `file src/tls.c` is a file of the source.
    """
    reordered: bool = False
    """Whether it looks for faults of memory order: cells of runs with the host's order are skipped."""
    family: Literal["redis", "valkey", ""] = ""
    """The only family with the feature that it tests; cells of the other one are skipped. Empty: both have it."""

    @property
    def costly(self) -> bool:
        """Whether each further target costs much: its servers spin, or are compiled in a way of their own."""
        return self.spins or self.program == "selftests"

    @property
    def plain_programs(self) -> bool:
        """Whether its tests run the release's other programs without TLS. Those with TLS are made with the server."""
        return self.programs and not self.tls

    def combines_targets(self, tier: str) -> bool:
        """Whether its tests combine several targets of the run in this tier."""
        return bool(self.multi_target_tier) and TIERS[self.multi_target_tier] <= TIERS[tier]

    def absent_from(self, tree: SourceTree) -> str:
        """Why a tree lacks the feature that the suite tests; empty if it has the feature."""
        if tree.package is not None and (self.program or self.upstream or self.programs or self.tls):
            return f"what it runs is compiled from the server's source, and {tree.package.title} is a package"
        files = [need.removeprefix(_FILE) for need in self.needs if need.startswith(_FILE)]
        if absent := [name for name in files if not (tree.content / name).exists()]:
            return f"the server's source has no {absent[0]}"
        if lacking := tree.abilities.lacks([need for need in self.needs if not need.startswith(_FILE)]):
            return f"the server lacks what it tests: {lacking}"
        return f"only {self.family.title()} has what it tests" if self.family not in {"", tree.family} else ""


class Cell(Record, frozen=True):
    """Target x server x suite: the unit of planning, CI and reporting."""

    target: str
    server: str
    suite: str

    @property
    def identity(self) -> str:
        """`TARGET/SERVER/SUITE`, which globs match."""
        return f"{self.target}/{self.server}/{self.suite}"


class Build(Record, frozen=True):
    """The binaries of a server for a target, in the cache."""

    key: str
    target: str
    server: str
    optimisation: str
    folder: Path
    server_binary: Path
    command_line: list[str]
    """The make command, which the run records."""
    allocator: Allocator = "libc"
    preload: Path | None = None
    """A shared object that the server preloads."""
    abilities: Abilities = Abilities()
    """What the server can do according to its source."""
    root: Path | None = None
    """The root folder of the distribution that the server is a package of, with its libraries."""
    tls: bool = False
    """Whether it was compiled with TLS."""
    modules: tuple[Path, ...] = ()
    """Shared objects that it loads when it starts: parts that its makefile was told to build separately, such as
    Lua.
    """
