"""Reproducers: everything that `plumb replay` needs to reproduce a finding, written and read beside the evidence."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.errors import UsageError
from harness.core.finding import Difference, Reproduction  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.model import (
    Allocator,
    BuildSettings,
    DigestOrNone,
    FileName,
    GuestEnvironment,
    MemoryOrder,
    Name,
    NameOrNone,
    Program,
    Record,
    StorePair,
    Transport,
)
from harness.core.processes.timeouts import LARGEST_MULTIPLIER
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.isa import rules
from harness.record import program_launch
from harness.record.run_folder import AUDIT
from harness.record.run_record import WITH_TLS
from harness.record.transcript import Chunk, are_whole, load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.judge.sightings.sighting import Sighting
    from harness.record.program_launch import ProgramLaunch
    from harness.record.run_record import RunRecord


MOST_REPLAYS = 100


class ReplayedProgram(Record, frozen=True):
    """A program to run again instead of a server, or a whole command. The user compiled it, and it is at this place."""

    words: list[str]
    """The command line."""
    program: str
    """The path of the program, for the names of its functions; empty for a command."""
    file: str
    """The file to execute: the program, a script, or the command's first word."""
    folder: str
    """The working folder."""
    environment: dict[str, str | None] = msgspec.field(default_factory=dict)
    """The differences from the environment of `plumb exec`; None for an unset variable."""
    requests: str | None = None
    """Its standard input, in base 64; None if that was not a short file."""
    sysroot: str = ""
    """The target's root folder, as in CommandRecord."""
    input_lost: bool = False
    """Whether its standard input was a file or a pipe that was too long to be recorded."""
    seconds: float = 0.0
    """How long it ran; 0 if that is not known."""
    copy: str = ""
    """The path of the run's copy of the program; empty if there is none."""
    escaped: bool = False
    """Whether `%XX` stands for a byte in all texts above: one of them is not UTF-8, which JSON demands."""

    def as_json_can_hold(self) -> ReplayedProgram:
        """The same program, escaped if one of its texts is not UTF-8."""
        values = (value for value in self.environment.values() if value is not None)
        texts = (*self.words, self.program, self.file, self.folder, self.sysroot, self.copy, *self.environment, *values)
        if program_launch.is_utf8(*texts):
            return self
        return msgspec.structs.replace(self._mapped(program_launch.escape), escaped=True)

    def as_executed(self) -> ReplayedProgram:
        """The same program, with the exact bytes of its texts."""
        return msgspec.structs.replace(self._mapped(program_launch.unescape), escaped=False) if self.escaped else self

    def _mapped(self, change: Callable[[str], str]) -> ReplayedProgram:
        return msgspec.structs.replace(
            self,
            words=[change(word) for word in self.words],
            program=change(self.program),
            file=change(self.file),
            folder=change(self.folder),
            sysroot=change(self.sysroot),
            copy=change(self.copy),
            environment={
                change(name): None if value is None else change(value) for name, value in self.environment.items()
            },
        )


