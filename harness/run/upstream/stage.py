"""A copy of a release's tests in which the launcher replaces its programs, at a short path.

Upstream's tests look for programs in src/ and write below tests/tmp. The copy belongs to one cell; the tree is never
written to. Unix sockets need a short path (unix(7)), so that the copy cannot be in the run folder.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core.cache import disk_errors
from harness.record import run_folder
from harness.run.servers.start_options import options_to_start
from harness.run.upstream.launches import LaunchVariant, write_list
from harness.run.upstream.test_files import PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.model import Abilities
    from harness.run.cell_spec import CellSpec, UpstreamSpec

OVERLAY = Path(__file__).with_name("overlay.tcl")
_KEPT = ("tests", "utils")
"""Folders of the tree that tests read, and the files at its top."""
FIRST_PORT, RANGES = 11000, 30
"""Ranges of ports. A cluster's nodes also use ports that are 10,000 higher: still below the ports that Linux
assigns.
"""
StageKind = Literal["native", "own", "mixed"]
NATIVE_HOME = "plumbline/records"
_SCRATCH = ("tests/tmp", "tests/cluster/tmp", "tests/sentinel/tmp")


class Stage:
    """The place where upstream's tests of one release run against the programs of one target."""

    def __init__(
        self, folder: Path, source: Path, launcher: Path, programs: Path, *, counter: Path, first_port: int
    ) -> None:
        """`programs`: the programs built for the target, as harness.build.upstream_programs leaves them. `counter`: the
        file from which launches take their numbers. `first_port`: the first of the ports that only this stage uses.
        """
        self.first_port = first_port
        self.folder = folder
        self._counter = counter
        self._source = source
        self._launcher = launcher
        self._programs = programs

    @property
    def journal(self) -> Path:
        """The journal of the file that runs."""
        return self.folder / "plumbline" / "journal"

    def prepare(self, servers: Sequence[LaunchVariant], clients: LaunchVariant) -> None:
        """Make the copy. Raises InfrastructureError on a full disk."""
        with disk_errors(self.folder):
            (self.folder / "plumbline").mkdir(parents=True)
            for name in _KEPT:
                if (self._source / name).is_dir():
                    shutil.copytree(self._source / name, self.folder / name, symlinks=True)
            for path in self._source.iterdir():
                if path.is_file():
                    shutil.copy2(path, self.folder)
            (self.folder / "src").mkdir()
            for name in program_names(self._programs):
                shutil.copy2(self._launcher, self.folder / "src" / name)
            modules = self._programs / "tests" / "modules"
            if modules.is_dir():
                shutil.copytree(modules, self.folder / "tests" / "modules", dirs_exist_ok=True)
            utilities = self.folder / "tests" / "support" / "util.tcl"
            with utilities.open("a", encoding="utf-8") as stream:
                stream.write(f"\nsource {{{OVERLAY}}}\n")
            (self.folder / "plumbline" / "number").symlink_to(self._counter)
            write_list(self.folder / "plumbline" / "launches", servers, clients)

    def clear(self) -> None:
        """Remove the leftovers of an earlier file."""
        self.journal.unlink(missing_ok=True)
        for record in (self.folder / NATIVE_HOME).glob("guest-*"):
            shutil.rmtree(record, ignore_errors=True)
        for name in _SCRATCH:
            if (self.folder / name).is_dir():
                shutil.rmtree(self.folder / name, ignore_errors=True)
                (self.folder / name).mkdir(exist_ok=True)

    def remove(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Stages:
    """The stages of one cell: a file takes one that no other file uses, or a new one."""

    def __init__(self, cell: CellSpec) -> None:
        assert cell.upstream is not None
        self._cell = cell
        self._spec: UpstreamSpec = cell.upstream
        self._home = Path(tempfile.mkdtemp(prefix="u-", dir=cell.sockets))
        self._lock = threading.Lock()
        # If cells share a network, two of them rarely begin with the same range.
        self._ranges = itertools.count(random.randrange(RANGES))
        self._idle: dict[StageKind, list[Stage]] = {"native": [], "own": [], "mixed": []}

    @property
    def homes(self) -> list[Path]:
        """The folders in which servers leave their records: the cell's, and those of its peers."""
        return [self._cell.folder, *(self._cell.folder / run_folder.PEERS / name for name in self._spec.mixed)]

    def native(self) -> contextlib.AbstractContextManager[Stage]:
        """A stage whose servers run natively. They leave their records in it, in `NATIVE_HOME`."""
        return self._taken("native")

    def of_target(self, *, mixed: bool) -> contextlib.AbstractContextManager[Stage]:
        """A stage whose servers are of the cell's target or, if mixed, alternate between all targets."""
        return self._taken("mixed" if mixed else "own")

    @contextlib.contextmanager
    def _taken(self, kind: StageKind) -> Iterator[Stage]:
        with self._lock:
            stage = self._idle[kind].pop() if self._idle[kind] else self._prepared(kind)
        yield stage
        with self._lock:
            self._idle[kind].append(stage)

    def _prepared(self, kind: StageKind) -> Stage:
        folder = Path(tempfile.mkdtemp(dir=self._home)) / "t"
        counter, port = self._home / "number", FIRST_PORT + PORTS * (next(self._ranges) % RANGES)
        programs = self._spec.native if kind == "native" else self._spec.programs
        stage = Stage(folder, self._spec.source, self._spec.launcher, programs, counter=counter, first_port=port)
        runner, abilities = self._cell.peers["native"].runner, self._spec.abilities
        if kind == "native":
            here = variant(runner, programs, folder / NATIVE_HOME, abilities)
            stage.prepare([here], here)
            (folder / NATIVE_HOME).mkdir()
            return stage
        preload = self._cell.build.preload if self._cell.build is not None else None
        own = variant(self._cell.runner, programs, self._cell.folder, abilities, preload=preload)
        native = variant(runner, self._spec.native, self._cell.folder, abilities)
        servers = [own]
        for name, others in self._spec.mixed.items() if kind == "mixed" else ():
            home = self._cell.folder / run_folder.PEERS / name
            home.mkdir(parents=True, exist_ok=True)
            servers.append(variant(self._cell.peers[name].runner, others, home, abilities))
        stage.prepare(servers, own if self._spec.target_clients else native)
        return stage

    def close(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self._home, ignore_errors=True)


def program_names(programs: Path) -> list[str]:
    """The names of the programs that were built."""
    return sorted(path.name for path in (programs / "src").iterdir() if path.is_file())


def variant(
    runner: Runner, programs: Path, home: Path, abilities: Abilities, *, preload: Path | None = None
) -> LaunchVariant:
    """How the launcher becomes a target's program, with its records in `home`."""
    program = programs / "src" / "{name}"
    environment = tuple(f"{name}={value}" for name, value in runner.environment.items())
    if runner.program is None and preload is None and not runner.preloads:
        return LaunchVariant(home=home, program=str(program), arguments=("{self}",), environment=environment)
    # The emulator's command line, which ends with the program. `-0` keeps the name that the program was called by: one
    # binary serves several names, and a server starts itself again by it.
    words = runner.command(program, [], Path("{folder}/faults.jsonl"), preload=preload)
    words[0] = shutil.which(words[0]) or words[0]
    named = ["-0", "{self}"] if runner.target.emulator.is_qemu_user else []
    return LaunchVariant(
        home=home,
        program=words[0],
        arguments=(*words[:-1], *named, words[-1]),
        options=tuple(options_to_start(runner.target, abilities)),
        environment=environment,
    )
