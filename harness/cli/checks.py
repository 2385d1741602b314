"""Commands that run suites and report findings, here or on many machines: plumb check, fuzz, audit, campaign."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from harness.cli import options, output
from harness.cli.run_command import Spread, carry_out, planned_request
from harness.cli.run_options import run_options
from harness.core.errors import ExitCode, UsageError
from harness.core.model import BuildSettings
from harness.core.progress import Progress
from harness.isa import rules
from harness.plan.catalog import DEFAULT_TARGETS
from harness.plan.plan import make_plan
from harness.plan.request import CheckSettings
from harness.workflows.boards.board_counters import refuse_uncounted
from harness.workflows.campaign import campaign_page, campaign_status
from harness.workflows.campaign.campaign_folder import CampaignFolder
from harness.workflows.campaign.engine.cluster import is_loopback, make_keys, read_file, require_engine
from harness.workflows.campaign.engine.engine_process import EngineSettings
from harness.workflows.campaign.engine.local_machines import EngineProcess
from harness.workflows.campaign.version import harness_version

if TYPE_CHECKING:
    from harness.cli.run_options import RunOptions
    from harness.core.model import CompilerWarnings, Everywhere, Tier, Transport
    from harness.plan.catalog import Catalog
    from harness.plan.plan import Plan
    from harness.workflows.workbench import Workbench

FUZZ_SECONDS = 600.0
UNLIMITED_SECONDS = 7 * 86400.0


@click.command()
@options.target
@options.board
@options.flush
@options.server
@options.suite
@options.tier
@options.policy
@options.test
@options.time("In tier thorough, the time limit per target for the open-ended suite `fuzz`: 90s, 10m, 2h.")
@options.mixed
@options.target_clients
@options.fail_fast
@options.warnings
@options.everywhere
@options.cflags
@options.make_variables
@options.annotated
@options.on
@options.insecure
@run_options
def check(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    board: Path | None,
    flush: bool,
    server: str,
    suites: tuple[str, ...],
    tier: Tier,
    policy: str,
    tests: tuple[str, ...],
    limit_seconds: float | None,
    mixed: bool,
    target_clients: bool,
    fail_fast: bool,
    warnings: CompilerWarnings,
    everywhere: Everywhere,
    cflags: tuple[str, ...],
    make_variables: tuple[str, ...],
    annotations: str | None,
    on: str,
    insecure: bool,
) -> ExitCode:
    """Build a server, run the suites and report findings."""
    if limit_seconds is not None and tier != "thorough":
        why = f"no suite of tier {tier} is open-ended"
        raise UsageError("a time limit is not possible", where="--time", because=why, remedy="--tier thorough")
    bench, targets = _bench_and_targets(run, targets, board, on, flush=flush, insecure=insecure)
    plan = make_plan(bench.catalog, targets=targets, server=server, suites=suites, tier=tier)
    _refuse_unused(bench.catalog, plan, mixed=mixed, target_clients=target_clients)
    _refuse_unused_io(bench.catalog, plan, run.io)
    return _run(
        bench,
        run,
        plan,
        CheckSettings(
            server=server,
            tier=tier,
            policy=policy,
            tests=list(tests),
            limit_seconds=limit_seconds,
            mixed=mixed,
            target_clients=target_clients,
            fail_fast=fail_fast,
            warnings=warnings,
            everywhere=everywhere,
            settings=BuildSettings(cflags=cflags, make=make_variables),
        ),
        Spread(on=on, insecure=insecure),
        annotations,
    )


def _run(
    bench: Workbench, run: RunOptions, plan: Plan, check: CheckSettings, spread: Spread, annotations: str | None
) -> ExitCode:
    """Run a check here or on other machines, and show its report."""
    request = planned_request(bench.catalog, run, plan, check, spread=spread)
    return carry_out(bench, request, run, annotations=annotations, spread=spread)


def _bench_and_targets(
    run: RunOptions,
    targets: tuple[str, ...],
    board: Path | None,
    on: str,
    *,
    flush: bool = False,
    insecure: bool = False,
) -> tuple[Workbench, tuple[str, ...]]:
    """The workbench of a run, and the targets that are asked for: with a board, the board's own.

    Raises UsageError for a server that runs already, if its keys may not be deleted, or it is on a network.
    """
    bench = run.workbench()
    if board is None:
        if flush:
            raise UsageError("--flush has no effect without --board", where="--flush", remedy="leave it out")
        return bench, targets
    _refuse_beside_board(run, targets, on)
    bench = bench.on_board(board)
    assert bench.board is not None
    described = bench.board.board
    if described.runs_already and not flush:
        because = "the suites delete all keys of the server that runs there"
        raise UsageError("a server would be emptied", where=str(board), because=because, remedy="--flush allows that")
    if flush and not described.runs_already:
        because = "Plumbline starts the servers there"
        raise UsageError("--flush has no effect", where=str(board), because=because, remedy="leave it out")
    host = described.address.rpartition(":")[0]
    if host and not insecure and not is_loopback(host):
        because = "requests to an address are not encrypted"
        raise UsageError(
            "no way of ssh leads to the server", where=f"{board}: address", because=because, remedy="--insecure"
        )
    return bench, (described.target,)


def _refuse_beside_board(run: RunOptions, targets: tuple[str, ...], on: str) -> None:
    """Raise UsageError for an option that a board makes meaningless."""
    given = {
        "--target": (targets != DEFAULT_TARGETS, "the board's file names its target"),
        "--on": (bool(on), "a campaign's machines cannot reach the board in this machine's way"),
        "--emulator": (run.emulator != "pinned", "no emulator runs the board's programs"),
    }
    for option, (is_given, because) in given.items():
        if is_given:
            raise UsageError(
                f"{option} has no effect with --board", where=option, because=because, remedy="leave it out"
            )


def _refuse_unused(catalog: Catalog, plan: Plan, *, mixed: bool, target_clients: bool) -> None:
    """Raise UsageError for an option of the release's own tests that would have no effect."""
    option = "--mixed" if mixed else "--target-clients" if target_clients else ""
    own = [name for name, suite in catalog.suites.items() if suite.upstream]
    if option and not set(own) & set(plan.suites):
        raise UsageError(
            f"{option} has no effect here",
            where=option,
            because="no selected suite runs the release's own tests",
            remedy=f"--suite {own[0]}, or --tier full",
        )
    if mixed and len(plan.targets) < 2:
        raise UsageError(
            "servers of one target cannot be mixed",
            where="--mixed",
            because=f"the only target is {plan.targets[0]}",
            remedy="--target required",
        )


