"""Commands that measure kernels and Plumbline itself: plumb bench, fixup-cost, compare-tiers."""

from __future__ import annotations

from pathlib import Path

import click

from harness.build import host_packages
from harness.build.sources import server_tree
from harness.cli import options, output
from harness.cli.parameters import completion
from harness.cli.run_command import FLAME_GRAPH, carry_out_profiled, planned_request
from harness.cli.run_options import RunOptions, may_install
from harness.core.errors import ExitCode, UsageError
from harness.isa import rules
from harness.plan.plan import make_plan
from harness.plan.request import CheckSettings
from harness.record import run_cost
from harness.report.formats import processor_time
from harness.workflows import target_setup
from harness.workflows.measure import fixup_cost as fixup_cost_workflow
from harness.workflows.measure import fixup_cost_run, overhead, overhead_run, tier_agreement
from harness.workflows.workbench import Workbench

BENCH_SEED = 1


@click.command()
@options.target
@options.server
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of interleaved rounds; the median counts.",
)
@click.option(
    "--harness",
    "of_harness",
    is_flag=True,
    help="Run a quick check instead, and show where its processor time and memory go, in a table and a flame graph.",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    help="With --harness: suite or glob; repeat for more. Default: the quick tier's.",
    shell_complete=completion.suites,
)
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    default=None,
    help="With --harness: the run folder, new or empty.  [default: runs/TIME]",
)
@options.as_json
def bench(
    targets: tuple[str, ...],
    server: str,
    rounds: int,
    *,
    of_harness: bool,
    suites: tuple[str, ...],
    folder: Path | None,
    as_json: bool,
) -> ExitCode:
    """Measure what enforcement and delayed stores cost.

    The costs are throughput and memory, relative to the same QEMU without checks; audit and coverage count, too. With
    --harness, the command measures the cost of a quick check, whatever its verdict.
    """
    if of_harness:
        return _bench_harness(targets, server, suites, folder, as_json=as_json)
    if given := [option for option, value in {"--suite": suites, "--run": folder}.items() if value]:
        raise UsageError(f"{given[0]} has no effect here", where=given[0], remedy=f"--harness {given[0]} …")
    workbench = Workbench.default()
    costs = overhead_run.measure_costs(workbench, workbench.catalog.select_targets(targets), server, rounds=rounds)
    if as_json:
        output.print_json(costs)
    else:
        click.echo(overhead.text_of(costs))
    return ExitCode.PASS


def _bench_harness(
    targets: tuple[str, ...], server: str, suites: tuple[str, ...], folder: Path | None, *, as_json: bool
) -> ExitCode:
    """A quick check with a profile, always with the same seed, so that two measurements cover the same work."""
    run = RunOptions.usual(folder=folder, seed=BENCH_SEED)
    workbench = run.workbench()
    plan = make_plan(workbench.catalog, targets=targets, server=server, suites=suites, tier="quick")
    check = CheckSettings(server=server, tier="quick", policy="signal", profiled=True)
    request = planned_request(workbench.catalog, run, plan, check)
    record = carry_out_profiled(workbench, request, run)
    if as_json:
        cost = run_cost.read(request.run)
        output.print_json({"run": str(request.run), "suites": processor_time.suites(request.run, record), "cost": cost})
    else:
        click.echo(processor_time.render(request.run, record))
        click.echo(f"flame graph: {request.run / FLAME_GRAPH}")
    return ExitCode.PASS


@click.command("compare-tiers")
@options.kernel_target
@options.board
@options.offline
@options.install
@options.as_json
def compare_tiers(
    targets: tuple[str, ...],
    board: Path | None,
    offline: bool,
    install: bool | None,
    as_json: bool,
) -> ExitCode:
    """Compare user-mode emulation with real kernels.

    The comparison covers every access in its plain addressing mode, every offset and every mode of the kernel. With
    --board, that kernel is your machine's. Exit 1: there is a difference that
    harness/workflows/measure/tier_differences.toml does not explain.
    """
    bench = Workbench.default(offline=offline)
    catalog = bench.catalog
    described = bench.on_board(board).board if board is not None else None
    if described is None:
        chosen = catalog.select_targets(targets)
    elif targets != options.KERNEL_TARGETS:
        because = "the board's file names its target"
        raise UsageError(
            "--target has no effect with --board", where="--target", because=because, remedy="leave it out"
        )
    else:
        chosen = [described.board.target]
    needed = host_packages.diagnose(
        catalog, [*chosen, *(rules.userland(catalog.targets[name]) for name in chosen)], emulator="pinned"
    )
    host_packages.install_missing(needed, bench.progress, install=may_install(install, offline=offline))
    if described is not None:
        rows = tier_agreement.compare_board(bench, described)
    else:
        rows = tier_agreement.compare_tiers(bench, chosen)
    unexplained = tier_agreement.unexplained(rows)
    if as_json:
        output.print_json(rows)
        return ExitCode.FINDINGS if unexplained else ExitCode.PASS
    click.echo("\n".join(tier_agreement.summary(rows, "board" if described is not None else "kernel tier")))
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        click.echo(f"\nexplained: {reason}")
    cases = sum(len(row.offsets) for row in rows)
    agreed = sum(len(row.offsets) for row in rows if row.agrees)
    explained = sum(len(row.offsets) for row in rows if row.reason)
    click.echo(
        f"\n{agreed} of {cases} agree, {explained} differ for a known reason, {len(unexplained)} rows unexplained"
    )
    for row in unexplained:
        click.echo(f"unexplained: {row.target} {row.policy} {row.access} at {row.offsets}: {row.user} / {row.kernel}")
    return ExitCode.FINDINGS if unexplained else ExitCode.PASS


@click.command("fixup-cost")
@options.kernel_target
@options.servers(*fixup_cost_run.SERVERS)
@options.optimisation
@options.offline
@options.install
@options.as_json
def fixup_cost(
    targets: tuple[str, ...],
    servers: tuple[str, ...],
    optimisation: str,
    offline: bool,
    install: bool | None,
    as_json: bool,
) -> ExitCode:
    """Measure what a kernel's alignment fixup costs.

    The figures are instruction counts: for one fixup of each kind, and for all fixups of servers under workloads.
    """
    bench = Workbench.default(offline=offline)
    catalog = bench.catalog
    chosen = catalog.select_targets(targets)
    for name in chosen:
        target_setup.kernel_target(catalog, name)
    for name in servers:
        server_tree.known_server(catalog, name)
    host_packages.install_missing(
        host_packages.diagnose(catalog, chosen, emulator="pinned"),
        bench.progress,
        install=may_install(install, offline=offline),
    )
    measured = fixup_cost_run.FixupCostMeasurement(bench, optimisation=optimisation).measure(chosen, servers)
    if as_json:
        output.print_json(measured)
    else:
        click.echo("\n".join(fixup_cost_workflow.summary(measured)))
    return ExitCode.PASS
