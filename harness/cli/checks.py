"""Commands that build a server, run it and judge it: plumb check, premerge, fuzz, audit, port."""

from __future__ import annotations

import contextlib
import functools
import random
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.build.sources import server_tree
from harness.cli import options, output
from harness.core.digests import key_of
from harness.core.errors import ExitCode, UsageError
from harness.isa import rules
from harness.judge import conclusion
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.report.formats import registry as reporting
from harness.run.cell_spec import LARGEST_SEED
from harness.workflows import check as checking
from harness.workflows import premerge as premerging
from harness.workflows.porting import survey as porting
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.cli.options import RunOptions
    from harness.core.model import CompilerWarnings, Tier
    from harness.judge.findings import Judgement
    from harness.plan.plan import Plan

    Judged = tuple[Judgement, ExitCode]
    Work = Callable[[Workbench, Request], Judged]


RUNS = Path("runs")
FUZZ_SECONDS = 600.0
UNLIMITED_SECONDS = 7 * 86400.0


@click.command()
@options.target
@options.server
@options.suite
@options.tier
@options.policy
@options.test
@options.time("In tier thorough, the time limit per target for the open-ended suite `fuzz`: 90s, 10m, 2h.")
@options.fail_fast
@options.warnings
@options.annotated
@options.run_options
def check(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    server: str,
    suites: tuple[str, ...],
    tier: Tier,
    policy: str,
    tests: tuple[str, ...],
    limit_seconds: float | None,
    fail_fast: bool,
    warnings: CompilerWarnings,
    annotations: str | None,
) -> ExitCode:
    """Build a server, run the suites and report findings."""
    if limit_seconds is not None and tier != "thorough":
        why = f"every suite of tier {tier} ends by itself"
        raise UsageError("a time limit is not possible", where="--time", because=why, remedy="--tier thorough")
    bench = Workbench.default(offline=run.offline)
    request = _request(
        bench.catalog,
        run,
        targets=targets,
        server=server,
        suites=suites,
        tier=tier,
        policy=policy,
        tests=tests,
        limit_seconds=limit_seconds,
        fail_fast=fail_fast,
        warnings=warnings,
    )
    return _carry_out(bench, request, run, annotations=annotations)


@click.command()
@options.target
@options.premerge_suite
@options.policy
@click.option(
    "--server",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default=True,
    help="A server's git checkout. Uncommitted changes count as well.",
)
@click.option(
    "--since",
    metavar="REVISION",
    default="",
    help="Compare with the merge base of HEAD and this revision.  [default: the default branch of origin]",
)
@click.option("--explain", is_flag=True, help="List the suites of each changed file with the reason; run nothing.")
@options.warnings
@options.annotated
@options.run_options
def premerge(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    suites: tuple[str, ...],
    policy: str,
    server: Path,
    since: str,
    explain: bool,
    warnings: CompilerWarnings,
    annotations: str | None,
) -> ExitCode:
    """Check your change and report only new findings.

    The changed files select the suites. Findings that the base revision shows as well do not fail the check.
    """
    premerging.refuse_inside(run.folder, server)
    planned, plan = premerging.explain(
        Catalog(), server, since=since, targets=targets, suites=suites, allocator=run.allocator
    )
    if explain or not planned.suites:
        if run.as_json:
            output.print_json(planned)
        else:
            click.echo(premerging.text_of(planned) if explain else premerging.summary(planned))
        return ExitCode.PASS if explain or not planned.unchecked else ExitCode.INCONCLUSIVE
    bench = Workbench.default(offline=run.offline)
    bench.progress.say(f"BASE is {planned.base}")
    bench.progress.say(premerging.summary(planned))
    # A run folder in the checkout would be a change of it.
    parent = bench.cache.path("premerge", f"{Path(planned.server).name}-{key_of([planned.server])}")
    request = _planned_request(
        bench.catalog,
        run,
        plan,
        server=planned.server,
        tier="quick",
        policy=policy,
        warnings=warnings,
        seed=planned.seed,
        parent=parent,
    )
    work = functools.partial(premerging.run, premerge=planned)
    return _carry_out(bench, request, run, annotations=annotations, work=work, parent=parent)


@click.command()
@options.target
@options.server
@options.policy
@options.test
@options.time("Time limit per target: 90s, 10m, 2h.  [default: 10m, or no limit with --count]")
@click.option("--count", "limit_count", type=click.IntRange(1), default=None, help="Largest number of streams to try.")
@options.fail_fast
@options.warnings
@options.annotated
@options.run_options
def fuzz(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    server: str,
    policy: str,
    tests: tuple[str, ...],
    limit_seconds: float | None,
    limit_count: int | None,
    fail_fast: bool,
    warnings: CompilerWarnings,
    annotations: str | None,
) -> ExitCode:
    """Send random command streams, guided by coverage.

    This is a check of the suite `fuzz` alone. What it learns stays in the cache, and the next run begins with it.
    """
    if limit_seconds is None:
        limit_seconds = FUZZ_SECONDS if limit_count is None else UNLIMITED_SECONDS
    bench = Workbench.default(offline=run.offline)
    request = _request(
        bench.catalog,
        run,
        targets=targets,
        server=server,
        suites=tuple(name for name, suite in bench.catalog.suites.items() if suite.guided),
        tier="thorough",
        policy=policy,
        tests=tests,
        limit_seconds=limit_seconds,
        limit_count=limit_count,
        learns=True,
        fail_fast=fail_fast,
        warnings=warnings,
    )
    return _carry_out(bench, request, run, annotations=annotations)