def _refuse_unused_io(catalog: Catalog, plan: Plan, io: Transport) -> None:
    """Raise UsageError if no selected server supports a choice of transport."""
    suites = [catalog.suites[name] for name in plan.suites]
    servers = any(suite.needs_server and not suite.program for suite in suites)
    chosen = any(not catalog.targets[name].emulator.is_elsewhere for name in plan.targets)
    if io == "unix" or (servers and chosen):
        return
    raise UsageError(
        f"--io {io} has no effect here",
        where="--io",
        because="the way to servers on another machine is fixed" if servers else "no selected suite runs a server",
        remedy="leave it out",
    )


@click.command()
@options.target
@options.board
@options.flush
@options.server
@options.policy
@options.test
@options.time("Time limit per target: 90s, 10m, 2h.  [default: 10m, or no limit with --count]")
@click.option("--count", "limit_count", type=click.IntRange(1), default=None, help="Maximum number of streams to try.")
@click.option(
    "--corpus",
    "corpora",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    default=None,
    help="Folder of the streams to start with and to add to.  [default: in the cache]",
)
@options.fail_fast
@options.warnings
@options.annotated
@options.on
@options.insecure
@run_options
def fuzz(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    board: Path | None,
    flush: bool,
    server: str,
    policy: str,
    tests: tuple[str, ...],
    limit_seconds: float | None,
    limit_count: int | None,
    corpora: Path | None,
    fail_fast: bool,
    warnings: CompilerWarnings,
    annotations: str | None,
    on: str,
    insecure: bool,
) -> ExitCode:
    """Send random command streams, guided by coverage.

    This is a check with only the suite `fuzz`. The next run starts with the streams that this one keeps.
    """
    if limit_seconds is None:
        limit_seconds = FUZZ_SECONDS if limit_count is None else UNLIMITED_SECONDS
    bench, targets = _bench_and_targets(run, targets, board, on, flush=flush, insecure=insecure)
    return _run(
        bench,
        run,
        make_plan(
            bench.catalog,
            targets=targets,
            server=server,
            suites=tuple(name for name, suite in bench.catalog.suites.items() if suite.guided),
            tier="thorough",
        ),
        CheckSettings(
            server=server,
            tier="thorough",
            policy=policy,
            tests=list(tests),
            limit_seconds=limit_seconds,
            limit_count=limit_count,
            learns=True,
            corpora=corpora,
            fail_fast=fail_fast,
            warnings=warnings,
        ),
        Spread(on=on, insecure=insecure),
        annotations,
    )


