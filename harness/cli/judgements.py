"""Commands that look at findings and judged runs: plumb findings, show, replay, shell, judge, report, join, schema."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli import completion, options, output
from harness.cli.options import may_install
from harness.core.cache import Cache
from harness.core.errors import ExitCode, UsageError
from harness.core.progress import Progress
from harness.core.untrusted_text import visible
from harness.judge import conclusion, merge
from harness.judge.provenance import open_reproducer
from harness.plan.catalog import DEFAULT_SERVER
from harness.plan.plan import read_plan
from harness.record import stored_run
from harness.report import finding_list
from harness.report.formats import registry as formats
from harness.report.schema import schema as findings_schema
from harness.workflows import debug_shell
from harness.workflows.rejudge import rejudge
from harness.workflows.replay import replay as replay_workflow
from harness.workflows.workbench import Workbench

trust = click.option(
    "--trust", is_flag=True, help="Run a reproducer that no check on this machine made, with your own permissions."
)


@click.command()
@click.argument("reproducer")
@click.option(
    "--server",
    default="",
    help="A release or source tree to use instead of the recorded one.",
    shell_complete=completion.servers,
)
@click.option("--target", default="", help="The target to send a .stream file to.", shell_complete=completion.targets)
@click.option(
    "--bisect",
    is_flag=True,
    help="For `git bisect run`: exit 125 if this tree cannot be tested, 255 if the tree is not at fault.",
)
@trust
@options.offline
@options.as_json
def replay(reproducer: str, server: str, target: str, bisect: bool, trust: bool, offline: bool, as_json: bool) -> int:
    """Reproduce a finding, or send a command stream.

    The replies are compared with those of the native build. Exit 1: the finding is still there; 0: the replay looked
    for it, and it is gone; 6: the replay cannot tell, and says why.
    """

    def replay_once() -> replay_workflow.Replay:
        return _replay(reproducer, server, target, trust=trust, offline=offline, as_json=as_json)

    if bisect:
        return replay_workflow.bisect_exit_code(replay_once)
    return int(replay_workflow.EXIT_CODES[replay_once().outcome])


def _replay(
    reproducer: str, server: str, target: str, *, trust: bool, offline: bool, as_json: bool
) -> replay_workflow.Replay:
    bench = Workbench.default(offline=offline)
    if reproducer.endswith(".stream"):
        if not target:
            raise UsageError("a stream names no target", where=reproducer, remedy="--target NAME")
        opened = replay_workflow.from_stream(Path(reproducer), target=target, server=server or DEFAULT_SERVER)
    elif target:
        raise UsageError("a reproducer already names its target", where="--target", remedy="leave --target out")
    else:
        opened = open_reproducer(bench.cache, bench.catalog.servers, reproducer, server=server, trust=trust)
    result = replay_workflow.replay(bench, opened, server=server)
    if as_json:
        answer = {"outcome": result.outcome, "reason": result.reason, "reproduced": result.outcome == "reproduced"}
        output.print_json({"finding": opened.finding, **answer, "text": result.text})
    else:
        click.echo(visible(replay_workflow.text_of(result, opened.finding)))
    return result


@click.command()
@click.argument("target", shell_complete=completion.targets)
@click.argument("gdb", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--server",
    default="",
    help="A release's name, or the path of a source tree.  [default: the reproducer's, or redis-7.0.15]",
    shell_complete=completion.servers,
)
@click.option("--run", "reproducer", default="", help="Send this reproducer, or .stream file, once the server answers.")
@click.option("--running", is_flag=True, help="Let the server run at once instead of stopping it in main.")
@click.option(
    "--policy",
    default="",
    help="What happens on a misaligned access.  [default: the reproducer's, or signal]",
    shell_complete=completion.policies,
)
@click.option(
    "--optimisation",
    type=click.Choice(["", *options.LEVELS]),
    default="",
    help="Optimisation level of the compiler.  [default: the reproducer's, or O2]",
)
@trust
@options.offline
@options.install
def shell(
    target: str,
    gdb: tuple[str, ...],
    *,
    server: str,
    reproducer: str,
    running: bool,
    policy: str,
    optimisation: str,
    trust: bool,
    offline: bool,
    install: bool | None,
) -> ExitCode:
    """Open gdb on a server that runs on a target.

    gdb finds the server's sources. Arguments after -- go to gdb: -- -batch -ex continue -ex bt.
    """
    bench = Workbench.default(offline=offline)
    debug_shell.debuggable(bench.catalog, target)
    session = debug_shell.DebugSession(
        target=target,
        server=server,
        policy=policy,
        optimisation=optimisation,
        running=running,
        install=may_install(install),
        gdb=gdb,
    )
    stored = None
    if reproducer.endswith(".stream"):
        stored = replay_workflow.from_stream(Path(reproducer), target=target, server=server or DEFAULT_SERVER)
    elif reproducer:
        stored = open_reproducer(bench.cache, bench.catalog.servers, reproducer, server=server, trust=trust)
    debug_shell.open_shell(bench, session, stored)
    return ExitCode.PASS


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


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(formats.FORMATS)),
    default=None,
    help="Print this format instead; github: annotations; throughput: a table of commands per second.",
)
def report(run: Path, form: str | None) -> ExitCode:
    """Rewrite a judged run's report, or print one format of it.

    The command judges nothing, and exits 0 whatever the verdict.
    """
    stored_run.refuse_ways_out(run)
    judgement = formats.read(run)
    if form:
        output.print_document(formats.render(run, judgement, form), formats.FORMATS[form])
        return ExitCode.PASS
    for path in formats.write(run, judgement):
        click.echo(path)
    return ExitCode.PASS


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--kind", "kinds", multiple=True, help="Only findings of this kind, or glob; repeat for more.")
@click.option("--target", "targets", multiple=True, help="Only what this target, or glob, shows; repeat for more.")
@click.option("--suite", "suites", multiple=True, help="Only what this suite, or glob, shows; repeat for more.")
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

    The command judges nothing, and exits 0 whatever it lists.
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
    """Show one finding of a judged run, whole.

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
@options.annotated
@options.as_json
def join(
    folders: tuple[Path, ...], plan_file: Path | None, into: Path | None, annotations: str | None, as_json: bool
) -> ExitCode:
    """Join judged runs into one judgement.

    Use it for the runs of several CI jobs. It exits as a single check of all their cells would.
    """
    planned = read_plan(plan_file) if plan_file else []
    for folder in folders:
        stored_run.refuse_ways_out(folder)
    judgement = merge.join([formats.read(folder) for folder in folders], planned=planned)
    if into:
        into.mkdir(0o700, parents=True, exist_ok=True)
        formats.write(into, judgement, formats=formats.OF_JOINED_RUNS)
    output.show(judgement, as_json=as_json)
    output.annotate(into or folders[0], judgement, annotations)
    return conclusion.exit_code(judgement.verdict)


@click.command()
def schema() -> ExitCode:
    """Print the JSON schema of findings.json.

    `plumb check --json` prints a document of this schema.
    """
    output.print_json(findings_schema())
    return ExitCode.PASS
