"""The conditions under which a result counts: it is complete, matches its seal, and is judged according to its
evidence.

The campaign's own process judges the evidence again, so it need not trust a worker's verdicts.
"""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.errors import InconclusiveError, PlumblineError
from harness.isa import rules
from harness.judge.findings import Judgement
from harness.record import evidence_seal, run_folder, stored_run
from harness.workflows.campaign.job import LEARNED
from harness.workflows.second_judgement import contradictions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.record.run_record import RunRecord
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
    except (PlumblineError, OSError, RecursionError, msgspec.DecodeError) as error:
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
        beside = [
            (folder(place, number), one.seal)
            for folder, runs in (
                (run_folder.host_folder, cell.host),
                (run_folder.ordered_folder, cell.ordered),
                (run_folder.delayed_folder, cell.delayed),
            )
            for number, one in enumerate(runs, start=1)
        ]
        for sealed, digest in ((place, cell.seal), (place / run_folder.AUDIT, cell.audit_seal), *beside):
            if digest and (doubts := evidence_seal.doubts(sealed, digest)):
                where = f"{job.name}: {cell.target}/{cell.suite}"
                raise InconclusiveError("a result's evidence is damaged", where=where, because="; ".join(doubts))
    try:
        found = contradictions(folder, judged, job.known, teller="worker", without=(LEARNED,))
    except Exception as error:
        # Whatever a worker's files do to the judge says something about them, and must not end the campaign.
        why = str(error) if isinstance(error, PlumblineError) else f"{type(error).__name__}: {error}"
        raise InconclusiveError("a result cannot be judged", where=job.name, because=why) from error
    if found:
        raise InconclusiveError("a result contradicts its evidence", where=job.name, because="; ".join(found))


_RECORDED: dict[str, Callable[[RunRecord], str]] = {
    "--tier": lambda run: run.tier,
    "--policy": lambda run: rules.base_name(run.policy),
    "--optimisation": lambda run: run.optimisation,
    "--toolchain": lambda run: run.toolchain,
    "--allocator": lambda run: run.allocator,
    "--environment": lambda run: run.environment,
    "--memory-order": lambda run: run.memory_order,
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
