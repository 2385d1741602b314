"""Runs a command under the tracer, and writes a cell's events of it: one test, and one guest for each execution."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.build.helper_program import compiled
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record
from harness.core.processes import process
from harness.isa import registry
from harness.record import event_log, fault_log, program_launch, run_folder
from harness.run.servers.endings import describe_exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain
    from harness.record.program_launch import CommandRecord, ProcessNote, ProgramLaunch

HERE = Path(__file__).parent
SHOWN_PROGRAMS = 3
"""How many failed programs a message names."""
_ELF_MAGIC = b"\x7fELF"
_SYSTEM = (Path("/usr"), Path("/lib"), Path("/lib64"))
"""Files that judging may read in their place."""


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

    @property
    def text(self) -> str:
        """`it ended with status 2`, `it was killed by SIGTERM`."""
        if self.code >= 0:
            return f"it ended with status {self.code}"
        return f"it was {describe_exit(self.code).detail}"


def prepare_tracing(cache: Cache, tools: Toolchain, runner: Runner, example: Path) -> Tracing:
    """Compile the tracer for this machine (`tools`). `example`: a program of the target, whose header others share."""
    header = header_of(example)
    if header is None or runner.program is None:
        raise UsageError(f"{runner.target.name} has no programs that an emulator runs", where="--target")
    if header == header_of(Path(sys.executable)):
        raise UsageError(
            f"programs of {runner.target.name} are programs of this machine",
            where="--target",
            because="they cannot be distinguished from make, the shell and the emulator itself",
            remedy="a machine with another processor, or plumb check, which runs servers",
        )
    variant = registry.variant(runner.target.emulator.qemu)
    others = variant.elf_machines if variant is not None else ()
    return Tracing(
        tracer=_compiled(cache, tools, "tracer"),
        starter=_compiled(cache, tools, "starter"),
        headers=(header, *((header[0], header[1], machine) for machine in others)),
        runner=runner,
    )


def _compiled(cache: Cache, tools: Toolchain, name: str) -> Path:
    return compiled(
        cache,
        tools,
        title=f"the {name} of programs",
        kind="tracers",
        owner=name,
        file=name,
        flags=["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"],
        sources=[HERE / f"{name}.c"],
        headers=[HERE.parent / "word_list.h", HERE / "system_calls.h"],
    )


def header_of(path: Path) -> tuple[int, int, int] | None:
    """Class, byte order and machine of an ELF file; None for any other file."""
    with path.open("rb") as stream:
        start = stream.read(20)
    if len(start) < 20 or not start.startswith(_ELF_MAGIC):
        return None
    return start[4], start[5], int.from_bytes(start[18:20], "big" if start[5] == 2 else "little")


def machine_name(number: int) -> str:
    """The name of a machine by its number in ELF, `EM_AARCH64`; the number itself if it is unknown."""
    from elftools.elf.enums import ENUM_E_MACHINE  # noqa: PLC0415 - a large table, for a message

    return next((name for name, value in ENUM_E_MACHINE.items() if value == number), f"machine {number}")


def check_command(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> Path:
    """The file that a command executes. Raises UsageError for one that is missing, or whose interpreter is.

    It needs no compiler and no emulator of the target, so a misspelt name is reported before they are made.
    """
    name = words[0]
    found = shutil.which(name if "/" not in name else str(folder / name), path=environment.get("PATH"))
    if found is None:
        is_there = "/" in name and (folder / name).exists()
        raise UsageError(
            f"{name} cannot be executed" if is_there else f"there is no program {name}",
            where="PROGRAM",
            because=f"its mode does not allow it: chmod +x {name}" if is_there else "",
            remedy="" if is_there else "name it by its path, or see what is on your PATH",
        )
    path = Path(found)
    try:
        first = path.open("rb").readline(256) if header_of(path) is None else b""
    except OSError as error:
        raise UsageError(f"{name} cannot be read", where="PROGRAM", because=error.strerror or str(error)) from error
    if first.startswith(b"#!"):
        interpreter = Path(os.fsdecode(first[2:].split()[0])) if first[2:].split() else Path("#!")
        if not (folder / interpreter).is_file():
            raise UsageError(
                f"the interpreter of {name} is not there",
                where="PROGRAM",
                because=f"its first line names {interpreter}",
            )
    return path


def check_machine(tracing: Tracing, name: str, program: Path) -> None:
    """Raise UsageError for a program that neither the target nor this machine runs. `name`: the user's name for it."""
    header, own = header_of(program), header_of(Path("/proc/self/exe"))
    if header is not None and header not in tracing.headers and header[1:] != (own or header)[1:]:
        target = tracing.runner.target.name
        raise UsageError(
            f"{name} is a program of another machine than {target}",
            where="PROGRAM",
            because=f"it is of {_described(header)}, and those of {target} are of {_described(tracing.headers[0])}",
            remedy="compile it for the target: plumb env --target " + target,
        )


