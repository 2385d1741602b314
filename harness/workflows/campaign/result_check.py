"""The conditions under which a result counts: it is complete, matches its seal, and is judged according to its
evidence.

The campaign's own process judges the evidence again, so it need not trust a worker's verdicts. Names of functions come
from a target's binary. Where only the worker has it, the campaign compares what needs no names: how many tests passed
and failed, whether the evidence is complete, whether there are misaligned accesses, and which of the worker's findings
the list knows.
"""

from __future__ import annotations

import io
import itertools
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from harness.analysis.symbols import can_name
from harness.core import json_codec
from harness.core.errors import InconclusiveError, PlumblineError
from harness.core.finding import Verdict
from harness.core.progress import Progress
from harness.isa import rules
from harness.judge import conclusion, warning_findings
from harness.judge.findings import Judgement
from harness.judge.verdict import of_cell
from harness.record import evidence_seal, run_folder, stored_run
from harness.workflows.campaign.job import LEARNED

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.run_record import RunRecord
    from harness.record.stored_run import TrustedRun
    from harness.workflows.campaign.job import CampaignJob


def check_run(folder: Path, job: CampaignJob) -> None:
    """Raise InconclusiveError unless a run folder may count.

    It must have every cell of its job, the job's options, evidence that matches its seals, and the judgement that
    follows from the evidence.
    """
    try:
        stored_run.refuse_ways_out(folder)
        record = run_folder.read_run(folder)
        judged = json_codec.decode((folder / "findings.json").read_bytes(), Judgement)
    except (PlumblineError, OSError, msgspec.DecodeError) as error:
        raise InconclusiveError("a result is damaged", where=job.name, because=str(error)) from error
    wanted = {(cell.target, cell.suite) for cell in job.cells}
    has = {(cell.target, cell.suite) for cell in judged.cells}
    if wanted != has:
        strange = ", ".join("/".join(place) for place in sorted(wanted ^ has))
        raise InconclusiveError("a result's cells are not those of its job", where=job.name, because=strange)
    if other := _other_request(job, record):
        raise InconclusiveError("a result's run is not that of its job", where=job.name, because="; ".join(other))
    for cell in record.cells:
        place = folder / cell.target / cell.suite
        beside = [(run_folder.host_folder(place, number), one.seal) for number, one in enumerate(cell.host, start=1)]
        for sealed, digest in ((place, cell.seal), (place / run_folder.AUDIT, cell.audit_seal), *beside):
            if digest and (doubts := evidence_seal.doubts(sealed, digest)):
                where = f"{job.name}: {cell.target}/{cell.suite}"
                raise InconclusiveError("a result's evidence is damaged", where=where, because="; ".join(doubts))
    try:
        contradictions = _contradictions(folder, job, judged)
    except PlumblineError as error:
        raise InconclusiveError("a result cannot be judged", where=job.name, because=str(error)) from error
    if contradictions:
        raise InconclusiveError("a result contradicts its evidence", where=job.name, because="; ".join(contradictions))


_RECORDED: dict[str, Callable[[RunRecord], str]] = {
    "--tier": lambda run: run.tier,
    "--policy": lambda run: rules.base_name(run.policy),
    "--optimisation": lambda run: run.optimisation,
    "--toolchain": lambda run: run.toolchain,
    "--allocator": lambda run: run.allocator,
    "--environment": lambda run: run.environment,
    "--io": lambda run: run.io,
    "--emulator": lambda run: run.emulator,
    "--seed": lambda run: str(run.seed),
    "--warnings": lambda run: run.warnings,
    "--everywhere": lambda run: run.everywhere,
    "--timeout-multiplier": lambda run: f"{run.timeout_multiplier:g}",
}
"""An option of a job -> what a run's record says of it."""


def _other_request(job: CampaignJob, run: RunRecord) -> list[str]:
    """How a run differs from what its job asks for: one with easier options would show less."""
    found = [
        f"{option} {_RECORDED[option](run) or '(none)'} instead of {asked}"
        for option, asked in itertools.pairwise(job.words)
        if option in _RECORDED and _RECORDED[option](run) != asked
    ]
    if not job.is_of_server(run.server):
        found.append(f"the server {run.server} instead of {job.tree_name or job.cells[0].server}")
    found += [
        f"{'no ' if flag in job.words else ''}{flag}"
        for flag, recorded in (("--mixed", run.mixed), ("--target-clients", run.target_clients))
        if recorded is not (flag in job.words)
    ]
    if job.words[:1] in (["audit"], ["check"]) and rules.is_audit(run.policy) is not (job.words[0] == "audit"):
        found.append(f"the policy {run.policy} instead of that of plumb {job.words[0]}")
    settings = [word for word in job.words if word.startswith(("--cflags=", "--make="))]
    if run.settings.words != settings:
        found.append(f"{shlex.join(run.settings.words) or 'no settings'} instead of {shlex.join(settings) or 'none'}")
    if set(run.tests) != set(job.tests):
        found.append(f"--test {shlex.join(run.tests) or '(none)'} instead of {shlex.join(job.tests) or 'all tests'}")
    return found


def outcome_of(judged: Judgement) -> set[str]:
    """The statements of a judgement about the server, in words: the verdicts and the findings."""
    verdicts = {f"{cell.target}/{cell.suite} {cell.verdict}" for cell in judged.cells}
    return verdicts | {finding.id for finding in judged.findings}


def _contradictions(folder: Path, job: CampaignJob, told: Judgement) -> list[str]:
    """How a worker's judgement differs from the one that follows from its evidence."""
    with tempfile.TemporaryDirectory(prefix="judged-") as private:
        # Judging writes beside the evidence. The files that the worker wrote there stay, because they contain the
        # source.
        copy, known = Path(private) / "run", Path(private) / "known.toml"
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(LEARNED))
        known.write_text(job.known, "utf-8")
        stored = stored_run.read(copy)
        found, _ = conclusion.conclude(stored, known, Progress(Console(file=io.StringIO())))
        untold = [f"according to its evidence: {one}" for one in found.unchecked if one not in told.unchecked]
        if _names_functions(stored):
            return [*untold, *_differences(outcome_of(told), outcome_of(found))]
        # Findings without names match no entry of the list, so a cell may fail only here.
        failing = {(cell.target, cell.suite) for cell in found.cells if cell.verdict == Verdict.FAIL}
        marked = conclusion.KnownLists.read(stored.folder, stored.record, known).marked(told.findings)
        pairs = zip(told.findings, marked, strict=True)
        return [
            *untold,
            *_differences(_counts(told, failing), _counts(found, failing)),
            *_differences(_warnings(told), _warnings(found)),
            *(f"its worker calls {one.id} known" for one, again in pairs if one.known and not again.known),
            # Such a finding needs no name to be one: no test misaligns on purpose.
            *(
                f"its evidence has a misaligned access in {cell.target}/{cell.suite}"
                for cell in told.cells
                if cell.verdict == Verdict.PASS
                and any(one.kind == "alignment" for one in of_cell(found.findings, cell.target, cell.suite))
            ),
        ]


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


def _differences(told: set[str], found: set[str]) -> list[str]:
    return [
        *(f"according to its worker: {one}" for one in sorted(told - found)),
        *(f"according to its evidence: {one}" for one in sorted(found - told)),
    ]