@click.command()
@options.target
@options.server
@options.suite
@options.tier
@options.policy
@options.test
@options.fail_fast
@options.warnings
@options.annotated
@options.run_options
def audit(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    server: str,
    suites: tuple[str, ...],
    tier: Tier,
    policy: str,
    tests: tuple[str, ...],
    fail_fast: bool,
    warnings: CompilerWarnings,
    annotations: str | None,
) -> ExitCode:
    """List every misaligned access that the suites reach.

    Each site is listed with its count. Nothing is enforced: a misaligned access is reported and succeeds.
    """
    bench = Workbench.default(offline=run.offline)
    request = _request(
        bench.catalog,
        run,
        targets=targets,
        server=server,
        suites=suites,
        tier=tier,
        policy=rules.audit_name(policy),
        tests=tests,
        fail_fast=fail_fast,
        warnings=warnings,
    )
    return _carry_out(bench, request, run, annotations=annotations)


@click.command()
@options.target
@options.server
@options.suite
@options.tier
@options.fail_fast
@options.run_options
def port(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    server: str,
    suites: tuple[str, ...],
    tier: Tier,
    fail_fast: bool,
) -> ExitCode:
    """Report what a source tree needs to run on a target.

    The report covers the build, the start, misaligned accesses and wrong bytes, and says what to fix first.
    """
    bench = Workbench.default(offline=run.offline)
    porting.portable_targets(bench.catalog, targets)
    request = _request(
        bench.catalog,
        run,
        targets=targets,
        server=server,
        suites=suites,
        tier=tier,
        policy=porting.AUDITED_POLICY,
        fail_fast=fail_fast,
        # The report has a section of its own for them.
        warnings="off",
    )
    with _unless_empty(request.run):
        report, judgement = porting.make_report(bench, request)
    reporting.write(request.run, judgement)
    written = porting.write(request.run, report, judgement)
    if run.as_json:
        output.print_json(report)
    else:
        click.echo(written[1].read_text("utf-8"), nl=False)
        click.echo(f"\n{written[2]}", err=True)
    if run.folder is None:
        conclusion.forget_runs(RUNS, keep=run.keep)
    return {"FAIL": ExitCode.FINDINGS, "UNKNOWN": ExitCode.INCONCLUSIVE}.get(report.verdict, ExitCode.PASS)


def _request(
    catalog: Catalog,
    run: RunOptions,
    *,
    targets: Sequence[str],
    server: str,
    suites: Sequence[str],
    tier: Tier,
    policy: str,
    warnings: CompilerWarnings,
    tests: Sequence[str] = (),
    limit_seconds: float | None = None,
    limit_count: int | None = None,
    learns: bool = False,
    fail_fast: bool = False,
) -> Request:
    """The request of a run whose targets and suites the user selects."""
    return _planned_request(
        catalog,
        run,
        make_plan(catalog, targets=targets, server=server, suites=suites, tier=tier),
        server=server,
        tier=tier,
        policy=policy,
        warnings=warnings,
        tests=tests,
        limit_seconds=limit_seconds,
        limit_count=limit_count,
        learns=learns,
        fail_fast=fail_fast,
    )


def _planned_request(
    catalog: Catalog,
    run: RunOptions,
    plan: Plan,
    *,
    server: str,
    tier: Tier,
    policy: str,
    warnings: CompilerWarnings,
    tests: Sequence[str] = (),
    limit_seconds: float | None = None,
    limit_count: int | None = None,
    learns: bool = False,
    fail_fast: bool = False,
    seed: int | None = None,
    parent: Path = RUNS,
) -> Request:
    """A run's request, checked before any work is done, with an empty run folder and a seed.

    `seed` is used where the command line gives none; without either it is drawn.
    """
    server_tree.known_server(catalog, server)
    folder = conclusion.empty_run_folder(run.folder) if run.folder else conclusion.new_run_folder(parent)
    seeds = (run.seed, seed, random.randint(0, LARGEST_SEED))
    return Request(
        plan=plan,
        server=server,
        tier=tier,
        policy=policy,
        optimisation=run.optimisation,
        emulator=run.emulator,
        jobs=run.jobs,
        seed=next(candidate for candidate in seeds if candidate is not None),
        install=options.may_install(run.install),
        known=run.known,
        run=folder,
        allocator=run.allocator,
        fail_fast=fail_fast,
        tests=list(tests),
        limit_seconds=limit_seconds,
        limit_count=limit_count,
        warnings=warnings,
        learns=learns,
    )


def _check(bench: Workbench, request: Request) -> Judged:
    return checking.Check(bench, request).run()


def _carry_out(
    bench: Workbench,
    request: Request,
    run: RunOptions,
    *,
    annotations: str | None,
    work: Work = _check,
    parent: Path = RUNS,
) -> ExitCode:
    """Run a request, write and show its report, and remove old runs of `parent`."""
    with _unless_empty(request.run):
        judgement, code = work(bench, request)
    reporting.write(request.run, judgement)
    output.show(judgement, as_json=run.as_json)
    output.annotate(request.run, judgement, annotations)
    if run.folder is None:
        conclusion.forget_runs(parent, keep=run.keep)
    return code


@contextlib.contextmanager
def _unless_empty(folder: Path) -> Iterator[None]:
    """Remove the run folder in the end if nothing was written to it."""
    try:
        yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
