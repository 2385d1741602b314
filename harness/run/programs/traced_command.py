"""Runs a command under the tracer, and leaves the evidence of its programs in the folder of a cell."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.build.helper_program import compiled
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record
from harness.core.processes import process
from harness.isa import registry
from harness.record import fault_log, program_launch
from harness.run.programs.program_file import described_header, header_of
from harness.run.servers.endings import describe_exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.build.emulators.runner import Runner
    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain
    from harness.record.program_launch import CommandRecord, ProcessNote

HERE = Path(__file__).parent
_SYSTEM = (Path("/usr"), Path("/lib"), Path("/lib64"))
"""Folders of files that judging may read where they are."""


class Tracing(Record, frozen=True):
    """Everything that the tracer needs to know of a target."""

    tracer: Path
    starter: Path
    headers: tuple[tuple[int, int, int], ...]
    """Class, byte order and machine (elf(5)) of the programs of the target."""
    runner: Runner

    def runs(self, program: Path) -> bool:
        """Whether a file is a program of the target."""
        return header_of(program) in self.headers


class CommandEnd(Record, frozen=True):
    """How a command ended."""

    code: int
    """The exit status; negative for a signal."""
    seconds: float
    expired: bool = False
    """Whether it was ended because it reached its limit."""

    @property
    def text(self) -> str:
        """`it ended with status 2`, `it was killed by SIGTERM`."""
        if self.code >= 0:
            return f"it ended with status {self.code}"
        return f"it was {describe_exit(self.code).detail}"


def prepare_tracing(cache: Cache, tools: Toolchain, runner: Runner, example: Path) -> Tracing:
    """Compile the tracer for the host (`tools`). `example`: a program of the target, whose header others share."""
    header = header_of(example)
    if header is None or runner.program is None:
        raise UsageError(f"no emulator runs programs for {runner.target.name}", where="--target")
    if header == header_of(Path(sys.executable)):
        raise UsageError(
            f"programs for {runner.target.name} are host programs",
            where="--target",
            because="they cannot be distinguished from make, the shell and the emulator itself",
            remedy="use a machine with another processor, or plumb check, which runs servers",
        )
    variant = registry.variant(runner.target.emulator.qemu)
    others = variant.elf_machines if variant is not None else ()
    return Tracing(
        tracer=_compiled(cache, tools, "tracer"),
        # The host's loader would read the variables that the command sets for programs of the target.
        starter=_compiled(cache, tools, "starter", "-static"),
        headers=(header, *((header[0], header[1], machine) for machine in others)),
        runner=runner,
    )


def _compiled(cache: Cache, tools: Toolchain, name: str, *flags: str) -> Path:
    return compiled(
        cache,
        tools,
        title=f"the {name} of programs",
        kind="tracers",
        owner=name,
        file=name,
        flags=["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *flags],
        sources=[HERE / f"{name}.c"],
        headers=[HERE.parent / "word_list.h", HERE / "system_calls.h"],
    )


def check_machine(tracing: Tracing, name: str, program: Path) -> None:
    """Raise UsageError for a program that neither the target nor the host can run. `name`: the user's name for it."""
    header, own = header_of(program), header_of(Path("/proc/self/exe"))
    if header is not None and header not in tracing.headers and header[1:] != (own or header)[1:]:
        target, expected = tracing.runner.target.name, described_header(tracing.headers[0])
        raise UsageError(
            f"{name} is not a program for {target}",
            where="PROGRAM",
            because=f"it is for {described_header(header)}, and programs for {target} are for {expected}",
            remedy="compile it for the target: plumb env --target " + target,
        )


