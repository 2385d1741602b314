"""The run folder: its layout, the names of its parts, and the writer and reader of run.json.

RUN/run.json                          what was run (harness.record.run_record)
RUN/tree-known.toml                   the tree's own list of known findings (harness.judge.known)
RUN/base-known.toml                   the same of the base revision (harness.workflows.premerge)
RUN/inherited.json                    findings that the base revision also shows (harness.judge.baseline)
RUN/cost.json                         what the run cost the host: time, memory (harness.record.run_cost)
RUN/TARGET/SUITE/events.jsonl         what the tests and guests did (harness.record.event_log)
RUN/TARGET/SUITE/seal.json            length and digest of every file of evidence (harness.record.evidence_seal)
RUN/TARGET/SUITE/executed.jsonl       what code each test executed, if asked for (harness.record.executed_blocks)
RUN/TARGET/SUITE/profile.json         where the cell's process spent its time (harness.record.run_cost)
RUN/TARGET/SUITE/problem              why the cell's process gave up, if it did
RUN/TARGET/SUITE/audit/               the same files, from the audit that followed
RUN/TARGET/SUITE/host-N/              the same files, from the failed tests on the native build
RUN/TARGET/SUITE/ordered-N/           the same files, from the failed tests in the host's memory order
RUN/TARGET/SUITE/delayed-N/           the same files, from the failed tests once more in the cell's own memory order
RUN/TARGET/SUITE/guest-N/             log, faults.jsonl (the emulator's: harness.record.fault_log), transcript-N.jsonl
RUN/TARGET/SUITE/peers/OTHER/guest-N/ the same files, from servers on other targets and from the oracle
RUN/TARGET/SUITE/guest-unit-NAME/     log, faults.jsonl of a unit's run
"""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.digests import sha256_of
from harness.core.errors import InconclusiveError, UsageError
from harness.record.run_record import READABLE, VERSION, RunRecord

if TYPE_CHECKING:
    from pathlib import Path

PEERS = "peers"
SHARED = "shared"
"""RUN/shared: what each cell of a run writes for the others."""
PROBLEM = "problem"
"""RUN/TARGET/SUITE/problem: why a cell's process gave up: for example, what the host lacks."""
AUDIT = "audit"
"""RUN/TARGET/SUITE/audit/: the evidence of the audit that follows when misaligned accesses ended guests."""
ORDERED = "ordered"
"""RUN/TARGET/SUITE/ordered-N/: the evidence of the Nth run of the cell's failed tests in the host's memory order."""
DELAYED = "delayed"
"""RUN/TARGET/SUITE/delayed-N/: the evidence of the Nth further run of the cell's failed tests while stores wait."""
HOST = "host"
"""RUN/TARGET/SUITE/host-N/: the evidence of the Nth run of the cell's failed tests on the native build."""
INPUTS = "inputs"
"""RUN/TARGET/SUITE/guest-N/inputs/: files that were in the guest's folder when it started."""
PROGRESS = "progress"
"""RUN/TARGET/SUITE/progress: one line on the progress of a long suite, overwritten as it runs."""


def host_folder(cell: Path, number: int) -> Path:
    """The folder of a cell's Nth run on the native build, from 1."""
    return cell / f"{HOST}-{number}"


def ordered_folder(cell: Path, number: int) -> Path:
    """The folder of a cell's Nth run in the host's memory order, from 1."""
    return cell / f"{ORDERED}-{number}"


def delayed_folder(cell: Path, number: int) -> Path:
    """The folder of a cell's Nth further run while stores wait, from 1."""
    return cell / f"{DELAYED}-{number}"


def has_own_seal(folder: str) -> bool:
    """Whether a folder in a cell's folder has its own seal: that of an audit, or of another run of its failed tests."""
    return folder == AUDIT or folder.startswith((f"{HOST}-", f"{ORDERED}-", f"{DELAYED}-"))


def command_to_judge(folder: Path) -> str:
    """The command that judges the run in a folder, as a person pastes it."""
    return f"plumb judge {shlex.quote(str(folder))}"


def write_run(folder: Path, record: RunRecord) -> None:
    """Write RUN/run.json, replacing the whole file."""
    write_whole(folder / "run.json", signed(json_codec.pretty(msgspec.structs.replace(record, digest=""))))


def signed(unsigned: bytes) -> bytes:
    """The text of a record with its own digest filled in. The digest in `unsigned` is empty."""
    before, _, after = unsigned.rpartition(_UNSIGNED)
    return before + _SIGNED % hashlib.sha256(unsigned).hexdigest().encode() + after


NAMES_ONE = "name the folder that the check's last line names; this lists runs: ls -d runs/*/"
"""The remedy for a folder that is not a run folder."""


def why_none(folder: Path) -> str:
    """Why a folder is not a run folder."""
    return "it has no run.json" if folder.is_dir() else "there is no such folder"


def read_run(folder: Path) -> RunRecord:
    """Read RUN/run.json.

    Raises UsageError if it is missing or in another release's format, and InconclusiveError if it is damaged.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError("not a run folder", where=str(folder), because=why_none(folder), remedy=NAMES_ONE)
    try:
        content = path.read_bytes()
        # Check the version first: a newer release may have keys that are unknown here.
        version = json_codec.decode(content, _Versioned).version
        if version not in READABLE:
            made_by = "a newer" if version > VERSION else "an older"
            raise UsageError(
                f"the run was made by {made_by} Plumbline",
                where=str(path),
                because=f"its format is {version}, and this release reads {' and '.join(map(str, READABLE))}",
                remedy="judge it with the release that made it, or run the check again",
            )
        record = json_codec.decode(content, RunRecord)
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from error
    before, _, after = content.rpartition(_SIGNED % record.digest.encode())
    if signed(before + _UNSIGNED + after) != content:
        raise _damaged(path, "it has changed since it was written: its digest differs")
    return record


def is_recorded(folder: Path, run: RunRecord, name: str) -> bool:
    """Whether a file in the run folder that belongs to no cell exists and equals its record."""
    path = folder / name
    return path.is_file() and run.beside.get(name) == sha256_of(path)


def refuse_other(folder: Path, digest: str) -> None:
    """Raise UsageError unless a judgement in a run folder is of the record there. `digest`: of the record that was
    judged; empty if the judgement does not say. A folder without a record has only the judgement.
    """
    if (folder / "run.json").is_file() and read_run(folder).digest != digest:
        raise UsageError(
            "the judgement is of another run" if digest else "the judgement does not say which run it is of",
            where=str(folder),
            because="its findings.json belongs to another run.json" if digest else "findings.json has no `record`",
            remedy=command_to_judge(folder),
        )


class _Versioned(msgspec.Struct):
    """The key that every release's run.json has."""

    version: int = 1


_SIGNED = b'"digest": "%s"'
_UNSIGNED = _SIGNED % b""


def _damaged(path: Path, because: str) -> InconclusiveError:
    return InconclusiveError(
        "the run's record is damaged, so nothing can be concluded",
        where=str(path),
        because=because,
        remedy="run again",
    )
