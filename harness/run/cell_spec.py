"""The complete description of a cell in one file. Its test process reads it, and a person can run the cell again."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes

import msgspec

from harness.build.emulators.runner import Runner  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.build.unit_drivers import Units  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core import json_codec
from harness.core.model import Abilities, Build, Record, Tier, Transport
from harness.record.executed_blocks.recorder import Kept  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.run.boards.board_image import BoardImage  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.run.vm.vm_image import VmImage  # noqa: TC001 - msgspec reads the annotations when it decodes

LARGEST_SEED = 2**32 - 1
"""The highest seed: every random generator of the project, Tcl's included, takes the numbers from 0 to this one."""


class UpstreamSpec(Record, frozen=True):
    """The settings with which a cell runs the release's own tests."""

    source: Path
    """The release's tree."""
    cache: Path
    """The root of the cache, which stores how each file runs natively."""
    abilities: Abilities
    """What the server can do."""
    native_key: str
    """Identifies the sources of the native programs and of the tests."""
    files: tuple[str, ...]
    """The test files that may contain requested tests, by upstream's names."""
    left_out: tuple[str, ...]
    """Tests of these files that do not run: globs of `FILE::TEST`."""
    launcher: Path
    programs: Path
    """The target's programs and modules."""
    native: Path
    """The native programs and modules."""
    mixed: dict[str, Path] = msgspec.field(default_factory=dict)
    """Peer -> its programs: servers of clusters, sentinels and replication alternate between them and the cell's
    own.
    """
    target_clients: bool = False
    """Whether redis-cli and redis-benchmark also run on the target."""


class PeerServer(Record, frozen=True):
    """Another target of the same run, with everything that a cell needs to start a server there."""

    runner: Runner
    build: Build
    with_tls: Build | None = None
    """The same with TLS; None if no suite of the run needs it, or the target does not support it."""
    modules: dict[str, Path] = msgspec.field(default_factory=dict)
    """Suite -> the module that its servers load there, if it has one and the server is recent enough."""
    selftests: Units | None = None
    """The server's own self-tests on that target; None if no suite of the run needs them."""


class ExecutionSpec(Record, frozen=True):
    """The settings with which a cell records what its tests execute."""

    plugin: Path
    """The plugin that the emulator loads."""
    programs: dict[str, Path]
    """Program -> the file of its ProgramCode."""
    kept: Kept


class CellSpec(Record, frozen=True):
    """One cell whose builds and emulator are ready."""

    suite: str
    folder: Path
    shared: Path
    """A folder that all cells of the run share: each cell reads what the others wrote."""
    sockets: Path
    """A folder with a short name: a Unix socket's path has at most 107 bytes (unix(7)), and run folders can be deep."""
    runner: Runner
    version: tuple[int, ...]
    build: Build | None
    canary: Path | None
    seed: int
    tier: Tier
    triple: str = ""
    """The prefix of the target's binary tools."""
    detector_canary: Path | None = None
    """None if the target has no detector."""
    environment_canary: Path | None = None
    """None in the usual environment."""
    litmus: Path | None = None
    """The program of the litmus tests; None in the usual order of memory accesses."""
    peers: dict[str, PeerServer] = msgspec.field(default_factory=dict)
    """Target -> the same server there: the run's targets, and `native`, which is the oracle."""
    units: Units | None = None
    """None if the suite runs a server."""
    tcl_client: Path | None = None
    """The client of Tcl tests; None if the suite runs no server."""
    module: Path | None = None
    """The module that the suite's servers load on the cell's own target; `module_on` has those of others."""
    preload: Path | None = None
    """The shared object that a suite's servers may preload, for the cell's own target."""
    programs: dict[str, Path] = msgspec.field(default_factory=dict)
    """Target -> the folder of the release's programs, for the cell's own target and `native`. None if the suite runs
    only the server.
    """
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    """Parameters with which its servers start, except the oracle; a release that lacks one starts without it."""
    tests_of: tuple[str, ...] = ()
    """Other suites whose tests it runs before its own."""
    only: tuple[str, ...] = ()
    """Globs of the tests that belong to the suite; none for all of them."""
    upstream: UpstreamSpec | None = None
    """None if the suite runs its own tests."""
    machine: VmImage | None = None
    """The emulated computer of a target of the kernel tier."""
    board: BoardImage | None = None
    """The user's own machine that runs the cell's servers; None without `--board`."""
    io: Transport = "unix"
    """How clients reach the cell's servers, the oracle included."""
    coverage: bool = False
    """Whether the guest records the edges of its code that it takes, if its emulator supports this."""
    tests: list[str] = msgspec.field(default_factory=list)
    """Parts of names, or globs: the cell runs only the matching tests, or all tests if the list is empty."""
    without: list[str] = msgspec.field(default_factory=list)
    """Names of tests that the cell does not run."""
    exactly: list[str] | None = None
    """Names of the only tests that it runs; None for no such restriction."""
    limit_seconds: float | None = None
    """Time limit for open-ended suites, and for the load of a test that may have any length; None: the usual one."""
    patience_seconds: float | None = None
    """How long its servers may take to end, or be silent under a load; None: the usual time. It is short for a test
    that runs again, of which only the result counts.
    """
    deadline_seconds: float = 0.0
    """The deadline of the cell; 0: the tier's."""
    limit_count: int | None = None
    """Number of examples for open-ended suites; None: the tier's number."""
    corpus: Path | None = None
    """The folder in which an open-ended suite keeps its corpus between runs; None: it keeps none."""
    execution: ExecutionSpec | None = None
    """None if the execution of tests is not recorded."""
    profiled: bool = False
    """Whether the cell's process records where it spends its processor time."""
    earlier_clients: int = 0
    """Clients that each server of shared tests has had before them: what it counts and numbers goes on from there."""
    patient: bool = False
    """Whether the quick tier also runs tests that wait about 15 s for the servers' own time-outs."""
    development: bool = False
    """Whether the server's tree is between two releases; `version` is then the release that it counts as."""

    def module_on(self, target: str) -> Path:
        """The module that the suite's servers load on a target of the run."""
        module = self.module if target == self.runner.target.name else self.peers[target].modules[self.suite]
        assert module is not None
        return module

    @property
    def abilities(self) -> Abilities:
        """What the server can do; nothing if the suite runs no server."""
        return self.build.abilities if self.build is not None else Abilities()

    def lacks(self, *needs: str) -> str:
        """The first of these needs that the server does not meet (harness.core.model.Abilities.lacks); empty if it
        meets all.
        """
        return self.abilities.lacks(needs)

    @property
    def options(self) -> list[str]:
        """The settings, as words of a command line of this release."""
        known = set(self.abilities.options)
        return [word for name, value in self.settings.items() if name in known for word in (f"--{name}", value)]


def write_cell(path: Path, cell: CellSpec) -> None:
    """Write the description as JSON."""
    path.write_bytes(json_codec.pretty(cell))


def read_cell(path: Path) -> CellSpec:
    """Read a description that `write_cell` wrote."""
    return json_codec.decode(path.read_bytes(), CellSpec)