@click.command()
@options.target
@options.board
@options.server
@options.suite
@options.tier
@options.policy
@options.test
@options.fail_fast
@options.warnings
@options.everywhere
@options.annotated
@options.on
@options.insecure
@run_options
def audit(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    board: Path | None,
    server: str,
    suites: tuple[str, ...],
    tier: Tier,
    policy: str,
    tests: tuple[str, ...],
    fail_fast: bool,
    warnings: CompilerWarnings,
    everywhere: Everywhere,
    annotations: str | None,
    on: str,
    insecure: bool,
) -> ExitCode:
    """List every misaligned access that the suites reach.

    Each site is listed with its count. Nothing is enforced: a misaligned access is reported and succeeds. With --board,
    the machine's kernel repairs the accesses and counts them, test by test.
    """
    bench, targets = _bench_and_targets(run, targets, board, on)
    chosen = rules.audit_name(policy)
    if bench.board is not None:
        chosen = rules.counted_policy(bench.catalog.policies, policy)
        refuse_uncounted(bench.board)
    return _run(
        bench,
        run,
        make_plan(bench.catalog, targets=targets, server=server, suites=suites, tier=tier),
        CheckSettings(
            server=server,
            tier=tier,
            policy=chosen,
            tests=list(tests),
            fail_fast=fail_fast,
            warnings=warnings,
            everywhere=everywhere,
        ),
        Spread(on=on, insecure=insecure),
        annotations,
    )


cluster_file = click.argument("file", metavar="CLUSTER.toml", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def campaign() -> None:
    """Spread checks over many machines and follow them."""


@campaign.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--page", is_flag=True, help="Rewrite campaign.html and print its path.")
@options.as_json
def status(folder: Path, *, page: bool, as_json: bool) -> ExitCode:
    """Show the progress and the findings of a campaign.

    FOLDER is the run folder of a check with --on. The command works while the campaign runs, on any machine that can
    read the folder. It exits with 0 whatever it shows.
    """
    stored = CampaignFolder.read(folder)
    if page:
        click.echo(campaign_page.PageWriter(stored).write())
        return ExitCode.PASS
    found = campaign_status.status_of(stored)
    if as_json:
        output.print_json(found)
    else:
        click.echo("\n".join(campaign_status.lines_of(found)))
    return ExitCode.PASS


@campaign.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def keys(folder: Path) -> ExitCode:
    """Make the key and certificate of a cluster.

    Copy the folder to every machine of the cluster. Anyone who has it can run programs on all of them.
    """
    make_keys(folder)
    click.echo(f"{folder}: name it in the cluster's file (keys = …), and copy it to every machine of the cluster")
    return ExitCode.PASS


@campaign.command()
@cluster_file
@options.insecure
@click.option(
    "--dashboard",
    default="",
    metavar="HOST:PORT",
    help="Serve Dask's dashboard, which has no password, at this address.",
)
def scheduler(file: Path, *, insecure: bool, dashboard: str) -> ExitCode:
    """Run a cluster's scheduler until stopped.

    The scheduler keeps no state: campaigns submit lost jobs again. If it crashes, it is restarted.
    """
    require_engine()
    if dashboard and not insecure and not is_loopback(dashboard.rpartition(":")[0].strip("[]")):
        raise UsageError(
            "the dashboard would be on a network without a password",
            where=f"--dashboard {dashboard}",
            remedy="--dashboard 127.0.0.1:8787 and a tunnel of ssh, or --insecure",
        )
    read = read_file(file, insecure=insecure)
    _attend(EngineSettings(role="scheduler", cluster=read, dashboard=dashboard))


@campaign.command()
@cluster_file
@options.insecure
@click.option(
    "--cells",
    type=click.IntRange(1, 1024),
    default=os.cpu_count() or 1,
    show_default="processors",
    help="Number of cells to run at a time.",
)
@click.option("--name", default="", help="The worker's name in reports.  [default: the machine's]")
@click.option(
    "--scratch",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="Where run folders are written.  [default: the folder for temporary files]",
)
def worker(file: Path, *, insecure: bool, cells: int, name: str, scratch: Path | None) -> ExitCode:
    """Run a cluster's jobs on this host until stopped.

    The worker waits until its scheduler is available, and reconnects if the connection breaks.
    """
    require_engine()
    read = read_file(file, insecure=insecure)
    Progress().say(f"Plumbline {harness_version()}, {cells} cells at a time, scheduler {read.address}")
    shown = name or os.uname().nodename
    place = str(scratch.resolve()) if scratch else ""
    _attend(EngineSettings(role="worker", cluster=read, cells=cells, name=shown, scratch=place))


def _attend(settings: EngineSettings) -> NoReturn:
    """Keep a process of the engine running, and show its log on standard error."""
    with tempfile.TemporaryDirectory(prefix="engine-") as private:
        one = EngineProcess(Path(private), settings, name=settings.role)
        one.attend(lambda new: click.echo(new.decode("utf-8", "replace"), err=True, nl=False))
