"""What builds, runs and judges: plumb check, audit, fuzz, premerge, port."""

from __future__ import annotations

import contextlib
import functools
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.build.sources import server_tree
from harness.cli import options, output
from harness.cli.options import may_install
from harness.core import json_codec
from harness.core.cache import Cache, key_of
from harness.core.errors import ExitCode, UsageError
from harness.core.progress import Progress
from harness.isa import rules
from harness.judge import conclusion
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.report import formats as reporting
from harness.run.cell_spec import LARGEST_SEED
from harness.workflows import check as checking
from harness.workflows import premerge as premerging
from harness.workflows.porting import survey as porting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.judge.findings import Judgement

    Judged = tuple[Judgement, ExitCode]
    Work = Callable[[Catalog, Cache, Progress, Request], Judged]


RUNS = Path("runs")
FUZZ_SECONDS = 600.0
UNLIMITED_SECONDS = 7 * 86400.0


@click.command()
@options.run_options
@options.policy
@options.test
@options.time("Tier thorough: how long a suite without an end, `fuzz`, goes on for each target: 90s, 10m, 2h.")
def check(tier: str, limit_seconds: float | None, **options: Any) -> ExitCode:
    """Build a server, run the suites and report findings."""
    if limit_seconds is not None and tier != "thorough":
        why = f"in tier {tier} every suite has an end of its own"
        raise UsageError("no time to be given", where="--time", because=why, remedy="--tier thorough")
    return _make_run(tier=tier, limit_seconds=limit_seconds, **options)


@click.command()
@options.run_options
@options.policy
@options.test
def audit(policy: str, **options: Any) -> ExitCode:
    """List every misaligned access that the suites reach.

    Each site is listed with its count. Nothing is enforced: a misaligned access is reported and succeeds.
    """
    return _make_run(policy=rules.audit_name(policy), **options)


@click.command()
@options.fuzz_options
@options.policy
@options.time("How long to fuzz each target: 90s, 10m, 2h.  [default: 10m, or no limit with --count]")
@click.option("--count", "limit_count", type=click.IntRange(1), default=None, help="How many streams to try at most.")
def fuzz(limit_seconds: float | None, limit_count: int | None, **options: Any) -> ExitCode:
    """Send random command streams, guided by coverage.

    This is a check of the suite `fuzz` alone. What it learns stays in the cache, and the next run begins with it.
    """
    if limit_seconds is None:
        limit_seconds = FUZZ_SECONDS if limit_count is None else UNLIMITED_SECONDS
    return _make_run(
        suites=("fuzz",),
        tier="thorough",
        limit_seconds=limit_seconds,
        limit_count=limit_count,
        learns=True,
        **options,
    )


@click.command()
@options.premerge_options
@options.policy
@click.option(
    "--server",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default=True,
    help="A server's git checkout; what is not committed yet counts too.",
)
@click.option(
    "--since",
    metavar="REVISION",
    default="",
    help="Compare with where HEAD left this one.  [default: the default branch of origin]",
)
@click.option("--explain", is_flag=True, help="Tell the suites of each changed file, and why; run nothing.")
def premerge(
    server: Path, since: str, explain: bool, suites: tuple[str, ...], run_folder: Path | None, **options: Any
) -> ExitCode:
    """Check your change and report only new findings.

    The changed files select the suites. Findings that the base revision shows as well do not fail the check.
    """
    catalog, progress = Catalog(), Progress()
    premerging.refuse_inside(run_folder, server)
    planned = premerging.explain(
        catalog, server, since=since, targets=options["targets"], suites=suites, allocator=options["allocator"]
    )
    if explain or not planned.suites:
        if options["as_json"]:
            output.print_json(planned)
        else:
            click.echo(premerging.text_of(planned) if explain else premerging.summary(planned))
        return ExitCode.PASS if explain or not planned.unchecked else ExitCode.INCONCLUSIVE
    progress.say(f"BASE is {planned.base}")
    progress.say(premerging.summary(planned))
    seed = options.pop("seed")
    return _make_run(
        work=functools.partial(premerging.run, premerge=planned),
        progress=progress,
        # In the checkout, runs would be changes.
        parent=Cache.default().path("premerge", f"{Path(planned.server).name}-{key_of([planned.server])}"),
        server=planned.server,
        suites=planned.suites,
        tier="quick",
        seed=planned.seed if seed is None else seed,
        run_folder=run_folder,
        **options,
    )


@click.command()
@options.port_options
def port(run_folder: Path | None, keep: int, as_json: bool, **options: Any) -> ExitCode:
    """Report what a source tree needs to run on a target.

    The report covers the build, the start, misaligned accesses and wrong bytes, and says what to fix first.
    """
    catalog = Catalog()
    porting.portable_targets(catalog, options["targets"])
    request = _requested(catalog, run_folder, policy=porting.AUDITED_POLICY, warnings="off", **options)
    with _unless_empty(request.run):
        report, judgement = porting.make_report(catalog, Cache.default(), Progress(), request)
    reporting.write(request.run, judgement)
    written = porting.write(request.run, report, judgement)
    if as_json:
        output.print_json(report)
    else:
        click.echo(written[1].read_text("utf-8"), nl=False)
        click.echo(f"\n{written[2]}", err=True)
    if run_folder is None:
        conclusion.forget_runs(RUNS, keep=keep)
    return {"FAIL": ExitCode.FINDINGS, "UNKNOWN": ExitCode.INCONCLUSIVE}.get(report.verdict, ExitCode.PASS)


def _check(catalog: Catalog, store: Cache, progress: Progress, request: Request) -> Judged:
    return checking.Check(catalog, store, progress, request).run()


def _make_run(
    *,
    run_folder: Path | None,
    keep: int,
    annotations: str | None,
    as_json: bool,
    work: Work = _check,
    progress: Progress | None = None,
    parent: Path = RUNS,
    **options: Any,
) -> ExitCode:
    catalog = Catalog()
    request = _requested(catalog, run_folder, parent=parent, **options)
    folder = request.run
    with _unless_empty(folder):
        judgement, code = work(catalog, Cache.default(), progress or Progress(), request)
    reporting.write(folder, judgement)
    output.show(judgement, as_json=as_json)
    output.annotate(folder, judgement, annotations)
    if run_folder is None:
        conclusion.forget_runs(parent, keep=keep)
    return code


@contextlib.contextmanager
def _unless_empty(folder: Path) -> Iterator[None]:
    """Keep a run folder, unless nothing came of it."""
    try:
        yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _requested(catalog: Catalog, run_folder: Path | None, *, parent: Path = RUNS, **options: Any) -> Request:
    """What a run is asked for, checked before any work is done, with a folder and a seed."""
    make_plan(
        catalog,
        targets=options["targets"],
        server=options["server"],
        suites=options["suites"],
        tier=options["tier"],
    )
    server_tree.known_server(catalog, options["server"])
    folder = conclusion.empty_run_folder(run_folder) if run_folder else conclusion.new_run_folder(parent)
    seed = options.pop("seed")
    asked = {
        **options,
        "seed": random.randint(0, LARGEST_SEED) if seed is None else seed,
        "install": may_install(options["install"]),
        "run": folder,
    }
    return json_codec.convert(asked, Request)