def _described(header: tuple[int, int, int]) -> str:
    """`EM_MIPS, 32 bits, little-endian`: a machine may have programs that differ in no more than one of them."""
    bits = {1: "32", 2: "64"}.get(header[0], "unknown")
    order = {1: "little-endian", 2: "big-endian"}.get(header[1], "of unknown byte order")
    return f"{machine_name(header[2])}, {bits} bits, {order}"


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
) -> CommandEnd:
    """Run a command in its folder, with this process' terminal, and leave its evidence in the cell's folder.

    `file`: what is executed, if it is not what the first word names. `prints_document`: standard output is for a
    document, and what the command prints goes to standard error. `requests`: a file in place of standard input. `log`:
    a file in place of both outputs. Raises InfrastructureError if nothing can be traced, or where the command removed
    its evidence.
    """
    program_launch.write_command(cell, command)
    runner, words = tracing.runner, command.words
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        # Its name is short: the tracer writes it where a process has little room.
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="x")))
        output = opened.enter_context(log.open("wb")) if log is not None else None
        emulator = [str(cell), str(runner.program), *runner.options]
        (place / "emulator").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in emulator))
        headers = " ".join(",".join(map(str, header)) for header in tracing.headers)
        code = process.attend(
            [tracing.tracer, place, cell, tracing.starter, str(runner.program), headers, file or words[0], *words],
            environment={**environment, **runner.environment},
            folder=Path(command.folder),
            requests=opened.enter_context(requests.open("rb")) if requests is not None else None,
            output=output or (sys.stderr.fileno() if prints_document else None),
            errors=output,
        )
        status = place / "status"
        if not cell.is_dir():
            raise InfrastructureError(
                "the evidence of the command is gone",
                where=str(cell),
                because="something removed its folder while the command ran, as git clean does",
                remedy="name a run folder outside of what the command removes: --run FOLDER",
            )
        if not status.is_file():
            raise _untraced(words[0], place, code)
        how, number, count = status.read_text("ascii").split()
    _note_gone(cell, int(count))
    end = CommandEnd(code=int(number) if how == "exited" else -int(number), seconds=time.monotonic() - began)
    _keep_objects(cell)
    return end


def _untraced(program: str, place: Path, code: int) -> InfrastructureError:
    """Why the tracer left no status: it ended with this code, and `place` had its files."""
    if code < 0:
        because = f"the tracer was {describe_exit(code).detail}"
        remedy = "run again; the command must not end processes that are not its own"
    elif not (place / "emulator").is_file():
        because = f"something removed {place}, which the tracer needs, while the command ran"
        remedy = "have the command remove nothing in the folder of temporary files that is not its own"
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


def _keep_objects(cell: Path) -> None:
    """Copy the programs and libraries that a fault is in, which the next compilation overwrites.

    One that was overwritten already would give the fault another function's name.
    """
    for guest in program_launch.guests(cell):
        launch = program_launch.read_launch(guest)
        if launch is None or launch.is_probe:
            continue
        own = _files_of_faults(guest)
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


def _files_of_faults(guest: Path) -> list[str]:
    """The files that a guest had mapped when a fault occurred, without the system's."""
    log = guest / fault_log.NAME
    faults = fault_log.read_faults(log) if log.is_file() else []
    paths = {one.path for fault in faults for one in fault.maps}
    return [path for path in sorted(paths) if not any(Path(path).is_relative_to(home) for home in _SYSTEM)]


