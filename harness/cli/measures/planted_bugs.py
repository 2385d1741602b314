"""The command that plants bugs: plumb mutate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from harness.cli import options, output
from harness.cli.measures import campaign_option
from harness.cli.options import may_install
from harness.core.errors import ExitCode
from harness.core.progress import Progress
from harness.workflows.campaign import spread as campaign_spread
from harness.workflows.mutation_testing import campaign
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="Run only this one of the targets that must show the bug; repeat for more.",
)
@options.offline
@options.install
@options.on
@options.insecure
@campaign_option.folder
@options.as_json
def mutate(
    names: tuple[str, ...],
    targets: tuple[str, ...],
    *,
    offline: bool,
    install: bool | None,
    on: str,
    insecure: bool,
    folder: Path | None,
    as_json: bool,
) -> ExitCode:
    """Plant known bugs and check that each one is found.

    Each bug is planted alone in a clean release. Exit 1: a bug was missed.
    """
    allowed = may_install(install)
    chosen = campaign.chosen(names)
    if on:
        common = [word for target in targets for word in ("--target", target)]
        common += ["--offline"] if offline else []
        common += ["--install" if allowed else "--no-install", "--json"]
        reports = campaign_spread.commands_on(
            Progress(),
            {mutation.name: ["mutate", mutation.name, *common] for mutation in chosen},
            campaign_option.new_folder(folder),
            on=on,
            insecure=insecure,
            expected_seconds=campaign.SECONDS,
            command=sys.argv[1:],
        )
        rows = [row for report in reports.values() for row in campaign.rows_in(report.output)]
    else:
        campaign_option.refuse_folder(folder)
        rows = [
            # Each has a progress of its own, because a run records the durations of its own stages only.
            campaign.mutate(Workbench.default(offline=offline), mutation, targets=targets, install=allowed)
            for mutation in chosen
        ]
    if as_json:
        output.print_json(rows)
    else:
        click.echo(campaign.text_of(rows))
    return ExitCode.PASS if all(row.caught for row in rows) else ExitCode.FINDINGS
