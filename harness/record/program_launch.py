"""The programs of the target that a traced command executed: the records of harness.run.programs, and their reader.

- CELL/command.json: the command, a CommandRecord
- CELL/strangers: programs of other machines that ran, a line each: the machine's number in ELF, and the path
- CELL/refused: the same for those that could not run
- CELL/natives: the names of the host's programs that ran, each once
- CELL/natives-here: the paths of those below the command's folder
- CELL/trouble: executions that could not be traced, a line each
- CELL/left: the number of processes that it left running, and that the tracer ended
- CELL/expected: the programs of a failed command whose status something above them expected, a line each
- CELL/callers, CELL/caller-ends: the processes above programs that failed; see harness/run/programs/tracer.c
- CELL/objects/KEY/NAME: copies of the programs and libraries that a fault is in; KEY is made of their path
- CELL/guest-N/launch: one execution; see harness/run/programs/starter.c
- CELL/guest-N/ends: the ends of its processes; see harness/run/programs/tracer.c
- CELL/guest-N/left: those of its processes that the tracer ended, a number each
- CELL/guest-N/log: the last bytes of its standard output and error, if one of its processes failed
- CELL/guest-N/input: what it could read of its standard input, if that was a short file, or what it read of a
  pipe, a socket or a terminal
- CELL/guest-N/input-lost: its standard input was too long to be kept
- CELL/guest-N/changed: programs and libraries that a fault is in, and that are not what ran, a path a line
- CELL/guest-N/refused: the kernel refused the execution, and nothing ran
- CELL/guest-N/configure: the log of the configure script that had it run; see harness/run/programs/starter.c
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shlex
import urllib.parse
from pathlib import Path
from typing import Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import InconclusiveError
from harness.core.model import Record
from harness.core.untrusted_text import as_utf8
from harness.record import fault_log

SUITE = "program"
"""The suite's name in the run folder of a traced command."""
COMMAND, LAUNCH, ENDS, INPUT, REFUSED = "command.json", "launch", "ends", "input", "refused"
INPUT_LOST = "input-lost"
CONFIGURE, OUTPUT = "configure", "log"
BUILT_OTHERWISE = "built-otherwise"
"""CELL/built-otherwise: a line for each program whose debug information contradicts the target: how, a tab, the
path.
"""
STRANGERS, TROUBLE, LEFT, OBJECTS, CHANGED = "strangers", "trouble", "left", "objects", "changed"
NATIVES, NATIVES_HERE = "natives", "natives-here"
CALLERS, CALLER_ENDS, EXPECTED = "callers", "caller-ends", "expected"
FILES = frozenset(
    {COMMAND, LAUNCH, ENDS, INPUT, INPUT_LOST, CHANGED, CONFIGURE, STRANGERS, REFUSED, NATIVES, TROUBLE, LEFT}
    | {BUILT_OTHERWISE, NATIVES_HERE, CALLERS, CALLER_ENDS, EXPECTED}
)
LONGEST_TITLE = 60
LONGEST_OUTPUT = 4096
"""Bytes of a program's output that are recorded: LAST_BYTES in harness/run/programs/tracer.c."""
SHOWN_LINES = 20
"""The number of lines of it that a finding has."""
AUTOCONF_PROBE = "conftest"
"""The name of programs with which an Autoconf configure script tests the machine."""
PROBES = (("cmTC_*", "CMakeFiles"), ("*.exe", "meson-private"))
"""Names of such programs of CMake and Meson, each with the folder that contains them."""
SKIPPED = 77
"""The exit status of a test that was skipped, for Automake (its manual, "Scripts-based Testsuites") and Meson."""
_WORDS_BEFORE = 6
"""Words of a launch before its arguments."""


class CommandRecord(Record, frozen=True):
    """The command of the run."""

    words: list[str]
    folder: str
    """Its working folder. The sources of its programs are shown relative to it."""
    sysroot: str = ""
    """The target's root folder, with the loader and the libraries of its programs; empty: the cross compiler's."""
    escaped: bool = False
    """Whether `%XX` stands for a byte in the file: a text is not UTF-8, which JSON demands."""

    @property
    def text(self) -> str:
        """The command line for a shell."""
        return as_utf8(shlex.join(self.words))

    @property
    def title(self) -> str:
        """The same without the folder of its program, and truncated if it is long: its name in reports."""
        text = as_utf8(shlex.join([Path(self.words[0]).name, *self.words[1:]]))
        return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE]}…"


