"""Commands that run suites and report findings: plumb check, fuzz, audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli import options
from harness.cli.run_command import carry_out, planned_request
from harness.core.errors import ExitCode, UsageError
from harness.isa import rules
from harness.plan.plan import make_plan
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from harness.cli.options import RunOptions
    from harness.core.model import CompilerWarnings, Tier
    from harness.plan.catalog import Catalog
    from harness.plan.plan import Plan

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
@options.mixed
@options.target_clients
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
    mixed: bool,
    target_clients: bool,
    fail_fast: bool,
    warnings: CompilerWarnings,
    annotations: str | None,
) -> ExitCode:
    """Build a server, run the suites and report findings."""
    if limit_seconds is not None and tier != "thorough":
        why = f"every suite of tier {tier} ends by itself"
        raise UsageError("a time limit is not possible", where="--time", because=why, remedy="--tier thorough")
    bench = Workbench.default(offline=run.offline)
    plan = make_plan(bench.catalog, targets=targets, server=server, suites=suites, tier=tier)
    _refuse_unused(bench.catalog, plan, mixed=mixed, target_clients=target_clients)
    request = planned_request(
        bench.catalog,
        run,
        plan,
        server=server,
        tier=tier,
        policy=policy,
        tests=tests,
        limit_seconds=limit_seconds,
        mixed=mixed,
        target_clients=target_clients,
        fail_fast=fail_fast,
        warnings=warnings,
    )
    return carry_out(bench, request, run, annotations=annotations)


def _refuse_unused(catalog: Catalog, plan: Plan, *, mixed: bool, target_clients: bool) -> None:
    """Raise UsageError for an option of the release's own tests that would change nothing."""
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
    request = planned_request(
        bench.catalog,
        run,
        make_plan(
            bench.catalog,
            targets=targets,
            server=server,
            suites=tuple(name for name, suite in bench.catalog.suites.items() if suite.guided),
            tier="thorough",
        ),
        server=server,
        tier="thorough",
        policy=policy,
        tests=tests,
        limit_seconds=limit_seconds,
        limit_count=limit_count,
        learns=True,
        fail_fast=fail_fast,
        warnings=warnings,
    )
    return carry_out(bench, request, run, annotations=annotations)


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
    request = planned_request(
        bench.catalog,
        run,
        make_plan(bench.catalog, targets=targets, server=server, suites=suites, tier=tier),
        server=server,
        tier=tier,
        policy=rules.audit_name(policy),
        tests=tests,
        fail_fast=fail_fast,
        warnings=warnings,
    )
    return carry_out(bench, request, run, annotations=annotations)
