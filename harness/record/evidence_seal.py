"""The seal of a cell's evidence: the length and digest of every file, taken after the last write.

The cell's record in run.json has the digest of the seal itself. A file that is cut, lost or changed afterwards makes
its cell UNKNOWN.
"""

from __future__ import annotations

import hashlib
import stat
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.digests import files_below, sha256_of
from harness.core.errors import ABSENT_FILE
from harness.core.model import Record
from harness.record import event_log, fault_log, program_launch, run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "seal.json"
SHOWN = 3
"""How many damaged files a doubt names."""


class SealedFile(Record, frozen=True):
    """One file of evidence."""

    bytes: int
    sha256: str


def seal(cell: Path) -> str:
    """Write a cell's seal.json, and return its digest. Nothing may write to the cell's folder afterwards."""
    files = {
        str(path.relative_to(cell)): SealedFile(bytes=path.stat().st_size, sha256=sha256_of(path))
        for path in evidence_files(cell)
    }
    content = json_codec.pretty(files)
    # A folder that was removed while the cell ran is sealed as empty.
    cell.mkdir(parents=True, exist_ok=True)
    (cell / NAME).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


class Damage(Record, frozen=True):
    """The differences between a cell's evidence and its seal."""

    doubts: list[str]
    """Human-readable; empty if every file is unchanged."""
    invents: bool
    """Whether a file is changed that can show a misbehaviour: what it shows may never have been recorded."""


def doubts(cell: Path, digest: str) -> list[str]:
    """Human-readable differences between the evidence and its seal; empty if every file is unchanged."""
    return damage(cell, digest).doubts


def damage(cell: Path, digest: str) -> Damage:
    """Compare a cell's evidence with its seal, which has this digest."""
    try:
        content = (cell / NAME).read_bytes()
    except ABSENT_FILE:
        return Damage(doubts=[f"there is no {NAME}"], invents=True)
    if hashlib.sha256(content).hexdigest() != digest:
        return Damage(doubts=[f"{NAME} differs from what was written"], invents=True)
    try:
        files = json_codec.decode(content, dict[str, SealedFile])
    except msgspec.DecodeError as error:
        return Damage(doubts=[f"{NAME} cannot be read: {error}"], invents=True)
    wrong = {name: why for name, one in files.items() if (why := _why_not(cell / name, one))}
    added = {str(path.relative_to(cell)) for path in evidence_files(cell)} - files.keys()
    wrong |= dict.fromkeys(sorted(added), "was not there")
    shown = [f"{name} {why}" for name, why in wrong.items()][:SHOWN]
    more = [f"and {len(wrong) - SHOWN} more files"] if len(wrong) > SHOWN else []
    return Damage(
        doubts=[f"changed since it was recorded: {'; '.join([*shown, *more])}"] if wrong else [],
        invents=any(name.rpartition("/")[2] in _TELLING for name in wrong),
    )


def _why_not(path: Path, sealed: SealedFile) -> str:
    if not path.is_file() or path.is_symlink() or ".." in path.parts:
        return "is gone"
    length = path.stat().st_size
    if length != sealed.bytes:
        return f"has {length} bytes of {sealed.bytes}"
    return "" if sha256_of(path) == sealed.sha256 else "has other content"


_FILES = {
    event_log.NAME,
    run_folder.PROBLEM,
    fault_log.NAME,
    f"{fault_log.NAME}.counts",
    "log",
    "cell.json",
    "console",
    *program_launch.FILES,
}
_TELLING = _FILES - {f"{fault_log.NAME}.counts", "cell.json"}
"""The files in which judging looks for misbehaviours. Transcripts and inputs only explain them."""
_FOLDERS = {run_folder.INPUTS, program_launch.OBJECTS}


def evidence_files(cell: Path) -> Iterator[Path]:
    """The files of a cell that are judged or shown, in order.

    Excludes the servers' own data files, and folders that have a seal of their own.
    """
    for name, path, status in files_below(cell):
        folders = name.split("/")
        kept = path.name in _FILES or path.name.startswith("transcript-") or not _FOLDERS.isdisjoint(folders)
        if kept and not run_folder.has_own_seal(folders[0]) and stat.S_ISREG(status.st_mode):
            yield path
