"""The launcher's records of every program that upstream's tests start (launcher.c), and its own list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.helper_program import compiled
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

NOTE = "launch"
ERRORS = "errors"
"""The file of what a program wrote to a standard error without a name, which the test alone read."""
LAUNCHER = Path(__file__).with_name("launcher.c")
WORD_LIST = Path(__file__).parents[1] / "word_list.h"


def compile_launcher(cache: Cache, tools: Toolchain) -> Path:
    """The program that stands in for the release's programs, compiled for the host (`tools`)."""
    return compiled(
        cache,
        tools,
        title="the launcher of upstream's tests",
        kind="launcher",
        owner="native",
        file="launcher",
        flags=["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"],
        sources=[LAUNCHER],
        headers=[WORD_LIST],
    )


class OutputFile(Record, frozen=True):
    """A file that took a program's output."""

    path: Path
    """Where it was when the program started. Upstream's tests may rename it later (`restart_server`), and give another
    file its name.
    """
    start: int
    """Its length at the start."""
    identity: str
    """Its device and inode, as `DEVICE:INODE`; empty for ERRORS, which nobody renames."""

    def present_path(self) -> Path | None:
        """Where it is now, in the same folder; None if it is gone, or has been cut."""
        if not self.identity:
            return self.path if self.path.is_file() else None
        try:
            beside = [self.path, *sorted(self.path.parent.iterdir())]
        except OSError:
            return None
        for path in beside:
            status = path.stat(follow_symlinks=False) if path.is_file() else None
            if status is not None and f"{status.st_dev}:{status.st_ino}" == self.identity:
                return path if status.st_size >= self.start else None
        return None


class Launch(Record, frozen=True):
    """One program that was started."""

    guest: str
    """The name of its folder: `guest-3`."""
    folder: Path
    pid: int
    began_ms: int
    """When it started, in milliseconds since 1970."""
    outputs: tuple[OutputFile, ...]
    """The files that took its output. ERRORS is one of them."""
    keeps_errors: bool
    """Whether its standard error is one of these files, and not a pipe or a device."""
    working_folder: Path
    words: tuple[str, ...]
    """Its command line as the test wrote it."""

    @property
    def is_client(self) -> bool:
        """Whether it is redis-cli or redis-benchmark."""
        return Path(self.words[0]).name.endswith(("-cli", "-benchmark"))


class LaunchVariant(Record, frozen=True):
    """A program that the launcher may become: the program, the place of its records, and its arguments with
    placeholders.
    """

    home: Path
    program: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Options without which no server starts there."""
    environment: tuple[str, ...] = ()
    """Variables of the program, such as its detector's options, as NAME=VALUE. Upstream's own values do not count."""


def write_list(path: Path, servers: Sequence[LaunchVariant], clients: LaunchVariant) -> None:
    """Write the launcher's list: the variants between which servers alternate, and the one for clients."""
    words = [str(len(servers))]
    for variant in (*servers, clients):
        words += [str(variant.home), variant.program, str(len(variant.arguments)), *variant.arguments]
        words += [str(len(variant.options)), *variant.options]
        words += [str(len(variant.environment)), *variant.environment]
    path.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))


def read_launches(home: Path) -> list[Launch]:
    """The launches whose records are in a folder, in order. A launch with an incomplete record never ran."""
    found = [_read(folder) for folder in home.glob("guest-*") if (folder / NOTE).is_file()]
    return sorted((launch for launch in found if launch is not None), key=lambda launch: _number(launch.guest))


def _number(guest: str) -> int:
    return int(guest.rpartition("-")[2])


def _read(folder: Path) -> Launch | None:
    words = (folder / NOTE).read_bytes().split(b"\0")[:-1]
    if len(words) < 10:
        return None
    pid, began, here, *outputs = (os.fsdecode(word) for word in words[:9])
    taken = (
        OutputFile(path=Path(path), start=int(length), identity=identity)
        for path, length, identity in (outputs[:3], outputs[3:])
    )
    return Launch(
        guest=folder.name,
        folder=folder,
        pid=int(pid),
        began_ms=int(began),
        outputs=tuple({file.identity: file for file in taken if file.path.name}.values()),
        keeps_errors=bool(outputs[3]),
        working_folder=Path(here),
        words=tuple(os.fsdecode(word) for word in words[9:]),
    )


def exits_on_panic(launch: Launch) -> bool:
    """Whether the server's configuration says that a failed assertion ends it as SHUTDOWN does."""
    return _settings(launch).get("use-exit-on-panic") == "yes"


def _settings(launch: Launch) -> dict[str, str]:
    """The last value of each parameter in the server's configuration file."""
    settings: dict[str, str] = {}
    for word in launch.words[1:2]:
        path = launch.working_folder / word
        if path.is_file():
            lines = (line.partition(" ") for line in path.read_text("utf-8", "replace").splitlines())
            settings |= {key: value.strip().strip('"') for key, _, value in lines}
    return settings


def port_of(launch: Launch) -> int:
    """The port that the server's configuration names; 0 if it names none."""
    port = _settings(launch).get("port", "")
    return int(port) if port.isdigit() else 0


def own_log(launch: Launch) -> Path | None:
    """The file that the server's configuration names as its log; None if it logs to its output."""
    settings = _settings(launch)
    if not settings.get("logfile"):
        return None
    return launch.working_folder / settings.get("dir", ".") / settings["logfile"]


def is_whole(launch: Launch) -> bool:
    """Whether everything is there that the program wrote to its standard error, and to other files."""
    return launch.keeps_errors and all(output.present_path() is not None for output in launch.outputs)


def log_of(launch: Launch) -> bytes:
    """The program's output since it started, and its own log."""
    parts = []
    for output in launch.outputs:
        path = output.present_path()
        if path is not None:
            with path.open("rb") as stream:
                stream.seek(output.start)
                parts.append(stream.read())
    own = own_log(launch)
    if own is not None and own.is_file():
        # Earlier launches wrote to the same file. Its lines begin with the process number since Redis 2.8.
        content = own.read_bytes()
        parts.append(content[max(content.find(b"%d:" % launch.pid), 0) :])
    return b"".join(parts)
