"""From the options of a command to a run: its request, the run itself, its report, and old runs removed."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources import server_tree
from harness.cli import output
from harness.cli.run_options import RUNS, may_install
from harness.core.model import Record
from harness.plan.request import CheckSettings, Request
from harness.record import run_folder
from harness.report.formats import registry as formats
from harness.run.cell_spec import LARGEST_SEED
from harness.workflows import check as check_workflow
from harness.workflows.campaign import spread as campaign_spread
from harness.workflows.campaign.campaign_folder import CampaignFolder
from harness.workflows.run_meter import metered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from harness.cli.run_options import RunOptions
    from harness.core.errors import ExitCode
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.plan import Plan
    from harness.record.run_record import RunRecord
    from harness.report.report_format import ReportFormat
    from harness.workflows.workbench import Workbench

    Judged = tuple[Judgement, ExitCode]
    Work = Callable[[Workbench, Request], Judged]


class Spread(Record, frozen=True):
    """Where to run a run's cells, according to the options."""

    on: str = ""
    """Empty for this process."""
    insecure: bool = False

    @property
    def formats(self) -> Iterable[ReportFormat]:
        """The files of the report. A campaign's report shows no run folder, because each job has its own report."""
        return formats.OF_JOINED_RUNS if self.on else formats.FILES

    def work(self, otherwise: Work) -> Work:
        """The executor of a request."""
        if not self.on:
            return otherwise
        return lambda bench, request: campaign_spread.check_on(
            bench, request, on=self.on, insecure=self.insecure, command=sys.argv[1:]
        )


def drawn_unless(*seeds: int | None) -> int:
    """The first seed that is given, or a new one."""
    return next((seed for seed in seeds if seed is not None), random.randint(0, LARGEST_SEED))


def planned_request(
    catalog: Catalog,
    run: RunOptions,
    plan: Plan,
    check: CheckSettings,
    *,
    seed: int | None = None,
    parent: Path = RUNS,
    spread: Spread | None = None,
) -> Request:
    """A run's request, checked before any work is done, with an empty run folder and a seed.

    `seed` is used if the command line contains none; without either, a seed is drawn. `spread`: of a command that can
    be spread over machines. If it is, its run folder may be that of a campaign, whose seed is then used. If it is not,
    the server may be a distribution's package.
    """
    server_tree.known_server(catalog, check.server, packages=spread is not None and not spread.on)
    if run.folder and spread and spread.on and (run.folder / "campaign.json").is_file():
        folder = run.folder.resolve()
        seed = CampaignFolder.read(folder).record.seed
    else:
        folder = run.run_folder(parent)
    return Request(
        plan=plan,
        optimisation=run.optimisation,
        emulator=run.emulator,
        jobs=run.jobs,
        seed=drawn_unless(run.seed, seed),
        install=may_install(run.install, offline=run.offline),
        known=run.known,
        run=folder,
        allocator=run.allocator,
        environment=run.environment,
        memory_order=run.memory_order,
        io=run.io,
        **msgspec.structs.asdict(check),
    )


def _check(bench: Workbench, request: Request) -> Judged:
    return check_workflow.Check(bench, request).run()


def carry_out(
    bench: Workbench,
    request: Request,
    run: RunOptions,
    *,
    annotations: str | None,
    work: Work = _check,
    parent: Path = RUNS,
    spread: Spread | None = None,
) -> ExitCode:
    """Run a request, write and show its report, and remove old runs of `parent`."""
    where = spread or Spread()
    # A campaign's jobs run on other machines, and each has its own run folder.
    meter = contextlib.nullcontext() if where.on else metered(bench, request.run, profiled=request.profiled)
    with meter:
        with unless_empty(request.run):
            judgement, code = where.work(work)(bench, request)
        formats.write(request.run, judgement, formats=where.formats)
    output.show(judgement, as_json=run.as_json)
    output.annotate(request.run, judgement, annotations)
    run.forget_old_runs(parent)
    return code


FLAME_GRAPH = "processor-time.svg"
"""The file of a profiled run that shows where its processor time went."""


def carry_out_profiled(bench: Workbench, request: Request, run: RunOptions, *, parent: Path = RUNS) -> RunRecord:
    """Run a request to measure its cost, regardless of its verdict. Writes its report and a flame graph, but shows
    neither.
    """
    with metered(bench, request.run, profiled=True):
        with unless_empty(request.run):
            judgement, _ = _check(bench, request)
        formats.write(request.run, judgement)
    (request.run / FLAME_GRAPH).write_text(formats.render(request.run, judgement, "flame-graph"), "utf-8")
    run.forget_old_runs(parent)
    return run_folder.read_run(request.run)


@contextlib.contextmanager
def unless_empty(folder: Path) -> Iterator[None]:
    """Remove the run folder in the end if nothing was written to it."""
    try:
        yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
