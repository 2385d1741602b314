"""Commands for lists of known findings: plumb known add, known list."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from harness.analysis import source_excerpt
from harness.cli import options, output
from harness.core.cache import Cache
from harness.core.errors import ExitCode, UsageError
from harness.core.untrusted_text import one_line
from harness.judge.known.known_list import Settings
from harness.plan.catalog import Catalog
from harness.record import stored_run
from harness.report import finding_list
from harness.report.formats import registry as formats
from harness.workflows import known_entries


@click.group()
def known() -> None:
    """Add to a list of known findings, or show it."""


def _today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()


@known.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("finding", metavar="ID")
@click.option("--reason", required=True, help="Why the finding is expected for now.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    default=None,
    help=f"The last day on which the entry is in force, YYYY-MM-DD.  [default: in {known_entries.DAYS} days]",
)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The list to add to.  [default: .plumbline/known.toml of the run's tree]",
)
@options.as_json
def add(
    run: Path, finding: str, *, reason: str, expires: datetime.datetime | None, path: Path | None, as_json: bool
) -> ExitCode:
    """Add a finding of a judged run to a list.

    RUN is a run folder, or a findings.json. The entries match only the circumstances in which the run saw the finding.
    ID may be a glob, or the beginning of the id.
    """
    if not reason.strip():
        raise UsageError("an entry needs a reason", where="--reason", remedy="--reason 'issue 1234'")
    today = _today()
    last = expires.date() if expires else today + datetime.timedelta(days=known_entries.DAYS)
    if last < today:
        raise UsageError("the last day is in the past", where="--expires", because=f"today is {today}")
    folder = run.parent if run.is_file() else run
    stored_run.refuse_ways_out(folder)
    judgement = formats.read(folder)
    found = finding_list.named(judgement, finding, run=folder, list_all=True)
    path = path or known_entries.list_of(Cache.default(), folder, found)
    keys = known_entries.server_keys(path, folder, judgement.server)
    entries = known_entries.exact_entries(
        found,
        server=keys,
        settings=Settings.of(judgement),
        sources=source_excerpt.read(folder).sources,
        reason=reason,
        expires=last,
    )
    known_entries.append(path, entries)
    if as_json:
        output.print_json({"file": str(path), "entries": entries})
    else:
        number = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
        click.echo(f"{path}: {number} for {one_line(found.id)}, until {last}")
        if found.kind == "alignment" and any(entry.line == "*" for entry in entries):
            click.echo(
                "The source line is not recorded, so a second misaligned access in the function would be known, too"
            )
    return ExitCode.PASS


@known.command("list")
@options.server
@options.known
@options.as_json
def list_(server: str, known: Path, as_json: bool) -> ExitCode:
    """List the entries in force for a server.

    These are the entries of the known-findings file and, for a tree, of its own .plumbline/known.toml. The list marks
    entries that have expired or expire within a month.
    """
    entries = known_entries.listed(Catalog(), server, known, _today())
    if as_json:
        output.print_json(entries)
    else:
        for entry in entries:
            click.echo(one_line(str(entry)))
    return ExitCode.PASS
