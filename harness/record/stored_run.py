"""A stored run as far as this machine may believe it: its folder, its record, the files that its evidence names.

Runs come as artifacts of CI jobs and in bug reports: they are data from strangers. Nothing of theirs is a program or a
path that leads out of their folder (names of cells, guests and files are harness.core.model's `Name`). What would lead
out is not opened, and what it would have told is left out.
"""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.cache import Cache
from harness.core.errors import UsageError
from harness.plan.catalog import Catalog
from harness.record import fault_log, run_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.finding import Finding
    from harness.record.fault_log import FaultLog
    from harness.record.run_folder import RunRecord

NOWHERE = Path(os.devnull)
"""Below a device there is no file, whatever its name."""
UNKNOWN_TOOLS = "unknown"
"""Instead of a prefix of binary tools that no toolchain of ours has."""
_SYSTEM = (Path("/usr"), Path("/lib"), Path("/lib64"))
"""Where systems have their libraries, and cross compilers theirs."""


def refuse_ways_out(folder: Path) -> None:
    """Raise UsageError if a run folder holds a link that leads out of it, or what is no file: a pipe, a device."""
    for here, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(here) / name
            kind = path.lstat().st_mode
            why = ""
            if stat.S_ISLNK(kind):
                why = "" if path.resolve().is_relative_to(folder.resolve()) else f"it leads to {path.readlink()}"
            elif not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
                why = "it is neither a file nor a folder"
            if why:
                raise UsageError(
                    "a run folder holds nothing but files", where=str(path), because=why, remedy=f"rm {path}"
                )


def read(folder: Path) -> RunRecord:
    """A run's record, its binaries and tools replaced where they are none of ours. Raises UsageError as events does."""
    run = run_folder.read_run(folder)
    triples = {tools.triple for tools in Catalog().toolchains.values()}
    return msgspec.structs.replace(
        run,
        binaries={target: _kept(folder, path) for target, path in run.binaries.items()},
        triples={target: one if one in triples else UNKNOWN_TOOLS for target, one in run.triples.items()},
    )


def read_fault_log(log: Path) -> FaultLog:
    """A fault log of a run's, with the files that may be opened; of others the name is left."""
    folder = next((above for above in log.parents if (above / "run.json").is_file()), log.parent)
    told = fault_log.read(log)
    faults = []
    for fault in told.faults:
        maps = [msgspec.structs.replace(one, path=_kept(folder, one.path)) for one in fault.maps]
        faults.append(msgspec.structs.replace(fault, maps=maps))
    return msgspec.structs.replace(told, faults=faults)


def remarks(folder: Path, findings: Sequence[Finding]) -> list[str]:
    """Whose findings have no names and no lines, because what they are looked up with is not here."""
    run, believed = run_folder.read_run(folder), read(folder)
    looked_up = [one.target for finding in findings for one in finding.witnesses if one.evidence.endswith(_FAULTS)]
    said = []
    for target in dict.fromkeys(looked_up):
        path = believed.binaries.get(target, "")
        if not path or not Path(path).is_file():
            there = run.binaries.get(target, "which the run's record does not name")
            said.append(f"{target}: its binary is not here: findings have neither names nor lines ({there})")
        elif believed.triples.get(target) == UNKNOWN_TOOLS:
            said.append(f"{target}: no toolchain has tools named {run.triples.get(target)}-*: findings have no lines")
    return said


_FAULTS = "/faults.jsonl"


def _kept(folder: Path, path: str) -> str:
    """A binary's path, if it is in the cache, the run's folder or the system's; else one with its name that is none."""
    return _within((Cache.default().root, folder, *_SYSTEM), path)


@cache
def _within(homes: tuple[Path, ...], path: str) -> str:
    try:
        whole = Path(path).resolve()
    except (OSError, ValueError):
        return str(NOWHERE / "unnamed")
    ours = any(whole.is_relative_to(home.resolve()) for home in homes)
    return path if ours and Path(path).is_absolute() else str(NOWHERE / (whole.name or "unnamed"))
