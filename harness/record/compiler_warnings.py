"""What compilers warned of while they looked at a tree: RUN/warnings/TARGET.json, beside the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import Record

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.run_folder import RunRecord

FOLDER = "warnings"
ORACLE = "native"


class Diagnostic(Record, frozen=True):
    """One error or warning."""

    severity: Literal["error", "warning"]
    file: str
    """In the tree, or whole where it lies outside."""
    line: int
    text: str
    warning: str
    """The option that asks for it, without `-W`; empty for errors, and warnings that nothing switches."""
    function: str = ""
    """The function that it stands in; empty at the top level."""


class CompilerReport(Record, frozen=True):
    """What a compiler said of a tree for a target."""

    warnings: list[Diagnostic]
    problem: str = ""
    """Why there may be more of them; empty where every file was looked at."""


def write(run: Path, target: str, said: CompilerReport) -> None:
    """Put it beside the evidence."""
    (run / FOLDER).mkdir(parents=True, exist_ok=True)
    (run / FOLDER / f"{target}.json").write_bytes(json_codec.pretty(said))


def read(folder: Path, run: RunRecord) -> dict[str, CompilerReport]:
    """Target -> what its compiler said, the oracle's too; who was not asked is missing. Raises UsageError."""
    found = {}
    for target in dict.fromkeys([*run.targets, ORACLE]):
        path = folder / FOLDER / f"{target}.json"
        try:
            found[target] = json_codec.decode(path.read_bytes(), CompilerReport)
        except FileNotFoundError:
            continue
        except msgspec.DecodeError as error:
            raise UsageError("what a compiler said is damaged", where=str(path), because=str(error)) from error
    return found