class Reproducer(Record, frozen=True):
    """RUN/reproducers/ID.json: everything that `plumb replay` needs to reproduce a finding."""

    finding: str
    kind: str
    function: str
    server: str
    target: str
    policy: str
    optimisation: Annotated[str, msgspec.Meta(pattern=r"^(O([0-3sz]|[23]-lto))?\Z")]
    """The pattern stops a reproducer from another machine from adding options to the compiler's command line. Empty for
    a program that the user compiled."""
    emulator: str
    chunks: list[Chunk]
    detector: str = "signal"
    """The detector that saw the finding, and that must see it again."""
    unit: NameOrNone = ""
    """The unit to run; empty for a server and its requests."""
    program: Program = "units"
    """The program that contains the unit."""
    wrong_line: str = ""
    """The line that the unit must write again."""
    allocator: Allocator = "libc"
    toolchain: Name = DEFAULT_FAMILY
    """The family of toolchains that compiled; the default: the one that the target names."""
    environment: GuestEnvironment = "usual"
    """The environment of the server (`--environment`)."""
    memory_order: MemoryOrder = "usual"
    """The order of memory accesses that its threads saw (`--memory-order`)."""
    seed: int = 0
    """The seed of that order."""
    pair: StorePair | None = None
    """The only stores that a replay reorders, in the same program; None: all."""
    pair_program: DigestOrNone = ""
    """SHA-256 of that program. In another one, the stores have other addresses, and a replay reorders all."""
    replays: Annotated[int, msgspec.Meta(ge=1, le=MOST_REPLAYS)] = 1
    """How often a replay runs before it says that the finding is gone: chance decides whether a run shows it."""
    io: Transport = "unix"
    """How clients connected to the server. A server in a virtual machine has only TCP."""
    files: dict[FileName, str] = msgspec.field(default_factory=dict)
    """Name -> content in base 64, of each file in the guest's folder when it starts."""
    options: tuple[str, ...] = ()
    """Extra options that the server is started with."""
    preload: NameOrNone = ""
    """The suite whose shared object the server preloads; empty: none."""
    tls: bool = False
    """Whether the server is compiled with TLS."""
    difference: Difference | None = None
    detail: str = ""
    """How the guest ended, or the test's message. Used if no fault record says what the replay must show."""
    starting: bool = False
    """Whether the guest ended before it was ready."""
    after_tests: bool = False
    """Whether it happened outside of every test, on a guest that tests had used: earlier requests may be the cause."""
    command: str = ""
    """The client's request, as the report shows it."""
    upstream: str = ""
    """The one of the release's own tests to run, after those before it in its file: `unit/type/string::SET and GET`."""
    mixed: list[Name] = msgspec.field(default_factory=list)
    """The other targets between which servers of that test alternated."""
    target_clients: bool = False
    """Whether redis-cli and redis-benchmark ran on the target."""
    file: str = ""
    """The file of an assertion whose function is unknown."""
    settings: BuildSettings = BuildSettings()
    """The settings that its build added to the makefile's own flags and variables. harness.judge.provenance accepts
    none in an unsealed reproducer.
    """
    packages: dict[Name, dict[str, str]] = msgspec.field(default_factory=dict)
    """As in RunRecord: those of its target and of the native build; empty for a compiled server."""
    timeout_multiplier: Annotated[float, msgspec.Meta(ge=1, le=LARGEST_MULTIPLIER)] = 1.0
    """How many times longer than usual the run waited, and its replay waits."""
    launch: ReplayedProgram | None = None
    """Replaces the server: a program of the target, or a command that runs some."""
    again: Reproduction | None = None
    """Replaces `chunks`: the requests to a server, and the bytes that must result."""

    @property
    def compiles_tls(self) -> bool:
        """Whether a replay compiles the server with TLS: it was, or that is the build that failed."""
        return self.tls or (self.kind == "build" and self.detail.startswith(WITH_TLS))


SEAL = re.compile(rb'\{\s*"seal":\s*"([0-9a-f]{64})",\s*')
"""The start of a document that a check wrote. harness.judge.provenance verifies the machine. A formatter may have
changed the white space."""


def unsealed(document: bytes) -> bytes:
    """The document without its seal, if it has one."""
    return SEAL.sub(b"{", document, count=1) if SEAL.match(document) else document


def best_of(group: Sequence[Sighting]) -> Sighting:
    """The sighting of a finding that makes the best reproducer."""
    return min(group, key=_rank)


def _rank(sighting: Sighting) -> tuple[bool, bool, bool, int]:
    """Those whose two stores are known rank first, then shorter transcripts, and signals before reports. A sighting
    without a transcript ranks last.
    """
    path, no_place = sighting.transcript, sighting.pair is None
    if sighting.again is not None:
        return no_place, False, False, 0
    has_none = path is None or not path.is_file()
    size = 0 if path is None or has_none else path.stat().st_size
    return no_place, has_none, sighting.detector != "signal", size


def _policy_of(run: RunRecord, one: Sighting) -> str:
    """The policy of a sighting: the run's own, or the audit's for sightings from the audit that followed."""
    in_audit = AUDIT in Path(one.evidence).parts[2:3]
    if in_audit and not rules.is_audit(run.policy):
        return rules.audit_name(run.policy)
    return run.policy


