"""Commands that measure servers, kernels and Plumbline: plumb bench, measure, fixup-cost, compare-tiers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.build import host_packages
from harness.build.sources import server_tree
from harness.cli import options, output
from harness.cli.measures import campaign_option
from harness.cli.parameters import completion, value_types
from harness.cli.run_command import FLAME_GRAPH, carry_out_profiled, planned_request
from harness.cli.run_options import RunOptions, may_install, workbench
from harness.core import json_codec
from harness.core.cache import disk_errors
from harness.core.errors import ExitCode, UsageError
from harness.isa import rules
from harness.plan.catalog import DEFAULT_SERVER
from harness.plan.name_selection import select
from harness.plan.plan import make_plan
from harness.record import run_cost
from harness.report.formats import processor_time
from harness.workflows import target_setup
from harness.workflows.campaign import spread as campaign_spread
from harness.workflows.campaign.job import SERVER
from harness.workflows.measure import fixup_cost as fixup_cost_workflow
from harness.workflows.measure import (
    fixup_cost_run,
    overhead,
    overhead_run,
    server_cost,
    server_cost_page,
    server_cost_run,
    server_cost_tables,
    tier_agreement,
)
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from harness.core.model import Allocator

BENCH_SEED = 1
DEFAULT_WORKLOADS = ("pi-[1-4]-*", "pi-get*")
"""The published tests of a Raspberry Pi, and GET."""


@click.command()
@options.target
@options.server
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Interleaved rounds; the median counts."
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
    """Measure what enforcement, audit and coverage cost.

    The costs are throughput and memory, relative to the same QEMU without checks. With --harness, the command measures
    the cost of a quick check, whatever its verdict.
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
    """A quick check with a profile, always of one seed, so that two measurements are of the same work."""
    run = RunOptions.usual(folder=folder, seed=BENCH_SEED)
    workbench = run.workbench()
    plan = make_plan(workbench.catalog, targets=targets, server=server, suites=suites, tier="quick")
    request = planned_request(
        workbench.catalog, run, plan, server=server, tier="quick", policy="signal", warnings="note", profiled=True
    )
    record = carry_out_profiled(workbench, request, run)
    if as_json:
        cost = run_cost.read(request.run)
        output.print_json({"run": str(request.run), "suites": processor_time.suites(request.run, record), "cost": cost})
    else:
        click.echo(processor_time.render(request.run, record))
        click.echo(f"flame graph: {request.run / FLAME_GRAPH}")
    return ExitCode.PASS


@click.command()
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    default=DEFAULT_WORKLOADS,
    show_default=True,
    help="Workload or glob; repeat for more.",
    shell_complete=completion.workloads,
)
@options.target
@options.servers(DEFAULT_SERVER)
@click.option(
    "--against",
    default="",
    help="Compare with this release or source tree, and name the functions that cause a difference.",
    shell_complete=completion.servers,
)
@click.option(
    "--limit",
    type=value_types.Percentage(),
    default="3%",
    show_default=True,
    help="How much a figure may exceed that of --against.",
)
@click.option(
    "--rounds",
    type=click.IntRange(server_cost_run.LEAST_ROUNDS),
    default=3,
    show_default=True,
    help="Rounds, each on a server of its own; the median counts.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Also write the figures to this file as a page, with a chart of each workload if there are several servers.",
)
@options.optimisation
@options.allocator
@options.toolchain
@options.offline
@options.install
@options.on
@options.insecure
@campaign_option.folder
@options.as_json
def measure(
    workloads: tuple[str, ...],
    targets: tuple[str, ...],
    servers: tuple[str, ...],
    against: str,
    limit: float,
    rounds: int,
    page: Path | None,
    optimisation: str,
    allocator: Allocator,
    toolchain: str,
    offline: bool,
    install: bool | None,
    on: str,
    insecure: bool,
    folder: Path | None,
    as_json: bool,
) -> ExitCode:
    """Measure and compare what servers cost in workloads.

    The figures are instructions, calls, allocations, memory and writes to files, for each request. Exit 1: a figure
    exceeds that of --against by more than --limit. Exit 6: a count does not repeat, or the server does not work.
    """
    if against and len(servers) > 1:
        raise UsageError(
            f"--against compares one server, not {len(servers)}",
            where="--server",
            remedy="one --server with --against; or several without it, for a table and a chart of them",
        )
    if page is not None and not page.parent.is_dir():
        raise UsageError("there is no such folder", where=f"--html {page}", remedy=f"mkdir --parents {page.parent}")
    bench = workbench(toolchain, offline=offline)
    catalog = bench.catalog
    chosen = catalog.select_targets(targets)
    for name in chosen:
        server_cost_run.countable_target(catalog, name)
    known = catalog.workloads
    selected = [known[name] for name in select("workload", workloads, known)]
    for name in filter(None, (*servers, against)):
        server_tree.known_server(catalog, name)
    request = server_cost_run.CostRequest(
        targets=chosen,
        workloads=selected,
        servers=servers,
        against=against,
        rounds=rounds,
        limit=limit,
        optimisation=optimisation,
        allocator=allocator,
    )
    if on:
        measured = _measured_on(
            bench, request, campaign_option.new_folder(folder), on=on, insecure=insecure, install=may_install(install)
        )
    else:
        campaign_option.refuse_folder(folder)
        host_packages.install_missing(
            host_packages.diagnose(catalog, chosen, emulator="pinned", counts=True),
            bench.progress,
            install=may_install(install),
        )
        measured = server_cost_run.measure(bench, request)
    if page is not None:
        with disk_errors(page):
            page.write_text(server_cost_page.page(measured), "utf-8")
    if as_json:
        output.print_json(measured)
    else:
        click.echo("\n".join(server_cost_tables.summary(measured)))
    return server_cost.exit_code(measured)


