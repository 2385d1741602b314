"""Commands that measure Plumbline, kernels and the suites: plumb bench, fixup-cost, compare-tiers, mutate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from harness.build import host_packages
from harness.build import qemu_user as emulating
from harness.build.server_build import Builder
from harness.build.sources import server_tree
from harness.build.sources.archives import Fetcher
from harness.cli import options, output
from harness.cli.options import may_install
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.core.progress import Progress
from harness.isa import rules
from harness.plan.catalog import Catalog
from harness.workflows import target_setup
from harness.workflows.measure import fixup_cost as pricing
from harness.workflows.measure import fixup_cost_run as taxing
from harness.workflows.measure import overhead
from harness.workflows.measure import overhead_run as benchmarking
from harness.workflows.measure import tier_agreement as agreeing
from harness.workflows.mutation_testing import campaign as mutating

if TYPE_CHECKING:
    from harness.core.model import Target


@click.command()
@options.target
@options.server
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Interleaved rounds; the median counts."
)
@options.as_json
def bench(targets: tuple[str, ...], server: str, rounds: int, as_json: bool) -> ExitCode:
    """Measure what enforcement, audit and coverage cost.

    The costs are throughput and memory, relative to the same QEMU without checks.
    """
    catalog, progress, store = Catalog(), Progress(), Cache.default()
    fetcher = Fetcher(store, progress)
    emulators = emulating.Emulators(store, fetcher, progress)
    measured = [server_tree.open_server(catalog, fetcher, name) for name in (server, benchmarking.MISALIGNED_SERVER)]
    names = catalog.select_targets(targets)
    chosen = [catalog.targets[name] for name in names if catalog.targets[name].emulator.is_qemu_user]
    programs = emulators.prepare([target.emulator for target in chosen])
    builder = Builder(store, progress)
    # Compilers would be most of the noise: everything is built before anything is measured.
    builds = {t.name: [builder.build(tree, t, catalog.toolchain_of(t), "O2") for tree in measured] for t in chosen}
    load_before = benchmarking.load()
    throughput: list[overhead.Ratio] = []
    memory: list[overhead.Memory] = []
    reports: list[overhead.ReportPrice] = []
    for target in chosen:

        def runner_for(policy: str, target: Target = target) -> emulating.Runner:
            chosen_policy = rules.policy_for(catalog.policies, policy, target)
            return emulators.runner(target, catalog.toolchain_of(target), chosen_policy, programs)

        asked, misaligned = builds[target.name]
        ratios, taken = benchmarking.measure(asked, runner_for, measured[0], progress, rounds=rounds)
        throughput += ratios
        memory += taken
        reports.append(benchmarking.measure_reports(misaligned, runner_for, measured[1], progress, rounds=rounds))
    costs = overhead.Costs(
        server=measured[0].name,
        rounds=rounds,
        processors=os.cpu_count() or 1,
        load_before=load_before,
        load_after=benchmarking.load(),
        throughput=throughput,
        memory=memory,
        reports=reports,
    )
    if as_json:
        output.print_json(costs)
    else:
        click.echo(overhead.text_of(costs))
    return ExitCode.PASS


@click.command("compare-tiers")
@options.kernel_target
@options.offline
@options.install
@options.as_json
def compare_tiers(targets: tuple[str, ...], offline: bool, install: bool | None, as_json: bool) -> ExitCode:
    """Compare user-mode emulation with real kernels.

    The comparison covers every access, offset and mode. Exit 1:
    harness/workflows/measure/tier_differences.toml does not explain a difference.
    """
    catalog, progress, store = Catalog(), Progress(), Cache.default()
    chosen = catalog.select_targets(targets)
    needed = host_packages.diagnose(
        catalog, [*chosen, *(rules.userland(catalog.targets[name]) for name in chosen)], emulator="pinned"
    )
    host_packages.install_missing(needed, progress, install=may_install(install))
    rows = agreeing.agree(catalog, store, Fetcher(store, progress, offline=offline), progress, chosen)
    strange = agreeing.unexplained(rows)
    if as_json:
        output.print_json(rows)
        return ExitCode.FINDINGS if strange else ExitCode.PASS
    click.echo("\n".join(agreeing.summary(rows)))
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        click.echo(f"\nexplained: {reason}")
    cases = sum(len(row.offsets) for row in rows)
    agreed = sum(len(row.offsets) for row in rows if row.agrees)
    explained = sum(len(row.offsets) for row in rows if row.reason)
    click.echo(f"\n{agreed} of {cases} agree, {explained} differ for a known reason, {len(strange)} rows unexplained")
    for row in strange:
        click.echo(f"unexplained: {row.target} {row.policy} {row.access} at {row.offsets}: {row.user} / {row.kernel}")
    return ExitCode.FINDINGS if strange else ExitCode.PASS


@click.command("fixup-cost")
@options.kernel_target
@click.option(
    "--server",
    "servers",
    multiple=True,
    default=taxing.SERVERS,
    show_default=True,
    help="A release's name, or the path of a source tree; repeat for more.",
)
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

    The unit is instructions: for one fixup of each kind, and for what servers pay in their workloads.
    """
    catalog, progress, store = Catalog(), Progress(), Cache.default()
    chosen = catalog.select_targets(targets)
    for name in chosen:
        target_setup.machine_target(catalog, name)
    for name in servers:
        server_tree.known_server(catalog, name)
    host_packages.install_missing(
        host_packages.diagnose(catalog, chosen, emulator="pinned"), progress, install=may_install(install)
    )
    fetcher = Fetcher(store, progress, offline=offline)
    measured = taxing.FixupCostMeasurement(catalog, store, fetcher, progress, optimisation=optimisation).measure(
        chosen, servers
    )
    if as_json:
        output.print_json(measured)
    else:
        click.echo("\n".join(pricing.summary(measured)))
    return ExitCode.PASS


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--target", "targets", multiple=True, help="Only these of the targets that must show it; repeat for more."
)
@options.offline
@options.install
@options.as_json
def mutate(
    names: tuple[str, ...], targets: tuple[str, ...], offline: bool, install: bool | None, as_json: bool
) -> ExitCode:
    """Plant known bugs and check that each one is found.

    Each bug is planted alone in a clean release. Exit 1: a bug was missed.
    """
    allowed = may_install(install)
    rows = [
        # Each with a progress of its own: a run's record has the times of its own stages.
        mutating.mutate(Catalog(), Cache.default(), Progress(), one, targets=targets, offline=offline, install=allowed)
        for one in mutating.chosen(names)
    ]
    if as_json:
        output.print_json(rows)
    else:
        click.echo(mutating.text_of(rows))
    return ExitCode.PASS if all(row.caught for row in rows) else ExitCode.FINDINGS
