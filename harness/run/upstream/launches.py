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
LAUNCHER = Path(__file__).with_name("launcher.c")
WORD_LIST = Path(__file__).parents[1] / "word_list.h"


def compile_launcher(cache: Cache, tools: Toolchain) -> Path:
    """The program that stands in for the release's programs, compiled for this machine (`tools`)."""
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


class Launch(Record, frozen=True):
    """One program that was started."""

    guest: str
    """The name of its folder: `guest-3`."""
    folder: Path
    pid: int
    outputs: tuple[tuple[Path, int], ...]
    """The files that took its output, each with its length at the start."""
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


def write_list(path: Path, servers: Sequence[LaunchVariant], clients: LaunchVariant) -> None:
    """Write the launcher's list: the variants between which servers alternate, and the one for clients."""
    words = [str(len(servers))]
    for variant in (*servers, clients):
        words += [str(variant.home), variant.program, str(len(variant.arguments)), *variant.arguments]
        words += [str(len(variant.options)), *variant.options]
    path.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))


def read_launches(home: Path) -> list[Launch]:
    """The launches whose records are in a folder, in their order. One whose note is cut short never ran."""
    found = [_read(folder) for folder in home.glob("guest-*") if (folder / NOTE).is_file()]
    return sorted((launch for launch in found if launch is not None), key=lambda launch: _number(launch.guest))


def _number(guest: str) -> int:
    return int(guest.rpartition("-")[2])


def _read(folder: Path) -> Launch | None:
    words = (folder / NOTE).read_bytes().split(b"\0")[:-1]
    if len(words) < 8:
        return None
    pid, _, here, out, out_length, error, error_length, *arguments = (os.fsdecode(word) for word in words)
    outputs = [(Path(out), int(out_length)), (Path(error), int(error_length))]
    return Launch(
        guest=folder.name,
        folder=folder,
        pid=int(pid),
        outputs=tuple({file: length for file, length in outputs if file.name}.items()),
        working_folder=Path(here),
        words=tuple(arguments),
    )


def own_log(launch: Launch) -> Path | None:
    """The file that the server's configuration names as its log; None if it logs to its output."""
    settings: dict[str, str] = {}
    for word in launch.words[1:2]:
        path = launch.working_folder / word
        if path.is_file():
            lines = (line.partition(" ") for line in path.read_text("utf-8", "replace").splitlines())
            settings |= {key: value.strip().strip('"') for key, _, value in lines}
    if not settings.get("logfile"):
        return None
    return launch.working_folder / settings.get("dir", ".") / settings["logfile"]


def is_whole(launch: Launch) -> bool:
    """Whether the files that took the program's output are still there."""
    return all(path.is_file() for path, _ in launch.outputs)


def log_of(launch: Launch) -> bytes:
    """The program's output since it started, and its own log."""
    parts = []
    for path, length in launch.outputs:
        if path.is_file():
            with path.open("rb") as stream:
                stream.seek(length)
                parts.append(stream.read())
    own = own_log(launch)
    if own is not None and own.is_file():
        # Earlier launches wrote to the same file. Its lines begin with the process number since Redis 2.8.
        content = own.read_bytes()
        parts.append(content[max(content.find(b"%d:" % launch.pid), 0) :])
    return b"".join(parts)
