"""The command that plants bugs: plumb mutate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from harness.cli import options, output
from harness.cli.measures import campaign_option
from harness.cli.run_options import may_install
from harness.core.errors import ExitCode, UsageError
from harness.core.progress import Progress
from harness.run.cell_spec import LARGEST_SEED
from harness.workflows.campaign import spread as campaign_spread
from harness.workflows.mutation_testing import campaign
from harness.workflows.mutation_testing.recall import tables
from harness.workflows.mutation_testing.recall.sample_run import Sample, SampleRun, mutants_of
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Tier


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="Of the targets that must show the bug, run only this one; repeat for more.",
)
@click.option(
    "--generate",
    is_flag=True,
    help="List the mutants that rules generate from a release; with --sample, run the suites on some of them.",
)
@click.option(
    "--sample", "size", type=click.IntRange(1), default=None, help="With --generate, how many mutants to run."
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=1,
    show_default=True,
    help="With --sample, the seed of the selection.",
)
@options.time("With --sample, start no more mutants after this time: 90s, 10m, 6h.")
@click.option(
    "--tier",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="With --sample, the tier that must find the mutants.",
)
@options.server
@options.offline
@options.install
@options.on
@options.insecure
@campaign_option.folder_option("With --on, the campaign's folder; with --sample, the sample's")
@options.timeout_multiplier
@options.as_json
def mutate(
    names: tuple[str, ...],
    targets: tuple[str, ...],
    *,
    generate: bool,
    size: int | None,
    seed: int,
    limit_seconds: float | None,
    tier: Tier,
    server: str,
    offline: bool,
    install: bool | None,
    on: str,
    insecure: bool,
    folder: Path | None,
    timeout_multiplier: float,
    as_json: bool,
) -> ExitCode:
    """Plant known bugs and check that each one is found.

    Each bug is planted alone in a clean release. Exit 1: a bug was missed.

    With --generate, rules generate the bugs, called mutants. NAME is then a mutant's identifier, or a glob.
    """
    allowed = may_install(install, offline=offline)
    _refuse_unused(click.get_current_context(), generate=generate, sampled=size is not None)
    if generate:
        bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier)
        if size is None:
            campaign_option.refuse_folder(folder)
            return _list_mutants(bench, server, names, as_json=as_json)
        sample = Sample(server=server, names=list(names), tier=tier, seed=seed, size=size, limit_seconds=limit_seconds)
        return _run_sample(bench, sample, campaign_option.new_folder(folder), install=allowed, as_json=as_json)
    chosen = campaign.chosen(names)
    if on:
        common = [word for target in targets for word in ("--target", target)]
        common += ["--offline"] if offline else []
        common += ["--timeout-multiplier", f"{timeout_multiplier:g}"]
        common += ["--install" if allowed else "--no-install", "--json"]
        planted = {mutation.name: mutation for mutation in chosen}
        reports = campaign_spread.commands_on(
            Progress(),
            {mutation.name: ["mutate", mutation.name, *common] for mutation in chosen},
            campaign_option.new_folder(folder),
            on=on,
            insecure=insecure,
            expected_seconds=campaign.SECONDS,
            command=sys.argv[1:],
            timeout_multiplier=timeout_multiplier,
            read_document=lambda name, document: campaign.row_in(document, planted[name], targets),
        )
        rows = [campaign.row_in(reports[mutation.name].output, mutation, targets) for mutation in chosen]
    else:
        campaign_option.refuse_folder(folder)
        rows = [
            # Each has its own progress, because a run records only the durations of its own stages.
            campaign.mutate(
                Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier),
                mutation,
                targets=targets,
                install=allowed,
            )
            for mutation in chosen
        ]
    if as_json:
        output.print_json(rows)
    else:
        click.echo(campaign.text_of(rows))
    return ExitCode.PASS if all(row.caught for row in rows) else ExitCode.FINDINGS


_OF_PLANTED_BUGS = {"targets": "--target", "on": "--on", "insecure": "--insecure"}
_OF_MUTANTS = {"server": "--server"}
_OF_SAMPLES = {"seed": "--seed", "limit_seconds": "--time", "tier": "--tier", "size": "--sample"}


def _refuse_unused(context: click.Context, *, generate: bool, sampled: bool) -> None:
    """Raise UsageError for an option that would have no effect."""
    refused = dict(_OF_PLANTED_BUGS) if generate else {**_OF_MUTANTS, **_OF_SAMPLES}
    if generate and not sampled:
        refused |= _OF_SAMPLES
    for parameter, option in refused.items():
        if context.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option} has no effect here",
                where=option,
                because="it belongs to samples of mutants" if parameter in _OF_SAMPLES else "",
                remedy="leave it out" if parameter in _OF_PLANTED_BUGS else "--generate --sample N",
            )


def _list_mutants(bench: Workbench, server: str, names: tuple[str, ...], *, as_json: bool) -> ExitCode:
    """The mutants of a release: a document, or their number by operator."""
    mutants = mutants_of(bench, server, names)
    if as_json:
        output.print_json(mutants)
    else:
        click.echo("\n".join([*tables.mutant_counts(mutants), "", f"{len(mutants)} mutants of {server}"]))
    return ExitCode.PASS


def _run_sample(bench: Workbench, sample: Sample, folder: Path, *, install: bool, as_json: bool) -> ExitCode:
    """Run a sample, and print each outcome as soon as it is known."""
    run = SampleRun(bench, sample, folder, install=install)
    document = run.run(lambda outcome: bench.progress.say(tables.outcome_line(outcome)))
    if as_json:
        output.print_json(document)
    else:
        click.echo(tables.text_of(document))
    click.echo(f"the outcomes are in {folder}: the same command with --run {folder} resumes", err=True)
    return ExitCode.FINDINGS if document.of("survived") else ExitCode.PASS