def run_traced(
    tracing: Tracing,
    cell: Path,
    command: CommandRecord,
    *,
    environment: Mapping[str, str],
    file: str = "",
    prints_document: bool = False,
    requests: Path | None = None,
    log: Path | None = None,
    seconds: float | None = None,
) -> CommandEnd:
    """Run a command in its folder, with this process' terminal, and leave its evidence in the cell's folder.

    `file`: what is executed, if it is not what the first word names. `prints_document`: standard output is for a
    document, and what the command prints goes to standard error. `requests`: a file in place of standard input. `log`:
    a file in place of both outputs. `seconds`: when it is ended with all that it started; None: never. Raises
    InfrastructureError if nothing can be traced, or if the command removed its evidence.
    """
    program_launch.write_command(cell, command)
    runner, words = tracing.runner, command.words
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        # Its name is short: the tracer writes it where a process has little room.
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="x")))
        output = opened.enter_context(log.open("wb")) if log is not None else None
        emulator = [str(cell), str(runner.program), *runner.options, *runner.ordering, "-log-ends"]
        (place / "emulator").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in emulator))
        headers = " ".join(",".join(map(str, header)) for header in tracing.headers)
        code = process.attend(
            [tracing.tracer, place, cell, tracing.starter, str(runner.program), headers, file or words[0], *words],
            environment={**environment, **runner.environment},
            folder=Path(command.folder),
            requests=opened.enter_context(requests.open("rb")) if requests is not None else None,
            output=output or (sys.stderr.fileno() if prints_document else None),
            errors=output,
            seconds=seconds,
        )
        status = place / "status"
        if not cell.is_dir():
            raise InfrastructureError(
                "the evidence of the command is gone",
                where=str(cell),
                because="something removed its folder while the command ran, as git clean does",
                remedy="name a run folder that the command does not remove: --run FOLDER",
            )
        if not status.is_file():
            raise _untraced(words[0], place, code)
        how, number, count = status.read_text("ascii").split()
    _note_gone(cell, int(count))
    took = time.monotonic() - began
    end = CommandEnd(
        code=int(number) if how == "exited" else -int(number),
        seconds=took,
        expired=seconds is not None and took >= seconds,
    )
    _keep_objects(cell, has_failed=bool(end.code))
    return end


def _untraced(program: str, place: Path, code: int) -> InfrastructureError:
    """Why the tracer left no status. `code`: its own exit status; `place`: the folder of its files."""
    if code < 0:
        because = f"the tracer was {describe_exit(code).detail}"
        remedy = "run again; the command must not end processes that are not its own"
    elif not (place / "emulator").is_file():
        because = f"something removed {place}, which the tracer needs, while the command ran"
        remedy = "the command must not remove other programs' files from the folder for temporary files"
    else:
        because = f"the tracer ended with status {code}; its message is above"
        remedy = "allow ptrace(2) and seccomp(2) here: a container needs --cap-add=SYS_PTRACE"
    return InfrastructureError("the command could not be traced", where=program, because=because, remedy=remedy)


def _note_gone(cell: Path, count: int) -> None:
    """Record which of the guests no longer have a folder: the command may remove files below its own folder."""
    gone = [name for name in (f"guest-{number}" for number in range(1, count + 1)) if not (cell / name).is_dir()]
    if gone:
        with (cell / program_launch.TROUBLE).open("a", encoding="utf-8") as stream:
            stream.writelines(f"{name}, whose evidence was removed while the command ran\n" for name in gone)


def _keep_objects(cell: Path, *, has_failed: bool) -> None:
    """Copy the programs and libraries that contain a fault, or the stores that another thread saw in another order, and
    the programs that failed, because the next compilation overwrites them.

    An overwritten one would give the fault another function's name. `has_failed`: whether the command did. Otherwise
    it expected the programs' statuses.
    """
    for guest in program_launch.guests(cell):
        launch = program_launch.read_launch(guest)
        if launch is None or launch.is_probe:
            continue
        failed = any(_is_failure(note, has_failed=has_failed) for note in program_launch.read_ends(guest))
        own = _files_of_faults(guest, has_failed=failed)
        if failed:
            own += [path for path in _outside_of_system([launch.program]) if path not in own]
        objects = [path for path in own if _is_object(Path(path))]
        changed = [path for path in objects if Path(path).stat().st_mtime_ns > (launch.began_ms + 1) * 1_000_000]
        changed += [path for path in own if path == launch.program and not Path(path).exists()]
        if changed:
            (guest / program_launch.CHANGED).write_bytes(b"".join(os.fsencode(path) + b"\n" for path in changed))
        for path in objects:
            kept = program_launch.object_copy(cell, path)
            if path not in changed and not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, kept)
                # A replay may execute it.
                kept.chmod(0o755)


def _files_of_faults(guest: Path, *, has_failed: bool) -> list[str]:
    """The files that a guest had mapped when something was recorded, without the system's. `has_failed`: it counts
    where its processes ended.
    """
    recorded = fault_log.read(guest / fault_log.NAME)
    maps = [one.maps for one in recorded.faults] + [one.maps for one in recorded.overtakes]
    maps += [one.maps for one in recorded.missed]
    maps += [one.maps for one in recorded.lasts.values()] if has_failed else []
    return _outside_of_system(sorted({one.path for each in maps for one in each}))


def _outside_of_system(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not any(Path(path).is_relative_to(home) for home in _SYSTEM)]


def _is_failure(note: ProcessNote, *, has_failed: bool) -> bool:
    """Whether a process ended badly."""
    return (has_failed and note.number != 0) or (note.how == "killed" and note.number in fault_log.CRASHES)


def _is_object(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            ELFFile(stream)
    except (OSError, ELFError):
        return False
    return True
