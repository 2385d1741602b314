"""Judges a run's evidence a second time, and compares the judgement that its findings.json claims.

Names of functions come from a target's binary. Where only the machine that made the run has it, this module compares
what needs no names: how many tests passed and failed, whether the evidence is complete, whether there are misaligned
accesses, and which of the claimed findings the list knows.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from harness.analysis.symbols import can_name
from harness.core.errors import InconclusiveError
from harness.core.finding import Verdict
from harness.core.progress import Progress
from harness.judge import conclusion, warning_findings
from harness.judge.verdict import of_cell
from harness.record import evidence_seal, stored_run
from harness.report.formats import registry as formats
from harness.workflows import rejudge

if TYPE_CHECKING:
    from harness.judge.findings import Judgement
    from harness.record.stored_run import TrustedRun


def read_checked(folder: Path, known: Path) -> Judgement:
    """The judgement in a run folder, which its evidence confirms. `known`: the known list that it was judged with.

    Without evidence it is only read, and has a remark that says so. Raises InconclusiveError if the evidence
    contradicts it, and what `formats.read` and `stored_run.read` raise.
    """
    stored_run.refuse_ways_out(folder)
    told = formats.read(folder)
    if not (folder / "run.json").is_file() or not any(folder.glob(f"*/*/{evidence_seal.NAME}")):
        remark = f"the evidence of {folder} is not here: its findings.json was believed"
        return msgspec.structs.replace(told, remarks=[*told.remarks, remark])
    if found := contradictions(folder, told, known.read_text("utf-8"), teller="findings.json"):
        raise InconclusiveError(
            "a judgement contradicts its evidence",
            where=str(folder),
            because="; ".join(found),
            remedy="judge it again with the list that the check had: plumb judge RUN --known FILE",
        )
    return told


def contradictions(
    folder: Path, told: Judgement, known_text: str, *, teller: str, without: tuple[str, ...] = ()
) -> list[str]:
    """How a run's claimed judgement differs from the one that follows from its evidence.

    `known_text`: the known list; `teller`: who claims it; `without`: files that take no part.
    """
    with tempfile.TemporaryDirectory(prefix="judged-") as private:
        # Judging writes beside the evidence. The files that the first judging wrote there stay, because they contain
        # the source.
        copy, known = Path(private) / "run", Path(private) / "known.toml"
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(*without))
        known.write_text(known_text, "utf-8")
        stored = rejudge.opened(copy)
        found, _ = conclusion.conclude(stored, known, Progress(Console(file=io.StringIO())))
        untold = [f"according to its evidence: {one}" for one in found.unchecked if one not in told.unchecked]
        if _names_functions(stored):
            claims, shows = (outcome_of(one) | _counts(one, set()) for one in (told, found))
            return [*untold, *_differences(claims, shows, teller)]
        # Findings without names match no entry of the list, so a cell may fail only here.
        failing = {(cell.target, cell.suite) for cell in found.cells if cell.verdict == Verdict.FAIL}
        marked = conclusion.KnownLists.read(stored.folder, stored.record, known).marked(told.findings)
        pairs = zip(told.findings, marked, strict=True)
        return [
            *untold,
            *_differences(_counts(told, failing), _counts(found, failing), teller),
            *_differences(_warnings(told), _warnings(found), teller),
            *(f"its {teller} calls {one.id} known" for one, again in pairs if one.known and not again.known),
            # Such a finding needs no name to be one: no test misaligns on purpose.
            *(
                f"its evidence has a misaligned access in {cell.target}/{cell.suite}"
                for cell in told.cells
                if cell.verdict == Verdict.PASS
                and any(one.kind == "alignment" for one in of_cell(found.findings, cell.target, cell.suite))
            ),
        ]


def outcome_of(judged: Judgement) -> set[str]:
    """The statements of a judgement about the server, in words: the verdicts and the findings."""
    verdicts = {f"{cell.target}/{cell.suite} {cell.verdict}" for cell in judged.cells}
    return verdicts | {finding.id for finding in judged.findings}


def _names_functions(stored: TrustedRun) -> bool:
    """Whether the host has the binaries of a run and the tools that name their functions."""
    run = stored.record
    return bool(run.binaries) and all(can_name(run.triples[target], path) for target, path in run.binaries.items())


def _counts(judged: Judgement, failing: set[tuple[str, str]]) -> set[str]:
    """How many tests of each cell ended in which way, and whether the cell is inconclusive, unless it is `failing`."""
    silent = {Verdict.SKIP, Verdict.UNKNOWN}
    return {
        f"{cell.target}/{cell.suite} {cell.passed} passed, {cell.failed} failed, {cell.skipped} skipped"
        + (f", {cell.verdict}" if cell.verdict in silent and (cell.target, cell.suite) not in failing else "")
        for cell in judged.cells
    }


def _warnings(judged: Judgement) -> set[str]:
    """The findings that are compilers' warnings: these name functions themselves."""
    return {finding.id for finding in judged.findings if finding.kind == warning_findings.KIND}


def _differences(told: set[str], found: set[str], teller: str) -> list[str]:
    return [
        *(f"according to its {teller}: {one}" for one in sorted(told - found)),
        *(f"according to its evidence: {one}" for one in sorted(found - told)),
    ]