def _file_name(identity: str) -> str:
    """An identity as a file name. Identities of C++ functions contain slashes; parametrised tests have long ones."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", identity)
    return plain if plain == identity and len(plain) <= 120 else f"{plain[:100]}-{key_of([identity])[:8]}"


def write_reproducer(folder: Path, run: RunRecord, best: Sighting) -> str:
    """Write RUN/reproducers/ID.json for a sighting, and return the command that replays it."""
    chunks = load(best.transcript) if best.transcript and best.transcript.is_file() else []
    started = best.started_with
    reproducer = Reproducer(
        finding=best.identity,
        kind=best.kind,
        function=best.frames[0].function if best.frames else "",
        server=run.server,
        target=best.again.target if best.again else best.target,
        policy=_policy_of(run, best),
        optimisation=run.optimisation,
        emulator=run.emulator,
        chunks=chunks,
        detector=best.detector,
        unit=best.unit,
        program=best.program,
        wrong_line=best.wrong_line,
        allocator=run.allocator,
        toolchain=run.toolchain,
        environment=run.environment,
        memory_order=run.memory_order,
        seed=run.seed if run.memory_order != "usual" else 0,
        pair=best.pair if best.pair_program else None,
        pair_program=best.pair_program,
        replays=min(best.replays, MOST_REPLAYS),
        io=run.io,
        settings=run.settings,
        packages={name: run.packages[name] for name in (best.target, ORACLE) if name in run.packages},
        timeout_multiplier=run.timeout_multiplier,
        files=packed_files(started.inputs) if started else {},
        options=started.options if started else (),
        preload=best.suite if started and started.preloads else "",
        tls=started is not None and started.tls,
        difference=best.difference,
        again=best.again,
        launch=_launch(best.launched) if best.launched is not None else None,
        detail=best.detail or best.message,
        starting=best.starting,
        after_tests=best.after_tests,
        command=best.command,
        file=best.frames[0].file if best.frames else "",
        upstream=best.upstream,
        mixed=[name for name in run.targets if name != best.target] if best.upstream and run.mixed else [],
        target_clients=bool(best.upstream) and run.target_clients,
    )
    path = folder / "reproducers" / f"{_file_name(best.identity)}.json"
    path.parent.mkdir(exist_ok=True)
    document = json_codec.encode(reproducer)
    # An unchanged document may be sealed: rewriting it would remove the seal.
    if not path.is_file() or unsealed(path.read_bytes()) != document:
        path.write_bytes(document)
    return f"plumb replay {shlex.quote(str(path))}"


def _launch(place: Path) -> ReplayedProgram | None:
    """What ran in a guest's folder, or the command of a cell's."""
    launch = program_launch.read_launch(place)
    command = program_launch.read_command(place if launch is None else place.parent)
    sysroot = command.sysroot if command is not None else ""
    if launch is not None:
        path = place / program_launch.INPUT
        program = ReplayedProgram(
            words=launch.words,
            program=launch.program,
            file=launch.file,
            folder=launch.folder,
            environment=launch.environment,
            requests=base64.b64encode(path.read_bytes()).decode() if path.is_file() else None,
            sysroot=sysroot,
            input_lost=(place / program_launch.INPUT_LOST).is_file(),
            seconds=_seconds(place, launch),
            copy=str(copy.absolute())
            if (copy := program_launch.object_copy(place.parent, launch.program)).is_file()
            else "",
        )
    elif command is not None:
        words = command.words
        program = ReplayedProgram(words=words, program="", file=words[0], folder=command.folder, sysroot=sysroot)
    else:
        return None
    return program.as_json_can_hold()


def _seconds(place: Path, launch: ProgramLaunch) -> float:
    ended_ms = max((one.ended_ms for one in program_launch.read_ends(place) if one.pid == launch.pid), default=0)
    return max(0, ended_ms - launch.began_ms) / 1000 if ended_ms else 0.0


def stored_at(folder: Path, replay: str) -> Path | None:
    """The reproducer that a recorded command names, in the run folder where it is now; None if it is not there."""
    named = re.search(r"([A-Za-z0-9_.-]+\.json)'?$", replay)
    path = folder / "reproducers" / named[1] if named else folder
    return path if path.is_file() else None


def files_of(reproducer: Reproducer) -> dict[str, bytes]:
    """Name -> content, of each file in the guest's folder when it starts."""
    try:
        return {name: base64.b64decode(content) for name, content in reproducer.files.items()}
    except ValueError as error:
        raise UsageError("the reproducer's files are damaged", where=reproducer.finding, because=str(error)) from error


def packed_files(folder: Path) -> dict[str, str]:
    """The files below a folder, in the form of `Reproducer.files`; links are omitted."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in paths}


def read_reproducer(name: str) -> Reproducer:
    """Read RUN/reproducers/ID.json. Raises UsageError if the file does not exist."""
    path = Path(name)
    if not path.is_file():
        raise UsageError(
            "no such reproducer", where=name, remedy="the report's `replay` line names it: RUN/reproducers/ID.json"
        )
    try:
        read = json_codec.decode(unsealed(path.read_bytes()), Reproducer)
    except msgspec.DecodeError as error:
        raise UsageError("not a reproducer", where=name, because=str(error)) from error
    if not are_whole(read.chunks):
        raise UsageError("not a reproducer", where=name, because="its requests are not in base 64")
    return read
