"""The command that measures and compares what servers cost: plumb measure."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.build import host_packages
from harness.build.sources import server_tree
from harness.cli import options, output
from harness.cli.measures import campaign_option
from harness.cli.parameters import completion, value_types
from harness.cli.run_options import may_install, workbench
from harness.core.cache import disk_errors
from harness.core.errors import ExitCode, UsageError
from harness.plan.catalog import DEFAULT_SERVER
from harness.plan.name_selection import select
from harness.workflows.campaign import spread as campaign_spread
from harness.workflows.campaign.job import SERVER
from harness.workflows.measure import (
    cost_comparison,
    server_cost_page,
    server_cost_run,
    server_cost_tables,
)
from harness.workflows.measure.cost_document import Measurement, join, part_in

if TYPE_CHECKING:
    from harness.core.model import Allocator
    from harness.workflows.workbench import Workbench

DEFAULT_WORKLOADS = ("pi-[1-4]-*", "pi-get*")
"""The published tests of a Raspberry Pi, and GET."""


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
    help="Number of rounds, each on a server of its own; the median counts.",
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
    exceeds that of --against by more than --limit. Exit 6: a count is not repeatable, or the server does not work.
    """
    _check_together(servers, against, page)
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
    allowed = may_install(install, offline=offline)
    if on:
        place = campaign_option.new_folder(folder)
        measured = _measured_on(bench, request, place, on=on, insecure=insecure, install=allowed)
    else:
        campaign_option.refuse_folder(folder)
        measured = _measured_here(bench, request, install=allowed)
    if page is not None:
        with disk_errors(page):
            page.write_text(server_cost_page.page(measured), "utf-8")
    if as_json:
        output.print_json(measured)
    else:
        click.echo("\n".join(server_cost_tables.summary(measured)))
    return cost_comparison.exit_code(measured)


def _check_together(servers: tuple[str, ...], against: str, page: Path | None) -> None:
    """Raise UsageError for options that do not fit together, and for a page in no folder."""
    if against and len(servers) > 1:
        raise UsageError(
            f"--against compares one server, not {len(servers)}",
            where="--server",
            remedy="one --server with --against; or several without it, for a table and a chart of them",
        )
    if page is not None and not page.parent.is_dir():
        raise UsageError(
            "there is no such folder", where=f"--html {page}", remedy=f"mkdir --parents {shlex.quote(str(page.parent))}"
        )


def _measured_here(bench: Workbench, request: server_cost_run.CostRequest, *, install: bool) -> Measurement:
    """A measurement in this process, once what it needs is installed."""
    needed = host_packages.diagnose(bench.catalog, request.targets, emulator="pinned", counts=True)
    host_packages.install_missing(needed, bench.progress, install=install)
    return server_cost_run.measure(bench, request)


def _measured_on(
    bench: Workbench,
    request: server_cost_run.CostRequest,
    folder: Path,
    *,
    on: str,
    insecure: bool,
    install: bool,
) -> Measurement:
    """A measurement with one job for each target and workload."""
    paths = [name for name in filter(None, (*request.servers, request.against)) if name not in bench.catalog.servers]
    if len(paths) > 1:
        raise UsageError(
            "workers can receive the source of only one server",
            where="--on",
            because=f"{' and '.join(paths)} are paths",
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
    places = {
        f"{target}-{workload.name}": (target, workload.name)
        for target in request.targets
        for workload in request.workloads
    }
    reports = campaign_spread.commands_on(
        bench.progress,
        {
            name: ["measure", "--target", target, "--workload", workload, *common]
            for name, (target, workload) in places.items()
        },
        folder,
        on=on,
        insecure=insecure,
        expected_seconds=server_cost_run.SECONDS * len(request.servers),
        command=sys.argv[1:],
        tree=campaign_spread.packed_tree(bench, paths[0]) if paths else (b"", ""),
        read_document=lambda name, document: part_in(document, name, *places[name]),
    )
    parts = [part_in(report.output, name, *places[name]) for name, report in reports.items()]
    return join(parts, limit=request.limit)
