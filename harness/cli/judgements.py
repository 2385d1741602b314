"""Commands on findings and judged runs: plumb findings, show, judge, report, join, history, schema."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from harness.cli import options, output
from harness.cli.parameters import completion
from harness.core.cache import Cache
from harness.core.errors import ExitCode, UsageError
from harness.core.progress import Progress
from harness.judge import conclusion, merge
from harness.plan.plan import PlannedCells, read_plan
from harness.record import stored_run
from harness.report import finding_list
from harness.report.formats import registry as formats
from harness.report.run_history import history_site
from harness.report.schema import schema as findings_schema
from harness.workflows.rejudge import rejudge
from harness.workflows.replay import issue_text
from harness.workflows.second_judgement import read_checked
from harness.workflows.workbench import Workbench


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@options.known
@options.annotated
@options.as_json
def judge(run: Path, known: Path, annotations: str | None, as_json: bool) -> ExitCode:
    """Judge a stored run again and rewrite its report."""
    judgement, code = rejudge(Cache.default(), Progress(), run, known)
    formats.write(run, judgement)
    output.show(judgement, as_json=as_json)
    output.annotate(run, judgement, annotations)
    return code


ISSUE = "issue"
"""The format of a bug report, which starts servers. Every other format is rendered from the run folder alone."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("finding", metavar="[ID]", default="")
@click.option(
    "--format",
    "form",
    type=click.Choice((*formats.FORMATS, ISSUE)),
    default=None,
    help=(
        "Print this format instead; github: annotations; throughput: a table of commands per second; "
        "issue: a bug report about the finding ID."
    ),
)
@click.option(
    "--ask",
    "releases",
    multiple=True,
    metavar="GLOB",
    help="With --format issue: replay the finding on these releases, or on `none`; repeat for more.  [default: all]",
    shell_complete=completion.servers,
)
@options.trust
@options.offline
def report(
    run: Path, finding: str, form: str | None, *, releases: tuple[str, ...], trust: bool, offline: bool
) -> ExitCode:
    """Rewrite a judged run's report, or print one format of it.

    The command judges nothing, and exits with 0 regardless of the verdict. --format issue writes a bug report about one
    finding. To do so it starts servers: it searches for the fewest commands that show the finding, and replays them on
    each release and under the distribution's QEMU.
    """
    stored_run.refuse_ways_out(run)
    judgement = formats.read(run)
    if form == ISSUE:
        if not finding:
            raise UsageError(
                "a bug report is about one finding",
                where="ID",
                remedy=f"one of: plumb findings {shlex.quote(str(run))}",
            )
        found = finding_list.named(judgement, finding, run=run)
        asked = () if releases == ("none",) else releases or ("*",)
        bench = Workbench.default(offline=offline)
        click.echo(issue_text.issue_text(bench, run, judgement, found, releases=asked, trust=trust), nl=False)
        return ExitCode.PASS
    for option, given in (("ID", finding), ("--ask", releases), ("--trust", trust)):
        if given:
            raise UsageError(f"{option} belongs to a bug report", where=option, remedy=f"--format {ISSUE}")
    if form:
        output.print_document(formats.render(run, judgement, form), formats.FORMATS[form])
        return ExitCode.PASS
    for path in formats.write(run, judgement):
        click.echo(path)
    return ExitCode.PASS


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--kind", "kinds", multiple=True, help="Only findings of this kind or glob; repeat for more.")
@click.option("--target", "targets", multiple=True, help="Only findings on this target or glob; repeat for more.")
@click.option("--suite", "suites", multiple=True, help="Only findings of this suite or glob; repeat for more.")
@click.option("--new", is_flag=True, help="Only findings that are not known.")
@options.as_json
def findings(
    run: Path,
    *,
    kinds: tuple[str, ...],
    targets: tuple[str, ...],
    suites: tuple[str, ...],
    new: bool,
    as_json: bool,
) -> ExitCode:
    """List the findings of a judged run, one line each.

    The command judges nothing, and exits with 0 regardless of the findings.
    """
    stored_run.refuse_ways_out(run)
    judgement = formats.read(run)
    chosen = finding_list.chosen(judgement, kinds=kinds, targets=targets, suites=suites, new=new)
    if as_json:
        output.print_json(chosen)
    else:
        for line in finding_list.lines_of(chosen):
            click.echo(line)
        noted = f" and {len(judgement.warnings)} noted warnings" if judgement.warnings else ""
        click.echo(f"{len(chosen)} of {len(judgement.findings)} findings{noted}", err=True)
    return ExitCode.PASS


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("finding", metavar="ID")
@options.as_json
def show(run: Path, finding: str, as_json: bool) -> ExitCode:
    """Show one finding of a judged run in full.

    ID may be a glob, or the beginning of the id.
    """
    stored_run.refuse_ways_out(run)
    found = finding_list.named(formats.read(run), finding, run=run)
    if as_json:
        output.print_json(found)
    else:
        output.show_finding(found, run)
    return ExitCode.PASS


@click.command()
@click.argument("folders", metavar="RUN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=None,
    help="Output of `plumb plan --json`. Planned cells that no run contains are UNKNOWN.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Write findings.json, summary.md, junit.xml and findings.sarif of all runs into this folder.",
)
@options.known
@options.annotated
@options.as_json
def join(
    folders: tuple[Path, ...],
    *,
    plan_file: Path | None,
    into: Path | None,
    known: Path,
    annotations: str | None,
    as_json: bool,
) -> ExitCode:
    """Join judged runs into one judgement.

    Use it for the runs of several CI jobs. The exit code is that of a single check of all their cells. Each run's
    judgement must follow from its evidence; a run folder without evidence is believed, with a note.
    """
    planned = read_plan(plan_file) if plan_file else PlannedCells(cells=[])
    judgement = merge.join(
        [read_checked(folder, known) for folder in folders],
        planned=planned.cells,
        tier=planned.tier,
        options=planned.options,
        settings=planned.settings,
        revision=planned.revision,
    )
    if into:
        if (into / "run.json").exists():
            why = "the joined report would take the place of its own"
            raise UsageError("the folder is a run folder", where=str(into), because=why, remedy="name a new one")
        into.mkdir(0o700, parents=True, exist_ok=True)
        formats.write(into, judgement, formats=formats.OF_JOINED_RUNS)
    output.show(judgement, as_json=as_json)
    output.annotate(into or folders[0], judgement, annotations)
    return conclusion.exit_code(judgement.verdict)


@click.command()
@click.argument("folders", metavar="DIR…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    "site",
    metavar="SITE",
    required=True,
    type=click.Path(path_type=Path),
    help="The site's folder: new, empty, or an existing site, to which the runs are added.",
)
@options.as_json
def history(folders: tuple[Path, ...], site: Path, *, as_json: bool) -> ExitCode:
    """Write a static site of many runs, or add runs to one.

    DIR is a run folder, or a folder that contains run folders. The site shows verdicts by revision and target, when
    each finding was first and last seen, which ones are flaky, and times. The command judges nothing, and exits
    with 0 regardless of the verdicts.
    """
    made = history_site.write_site(folders, site)
    for line in made.left_out:
        click.echo(f"left out: {line}", err=True)
    if as_json:
        output.print_json(made)
    else:
        click.echo(site / "index.html")
    return ExitCode.PASS


@click.command()
def schema() -> ExitCode:
    """Print the JSON schema of findings.json.

    `plumb check --json` prints a document of this schema.
    """
    output.print_json(findings_schema())
    return ExitCode.PASS
