"""Compilers' warnings on a source tree: RUN/warnings/TARGET.json, beside the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.core.target_model import ORACLE

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.run_record import RunRecord

FOLDER = "warnings"


class Diagnostic(Record, frozen=True):
    """One error or warning."""

    severity: Literal["error", "warning"]
    file: str
    """A path relative to the tree, or an absolute path outside it."""
    line: int
    text: str
    warning: str
    """The option that enables the warning, without `-W`; empty for errors and for warnings without an option."""
    function: str = ""
    """The function that contains the line; empty at the top level."""


class CompilerReport(Record, frozen=True):
    """A compiler's diagnostics on a tree for one target."""

    warnings: list[Diagnostic]
    problem: str = ""
    """Why warnings may be missing; empty if the compiler checked every file."""


def write(run: Path, target: str, report: CompilerReport) -> None:
    """Write a target's report beside the evidence."""
    (run / FOLDER).mkdir(parents=True, exist_ok=True)
    (run / FOLDER / f"{target}.json").write_bytes(json_codec.pretty(report))


def read(folder: Path, run: RunRecord) -> dict[str, CompilerReport]:
    """Target -> its compiler's report, including the oracle's. Omits targets without a report.

    A damaged report counts as incomplete. If the run's record has its digest, the run cannot pass.
    """
    found = {}
    for target in dict.fromkeys([*run.targets, ORACLE]):
        path = folder / FOLDER / f"{target}.json"
        try:
            found[target] = json_codec.decode(path.read_bytes(), CompilerReport)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.DecodeError) as error:
            found[target] = CompilerReport(warnings=[], problem=f"{path.name} is damaged: {error}")
    return found