class ProcessNote(Record, frozen=True):
    """How the tracer saw a process of a guest end."""

    pid: int
    how: Literal["exited", "killed", "replaced"]
    number: int
    """The exit status, or the signal; 0 if it executed another program."""
    order: int = 0
    """Its place among the ends of all the command's processes of the target, from 1; 0 if it is not recorded."""
    ended_ms: int = 0
    """When, in milliseconds since 1970; 0 if it is not recorded."""
    process: int = 0
    """Its number among the command's processes, from 1; 0 if it is not recorded."""
    caller: int = 0
    """The number of the process that made it; 0 if it is not recorded."""


class ProgramLaunch(Record, frozen=True):
    """One execution of a program of the target."""

    guest: str
    """The name of its folder: `guest-3`."""
    pid: int
    began_ms: int
    """When it began, in milliseconds since 1970."""
    folder: str
    """Its working folder."""
    program: str
    """The program's path, or that of the script's interpreter."""
    file: str
    """The path of the executed file: the program, or a script."""
    words: list[str]
    environment: dict[str, str | None]
    """The variables by which its environment differed from the command's; None for a missing one."""
    configure: str = ""
    """The log of the configure script that had it run; empty if none did."""

    @property
    def text(self) -> str:
        """The command line for a shell. A program may be given another name than its own; then this has its path."""
        named = [Path(word).name for word in (self.words[0], self.file)] if self.words else []
        return as_utf8(shlex.join(self.words if len(set(named)) == 1 else [self.file, *self.words[1:]]))

    @property
    def title(self) -> str:
        """The same without the folder of its program, and truncated if it is long: its name in reports."""
        text = self.text.removeprefix(f"{as_utf8(str(Path(self.file).parent))}/").removeprefix("./")
        return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE]}…"

    @property
    def name(self) -> str:
        """The program's name: without the folder, and without what libtool puts before it."""
        return _name_of(self.program)

    @property
    def is_probe(self) -> bool:
        """Whether this was a build system's probe, and not a part of the project. Its name alone does not show this."""
        if self.name == AUTOCONF_PROBE:
            return bool(self.configure)
        return _is_below_probes(self.program)


def _name_of(path: str) -> str:
    return as_utf8(Path(path).name.removeprefix("lt-"))


def _is_below_probes(path: str) -> bool:
    name, folders = _name_of(path), Path(path).parent.parts
    return any(fnmatch.fnmatchcase(name, pattern) and folder in folders for pattern, folder in PROBES)


def is_utf8(*texts: str) -> bool:
    """Whether file names, arguments or variables are text. Linux takes any bytes, which Python reads as surrogates."""
    return not any("\udc80" <= character <= "\udcff" for text in texts for character in text)


def escape(text: str) -> str:
    """The text with `%XX` for each byte that is not a plain character: a form in which JSON can store any bytes."""
    return urllib.parse.quote_from_bytes(os.fsencode(text))


def unescape(text: str) -> str:
    """The original of an escaped text."""
    return os.fsdecode(urllib.parse.unquote_to_bytes(text))


def write_command(cell: Path, command: CommandRecord) -> None:
    """Write the record of a cell's command."""
    if not is_utf8(*command.words, command.folder, command.sysroot):
        command = CommandRecord(
            words=[escape(word) for word in command.words],
            folder=escape(command.folder),
            sysroot=escape(command.sysroot),
            escaped=True,
        )
    (cell / COMMAND).write_bytes(json_codec.pretty(command))


def read_command(cell: Path) -> CommandRecord | None:
    """The record of a cell's command; None for a cell without one. Raises InconclusiveError for a damaged record."""
    path = cell / COMMAND
    if not path.is_file():
        return None
    try:
        command = json_codec.decode(path.read_bytes(), CommandRecord)
        if not command.escaped:
            return command
        return CommandRecord(
            words=[unescape(word) for word in command.words],
            folder=unescape(command.folder),
            sysroot=unescape(command.sysroot),
        )
    except msgspec.DecodeError as error:
        raise InconclusiveError(
            "the record of the command is damaged", where=str(path), because=str(error), remedy="run again"
        ) from error