def _is_object(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            ELFFile(stream)
    except (OSError, ELFError):
        return False
    return True


class _EmulatedProgram(NamedTuple):
    """A program of the target that the command ran."""

    guest: Path
    """The folder with its evidence."""
    launch: ProgramLaunch | None
    """None if there is no readable note of it."""
    ends: list[ProcessNote]

    def began_before(self, milliseconds: int) -> bool:
        """Whether it is known to have begun before this time, in milliseconds since 1970."""
        return self.launch is not None and self.launch.began_ms < milliseconds

    @property
    def failed(self) -> bool:
        """Whether one of its processes ended with another status than 0, or by a signal."""
        return self.launch is not None and any(one.how != "replaced" and one.number for one in self.ends)

    @property
    def is_unwatched(self) -> bool:
        """Whether the end of one of its processes may be unknown."""
        return self.launch is None or program_launch.unwatched(self.guest) is not None

    def event(self, test: str) -> run_folder.GuestEvent:
        """Its event. It crashed if such a signal killed its first process."""
        pid = self.launch.pid if self.launch is not None else 0
        first = next((one for one in self.ends if self.launch is not None and one.pid == pid), None)
        crash = first.number if first is not None and first.how == "killed" else 0
        crashed = crash in fault_log.CRASHES
        return run_folder.GuestEvent(
            name=self.guest.name,
            end="signal" if crashed else "stopped",
            detail=describe_exit(-crash).detail if crashed else "",
            test=test,
            own=True,
            pid=pid,
            left=(fault_log.ledger_of(self.guest / fault_log.NAME).name,),
        )


def _emulated_programs(cell: Path) -> Iterator[_EmulatedProgram]:
    """The programs of the target that a cell's command ran, apart from probes. Removes the folders of those that the
    emulator refused.
    """
    for guest in program_launch.guests(cell):
        if (guest / program_launch.REFUSED).is_file():
            shutil.rmtree(guest)
            continue
        launch = program_launch.read_launch(guest)
        if launch is None or not launch.is_probe:
            yield _EmulatedProgram(guest, launch, program_launch.read_ends(guest))


def write_events(cell: Path, command: CommandRecord, target: str, end: CommandEnd, *, counts_from_ms: int = 0) -> int:
    """Write the cell's events. Returns the exit status that a test process would have: 1 if the command failed.

    `counts_from_ms`: when the command's tests began, in milliseconds since 1970. A program of before tests nothing.
    """
    log = event_log.EventLog(cell / event_log.NAME)
    log.append(run_folder.CollectedEvent(tests=1))
    programs = list(_emulated_programs(cell))
    for one in programs:
        log.append(one.event(command.title))
    of_tests = [one for one in programs if not one.began_before(counts_from_ms)]
    failed = [one.launch.text for one in programs if one.launch is not None and one.failed]
    outcome, message, doubt = _outcome(
        command,
        target,
        end,
        count=len(programs),
        before=len(programs) - len(of_tests),
        skipped=sum(program_launch.is_skipped_test(one.guest) for one in of_tests),
        failed=[] if any(one.is_unwatched for one in programs) else failed,
    )
    log.append(
        run_folder.TestEvent(
            name=command.title, outcome=outcome, seconds=round(end.seconds, 3), message=message, doubt=doubt
        )
    )
    log.close(tests=1, failed=int(outcome == "failed"))
    return int(outcome == "failed")


def _outcome(
    command: CommandRecord, target: str, end: CommandEnd, *, count: int, before: int, skipped: int, failed: list[str]
) -> tuple[run_folder.Outcome, str, str]:
    """The outcome of the command, its message, and why that says nothing about the target.

    `count`: the number of programs that ran, of which so many did `before` the tests, and were tests that are skipped.
    """
    where = "in its tests" if before else "below it"
    if count == before:
        return "skipped", f"Skipped: no program of {target} ran {where}, and {end.text}", ""
    if not end.code and count - before == skipped:
        told = f"each program of {target} that ran {where} ended with status {program_launch.SKIPPED}"
        return "skipped", f"Skipped: {told}, as skipped tests do", ""
    if not end.code:
        return "passed", "", ""
    shown = [
        *failed[-SHOWN_PROGRAMS:],
        *([f"and {len(failed) - SHOWN_PROGRAMS} more"] if len(failed) > SHOWN_PROGRAMS else []),
    ]
    if not failed:
        why = f"{end.text}, and no program of {target} is known to have failed, of {count} that ran"
        return "failed", f"{command.title}: {end.text}", f"{why}: the reason lies outside of them"
    return "failed", f"the command failed: {end.text}; of its programs: {'; '.join(shown)}", ""
