"""A stored run as far as this machine trusts it: its folder, its record, the files that its evidence names.

Runs arrive as artifacts of CI jobs and in bug reports: they are data from strangers. Nothing in them names a program or
a path outside their folder (names of cells, guests and files are harness.core.model's `Name`). A path that leads out is
not opened, and the report lacks what it would have added.
"""

from __future__ import annotations

import os
import re
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.cache import Cache
from harness.core.errors import UsageError
from harness.core.model import Record
from harness.record import fault_log, run_folder
from harness.record.run_folder import RunRecord  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.finding import Finding
    from harness.record.fault_log import FaultLog

NOWHERE = Path(os.devnull)
"""Below a device there is no file, whatever its name."""
UNKNOWN_TOOLS = "unknown"
"""Replaces a prefix of binary tools that could be a path or an option."""
_PREFIX = re.compile(r"(([a-z0-9_]+-)+linux-[a-z0-9_]+)?")
"""The prefixes that GNU's tools for Linux have, as in `arm-linux-gnueabi-addr2line`; empty for the host's own tools.
A run chooses among the binary tools that this machine has in its PATH, and can name no other program."""
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


class TrustedRun(Record, frozen=True):
    """A run folder and its record, as far as this machine trusts it."""

    folder: Path
    record: RunRecord
    """Without the binaries and tools that this machine must not touch."""
    claimed: RunRecord
    """As run.json has it: for messages alone."""


def read(folder: Path) -> TrustedRun:
    """Read a run's record, and replace the binaries and tools in it that are not this machine's own.

    Raises as `run_folder.read_run` does.
    """
    claimed = run_folder.read_run(folder)
    record = msgspec.structs.replace(
        claimed,
        binaries={target: _kept(folder, path) for target, path in claimed.binaries.items()},
        triples={target: one if _PREFIX.fullmatch(one) else UNKNOWN_TOOLS for target, one in claimed.triples.items()},
    )
    return TrustedRun(folder=folder, record=record, claimed=claimed)


def read_fault_log(log: Path) -> FaultLog:
    """Read a guest's fault log. A mapped file that must not be opened keeps its name and loses its folder."""
    folder = next((above for above in log.parents if (above / "run.json").is_file()), log.parent)
    content = fault_log.read(log)
    faults = []
    for fault in content.faults:
        maps = [msgspec.structs.replace(one, path=_kept(folder, one.path)) for one in fault.maps]
        faults.append(msgspec.structs.replace(fault, maps=maps))
    return msgspec.structs.replace(content, faults=faults)


def remarks(run: TrustedRun, findings: Sequence[Finding]) -> list[str]:
    """A sentence for each target whose findings lack names or lines because its binary or its tools are not here."""
    looked_up = [
        witness.target
        for finding in findings
        for witness in finding.witnesses
        if witness.evidence.endswith(f"/{fault_log.NAME}")
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