def read_launch(guest: Path) -> ProgramLaunch | None:
    """The launch in a guest's folder; None for another kind of guest, and if the record is incomplete."""
    path = guest / LAUNCH
    if not path.is_file():
        return None
    words = [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]]
    if (
        len(words) < _WORDS_BEFORE
        or not (words[1].isdigit() and words[5].isdigit())
        or len(words) < _WORDS_BEFORE + int(words[5])
    ):
        return None
    end = _WORDS_BEFORE + int(words[5])
    variables = (one.partition("=") for one in words[end:])
    return ProgramLaunch(
        guest=guest.name,
        pid=int(words[0]),
        began_ms=int(words[1]),
        folder=words[2],
        program=words[3],
        file=words[4],
        words=words[_WORDS_BEFORE:end],
        environment={name: value if equals else None for name, equals, value in variables},
        configure=next(iter(lines_of(guest, CONFIGURE)), ""),
    )


def read_ends(guest: Path) -> list[ProcessNote]:
    """The ends of a guest's processes, as the tracer recorded them, without unreadable lines."""
    path = guest / ENDS
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    found = (
        re.fullmatch(r"(\d+) (exited|killed|replaced)(?: (\d+))?(?: (\d+) (\d+)(?: (\d+) (\d+))?)?", line)
        for line in lines
    )
    return [
        ProcessNote(
            pid=int(one[1]),
            how=one[2],  # type: ignore[arg-type]
            number=int(one[3] or 0),
            order=int(one[4] or 0),
            ended_ms=int(one[5] or 0),
            process=int(one[6] or 0),
            caller=int(one[7] or 0),
        )
        for one in found
        if one is not None
    ]


def read_said(guest: Path) -> str:
    """The end of what a guest wrote to its standard output and error, if one of its processes failed: without colours
    and without what its emulator added.
    """
    path = guest / OUTPUT
    content = path.read_bytes() if path.is_file() else b""
    _, newline, rest = content.partition(b"\n")
    if len(content) >= LONGEST_OUTPUT and newline and rest:
        content = rest
    return _FROM_EMULATOR.sub("", content.decode("utf-8", "backslashreplace"))


def read_output(guest: Path) -> str:
    """The last lines of that, up to 20."""
    return "\n".join(read_said(guest).rstrip().splitlines()[-SHOWN_LINES:])


_FROM_EMULATOR = re.compile(r"qemu: uncaught target signal \d+ \([^)\n]*\) - core dumped\n?|\x1b\[[0-9;]*m")


def guests(cell: Path) -> list[Path]:
    """The folders of the programs that were executed, in order."""
    return sorted(cell.glob("guest-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def is_skipped_test(guest: Path) -> bool:
    """Whether a program said by its exit status that it is a test which was skipped."""
    launch = read_launch(guest)
    return launch is not None and any(
        one.pid == launch.pid and one.how == "exited" and one.number == SKIPPED for one in read_ends(guest)
    )


def natives_here(cell: Path) -> list[str]:
    """The paths of the host's programs below the command's folder that ran, without a build system's probes."""
    paths = lines_of(cell, NATIVES_HERE)
    return [one for one in paths if _name_of(one) != AUTOCONF_PROBE and not _is_below_probes(one)]


def unwatched(guest: Path) -> ProcessNote | None:
    """The first process of a guest whose end its emulator had to record and did not; None if there is none.

    An emulator that did not start the program left no record, nor did one that could not write.
    """
    recorded = fault_log.read(guest / fault_log.NAME).ends
    silent = (
        note
        for note in read_ends(guest)
        if note.pid not in recorded
        and (note.how == "exited" or (note.how == "killed" and note.number in fault_log.CRASHES))
    )
    return next(silent, None)


def lines_of(cell: Path, name: str) -> list[str]:
    """The lines of one of the tracer's files."""
    path = cell / name
    return path.read_text("utf-8", "replace").splitlines() if path.is_file() else []


def object_copy(cell: Path, path: str) -> Path:
    """The place of a cell's copy of a program or library."""
    return cell / OBJECTS / hashlib.sha256(os.fsencode(path)).hexdigest()[:16] / (Path(path).name or "unnamed")
