"""A run that can start, and each of its targets with everything that its cells require. Values only."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

import msgspec

from harness.build.emulators.runner import Runner  # noqa: TC001 - msgspec reads the annotations
from harness.core.target_model import ORACLE
from harness.run.cell_spec import PeerServer  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from harness.build.unit_drivers import Units
    from harness.core.model import Build, Program, SourceTree
    from harness.core.target_model import Target
    from harness.record.run_record import BoardFacts
    from harness.run.boards.board_image import BoardImage
    from harness.run.vm.vm_image import VmImage
    from harness.workflows.target_setup import TargetSetup


class PreparedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target whose programs can be emulated. It is a BuiltTarget or an UnbuiltTarget."""

    setup: TargetSetup
    runner: Runner

    @property
    def target(self) -> Target:
        """The target itself."""
        return self.setup.target


class BuiltTarget(PreparedTarget, frozen=True, kw_only=True):
    """A target with everything that its cells require."""

    build: Build
    with_tls: Build | None = None
    """The server with TLS, if a suite of the plan needs it."""
    tls_problem: str = ""
    """Why that does not compile."""
    machine: VmImage | None = None
    board: BoardImage | None = None
    facts: BoardFacts | None = None
    """What the board told of itself; None if it is none, or did not tell."""
    units: dict[Program, Units] = {}
    modules: dict[str, Path] = {}
    """Suite -> the module that its servers load, as `PeerServer.modules`."""
    misfits: dict[str, str] = {}
    """Suite -> why its module does not compile against the server's header. The suite is then UNKNOWN."""
    preloads: dict[str, Path] = {}
    """Suite -> the shared object that its servers may preload."""
    upstream: Path | None = None
    """The programs that the release's own tests run; None if no suite of the plan runs these tests."""
    programs: Path | None = None
    """The folder of the release's programs; None if no suite of the plan runs them, or another machine would."""


class UnbuiltTarget(PreparedTarget, frozen=True, kw_only=True):
    """A target without a server. Of its cells, only the canary suite runs."""

    problem: str
    """Why there is no server."""
    complaints: frozenset[str] = frozenset()
    """The errors of compilers and linkers, as harness.analysis.compiler_output.complaints returns them."""
    blameless: bool = False
    """Whether the target is not at fault: the tree fails in the same way natively, or the archive has no
    package for the target.
    """


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can start: the server's source, the plan's targets, and the servers that cells compare."""

    tree: SourceTree
    targets: dict[str, BuiltTarget | UnbuiltTarget]
    native_upstream: Path | None = None
    """The native programs that the release's own tests run."""
    native_programs: Path | None = None
    """The folder of the release's native programs."""
    upstream_files: tuple[str, ...] = ()
    """The release's own test files that may contain requested tests."""
    upstream_left_out: tuple[str, ...] = ()
    """Tests of these files that do not run: globs of `FILE::TEST`."""
    peers: dict[str, PeerServer]
    """Target -> its server, outside the kernel tier. The oracle is missing where the tree does not compile for it."""

    @property
    def built(self) -> dict[str, BuiltTarget]:
        """The targets that have a server."""
        return {name: each for name, each in self.targets.items() if isinstance(each, BuiltTarget)}

    @property
    def has_oracle(self) -> bool:
        """Whether there is a native server to compare with."""
        return ORACLE in self.peers
