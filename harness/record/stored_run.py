"""Reads a stored run as untrusted input: its folder, its record, the files that its evidence names.

Runs arrive as artifacts of CI jobs and in bug reports, so their data is untrusted. Nothing in them may name a program
or a path outside their folder (names of cells, guests and files are harness.core.model's `Name`). A path outside the
folder is not opened, and the report lacks the information from that file.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.cache import default_root
from harness.core.errors import InconclusiveError, UsageError
from harness.core.model import Record
from harness.record import fault_log, program_launch, run_folder
from harness.record.run_record import RunRecord  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.core.finding import Finding
    from harness.record.fault_log import FaultLog, MapRecord, Overtake, StoreCounts

NOWHERE = Path(os.devnull)
"""A device has no files below it, so every path below this one is missing."""
UNKNOWN_TOOLS = "unknown"
"""Replaces a prefix of binary tools that could be a path or an option."""
_PREFIX = re.compile(r"(([a-z0-9_]+-)+linux-[a-z0-9_]+)?")
"""The prefixes of GNU's tools for Linux, as in `arm-linux-gnueabi-addr2line`; empty for the host's own tools.
A run can only choose among the binary tools in the PATH, and cannot name any other program."""
_SYSTEM = (Path("/usr"), Path("/lib"), Path("/lib64"))
"""The folders of the libraries of systems and of cross compilers."""


def ways_out(folder: Path) -> Iterator[tuple[Path, str]]:
    """The links in a folder that lead outside, and special files, such as pipes and devices; what each of them is."""
    for here, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(here) / name
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                if _leads_out(path, folder):
                    yield path, f"it leads to {path.readlink()}"
            elif not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
                yield path, "it is neither a file nor a folder"


def _leads_out(link: Path, folder: Path) -> bool:
    try:
        return not link.resolve().is_relative_to(folder.resolve())
    except RuntimeError:
        # It leads to itself.
        return True


def refuse_ways_out(folder: Path, what: str = "a run folder") -> None:
    """Raise UsageError if a folder holds a link that leads outside, or a special file. `what` it is, for the reader."""
    for path, why in ways_out(folder):
        raise UsageError(
            f"{what} may contain only files", where=str(path), because=why, remedy=f"rm {shlex.quote(str(path))}"
        )


def remove_ways_out(folder: Path) -> None:
    """Remove everything that `refuse_ways_out` refuses: tests leave links to devices to make a server fail."""
    for path, _ in list(ways_out(folder)):
        path.unlink()


class TrustedRun(Record, frozen=True):
    """A run folder and its record, without the parts that the reader does not trust."""

    folder: Path
    record: RunRecord
    """The record without the binaries and tools that the reader must not open."""
    claimed: RunRecord
    """The record as in run.json. Only for messages."""


def read(folder: Path) -> TrustedRun:
    """Read a run's record, and replace the paths and tools in it that the reader must not open.

    Raises the same errors as `run_folder.read_run`, and InconclusiveError for a record that lacks a machine.
    """
    claimed = run_folder.read_run(folder)
    targets = {*claimed.targets, *(cell.target for cell in claimed.cells)}
    if lacking := sorted(targets - claimed.machines.keys()):
        raise InconclusiveError(
            "the run's record is damaged, so nothing can be concluded",
            where=str(folder / "run.json"),
            because=f"it lacks the machine of {', '.join(lacking)}",
            remedy="run again",
        )
    record = msgspec.structs.replace(
        claimed,
        binaries={target: _within(_homes(folder), path) for target, path in claimed.binaries.items()},
        triples={
            target: one if _PREFIX.fullmatch(one) else UNKNOWN_TOOLS
            for target, one in {**dict.fromkeys(claimed.machines, UNKNOWN_TOOLS), **claimed.triples}.items()
        },
    )
    return TrustedRun(folder=folder, record=record, claimed=claimed)


def read_fault_log(log: Path) -> FaultLog:
    """Read a guest's fault log. A mapped file that must not be opened keeps its name and loses its folder."""
    content, opened_as = fault_log.read(log), _opener(log.parent)

    def opened(maps: list[MapRecord]) -> list[MapRecord]:
        return [msgspec.structs.replace(one, path=opened_as(one.path)) for one in maps]

    return msgspec.structs.replace(
        content,
        faults=[msgspec.structs.replace(one, maps=opened(one.maps)) for one in content.faults],
        overtakes=[msgspec.structs.replace(one, maps=opened(one.maps)) for one in content.overtakes],
        missed=[msgspec.structs.replace(one, maps=opened(one.maps)) for one in content.missed],
        lasts={pid: msgspec.structs.replace(one, maps=opened(one.maps)) for pid, one in content.lasts.items()},
    )


def store_counts(cell: Path) -> list[StoreCounts]:
    """What the stores of a cell's servers did (`--memory-order weak`), one for each process."""
    return [one for log in _logs(cell) for one in fault_log.read(log).stores.values()]


def overtakes(cell: Path) -> list[Overtake]:
    """The stores that other threads of a cell's servers saw in another order."""
    return [one for log in _logs(cell) for one in fault_log.read(log).overtakes]


def _logs(cell: Path) -> list[Path]:
    return sorted(cell.glob(f"guest-*/{fault_log.NAME}"))


def own_program(guest: Path, path: str) -> str:
    """The path by which the faults of a program name it, as `read_fault_log` returns them."""
    return _opener(guest)(path)


def _opener(guest: Path) -> Callable[[str], str]:
    """Finds the file to open for a path: the cell's own copy, if it has one of the file that the guest ran."""
    folder = next((above for above in guest.parents if (above / "run.json").is_file()), guest)
    changed, homes = program_launch.lines_of(guest, program_launch.CHANGED), _homes(folder)

    def opened_as(path: str) -> str:
        if path in changed:
            return str(NOWHERE / Path(path).name)
        kept = program_launch.object_copy(guest.parent, path)
        return str(kept) if kept.is_file() else _within(homes, path)

    return opened_as


def remarks(run: TrustedRun, findings: Sequence[Finding]) -> list[str]:
    """A sentence for each target whose findings lack names or lines because the host lacks its binary or tools."""
    looked_up = [
        witness.target
        for finding in findings
        for witness in finding.witnesses
        if witness.evidence.endswith(f"/{fault_log.NAME}") and witness.suite != program_launch.SUITE
    ]
    sentences = []
    for target in dict.fromkeys(looked_up):
        path = run.record.binaries.get(target, "")
        if not path or not Path(path).is_file():
            claimed = run.claimed.binaries.get(target, "which the run's record does not name")
            sentences.append(f"{target}: its binary is not here: findings have neither names nor lines ({claimed})")
        elif run.record.triples.get(target) == UNKNOWN_TOOLS:
            prefix = run.claimed.triples.get(target)
            sentences.append(f"{target}: no toolchain has tools named {prefix}-*: findings have no lines")
    return sentences


def _homes(folder: Path) -> tuple[Path, ...]:
    """The folders whose binaries a run may name: the cache, its own and the system's."""
    return (default_root(), folder, *_SYSTEM)


@cache
def _within(homes: tuple[Path, ...], path: str) -> str:
    """A binary's path, if it is in one of these folders; else a path below NOWHERE."""
    try:
        whole = Path(path).resolve()
    except (OSError, ValueError):
        return str(NOWHERE / "unnamed")
    ours = any(whole.is_relative_to(home.resolve()) for home in homes)
    return path if ours and Path(path).is_absolute() else str(NOWHERE / (whole.name or "unnamed"))