def _measured_on(
    bench: Workbench,
    request: server_cost_run.CostRequest,
    folder: Path,
    *,
    on: str,
    insecure: bool,
    install: bool,
) -> server_cost.Measurement:
    """A measurement whose targets and workloads are a job each."""
    paths = [name for name in filter(None, (*request.servers, request.against)) if name not in bench.catalog.servers]
    if len(paths) > 1:
        raise UsageError(
            "workers receive the source of one server", where="--on", because=f"{' and '.join(paths)} are paths"
        )

    def word(server: str) -> str:
        return SERVER if server in paths else server

    common = [each for server in request.servers for each in ("--server", word(server))]
    common += ["--against", word(request.against)] if request.against else []
    common += ["--limit", f"{100 * request.limit:f}%", "--rounds", str(request.rounds)]
    common += ["--optimisation", request.optimisation, "--allocator", request.allocator]
    common += ["--toolchain", bench.catalog.family]
    common += ["--offline"] if bench.offline else []
    common += ["--install" if install else "--no-install", "--json"]
    reports = campaign_spread.commands_on(
        bench.progress,
        {
            f"{target}-{workload.name}": ["measure", "--target", target, "--workload", workload.name, *common]
            for target in request.targets
            for workload in request.workloads
        },
        folder,
        on=on,
        insecure=insecure,
        expected_seconds=server_cost_run.SECONDS * len(request.servers),
        command=sys.argv[1:],
        tree=campaign_spread.packed_tree(bench, paths[0]) if paths else (b"", ""),
    )
    parts = [json_codec.decode(report.output.encode(), server_cost.Measurement) for report in reports.values()]
    return server_cost.join(parts, limit=request.limit)


@click.command("compare-tiers")
@options.kernel_target
@options.offline
@options.install
@options.as_json
def compare_tiers(targets: tuple[str, ...], offline: bool, install: bool | None, as_json: bool) -> ExitCode:
    """Compare user-mode emulation with real kernels.

    The comparison covers every access in its plain addressing mode, every offset and every mode of the kernel. Exit 1:
    harness/workflows/measure/tier_differences.toml does not explain a difference.
    """
    bench = Workbench.default(offline=offline)
    catalog = bench.catalog
    chosen = catalog.select_targets(targets)
    needed = host_packages.diagnose(
        catalog, [*chosen, *(rules.userland(catalog.targets[name]) for name in chosen)], emulator="pinned"
    )
    host_packages.install_missing(needed, bench.progress, install=may_install(install))
    rows = tier_agreement.compare_tiers(bench, chosen)
    unexplained = tier_agreement.unexplained(rows)
    if as_json:
        output.print_json(rows)
        return ExitCode.FINDINGS if unexplained else ExitCode.PASS
    click.echo("\n".join(tier_agreement.summary(rows)))
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

    The figures are instructions: for one fixup of each kind, and for all fixups of servers in their workloads.
    """
    bench = Workbench.default(offline=offline)
    catalog = bench.catalog
    chosen = catalog.select_targets(targets)
    for name in chosen:
        target_setup.kernel_target(catalog, name)
    for name in servers:
        server_tree.known_server(catalog, name)
    host_packages.install_missing(
        host_packages.diagnose(catalog, chosen, emulator="pinned"), bench.progress, install=may_install(install)
    )
    measured = fixup_cost_run.FixupCostMeasurement(bench, optimisation=optimisation).measure(chosen, servers)
    if as_json:
        output.print_json(measured)
    else:
        click.echo("\n".join(fixup_cost_workflow.summary(measured)))
    return ExitCode.PASS
