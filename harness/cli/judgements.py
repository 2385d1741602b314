"""What looks at a finding or a judged run again: plumb replay, shell, judge, report, join, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli import completion, options, output
from harness.cli.options import may_install
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import ExitCode, UsageError
from harness.core.progress import Progress
from harness.core.untrusted_text import visible
from harness.judge import conclusion
from harness.judge import merge as joining
from harness.judge.provenance import open_reproducer
from harness.plan.catalog import DEFAULT_SERVER, Catalog
from harness.plan.plan import read_plan
from harness.record import stored_run
from harness.report import formats as reporting
from harness.report.schema import schema as findings_schema
from harness.workflows import debug_shell as shelling
from harness.workflows.rejudge import rejudge
from harness.workflows.replay import replay as replaying

trust = click.option(
    "--trust", is_flag=True, help="Carry out a reproducer that no check on this machine made: it is done as you."
)


@click.command()
@click.argument("reproducer")
@click.option(
    "--server",
    default="",
    help="Another release or tree than the recorded one.",
    shell_complete=completion.servers,
)
@click.option("--target", default="", help="Of a .stream file: where to send it.", shell_complete=completion.targets)
@click.option(
    "--bisect",
    is_flag=True,
    help="For `git bisect run`: exit 125 where the tree cannot tell, 255 for what is no fault of it.",
)
@trust
@options.offline
@options.as_json
def replay(reproducer: str, server: str, target: str, bisect: bool, trust: bool, offline: bool, as_json: bool) -> int:
    """Reproduce a finding, or send a command stream.

    The replies are compared with those of the native build. Exit 1: the finding is still there; 0: the replay looked
    for it, and it is gone; 6: the replay cannot tell, and says why.
    """

    def shown() -> replaying.Replay:
        return _replay(reproducer, server, target, trust=trust, offline=offline, as_json=as_json)

    return replaying.bisecting(shown) if bisect else int(replaying.EXIT_CODES[shown().outcome])


def _replay(
    reproducer: str, server: str, target: str, *, trust: bool, offline: bool, as_json: bool
) -> replaying.Replay:
    catalog, store = Catalog(), Cache.default()
    if reproducer.endswith(".stream"):
        if not target:
            raise UsageError("a stream does not say for which target", where=reproducer, remedy="--target NAME")
        read = replaying.from_stream(Path(reproducer), target=target, server=server or DEFAULT_SERVER)
    elif target:
        raise UsageError("a reproducer says itself for which target it is", where="--target")
    else:
        read = open_reproducer(store, catalog.servers, reproducer, server=server, trust=trust)
    seen = replaying.replay(catalog, store, Progress(), read, server=server, offline=offline)
    if as_json:
        answer = {"outcome": seen.outcome, "reason": seen.reason, "reproduced": seen.outcome == "reproduced"}
        output.print_json({"finding": read.finding, **answer, "text": seen.text})
    else:
        click.echo(visible(replaying.told(seen, read.finding)))
    return seen


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
@click.option("--running", is_flag=True, help="Let the server run at once, instead of stopping it in main.")
@click.option(
    "--policy",
    default="",
    help="What a misaligned access does.  [default: the reproducer's, or signal]",
    shell_complete=completion.policies,
)
@click.option(
    "--optimisation",
    type=click.Choice(["", *options.LEVELS]),
    default="",
    help="Compiler's level.  [default: the reproducer's, or O2]",
)
@trust
@options.offline
@options.install
def shell(target: str, reproducer: str, trust: bool, install: bool | None, **options: Any) -> ExitCode:
    """Open gdb on a server that runs on a target.

    gdb finds the server's sources. Arguments after -- go to gdb: -- -batch -ex continue -ex bt.
    """
    catalog = Catalog()
    shelling.debuggable(catalog, target)
    session = json_codec.convert({**options, "target": target, "install": may_install(install)}, shelling.DebugSession)
    read = None
    if reproducer.endswith(".stream"):
        read = replaying.from_stream(Path(reproducer), target=target, server=session.server or DEFAULT_SERVER)
    elif reproducer:
        read = open_reproducer(Cache.default(), catalog.servers, reproducer, server=session.server, trust=trust)
    shelling.open_shell(catalog, Cache.default(), Progress(), session, read)
    return ExitCode.PASS


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@options.known
@options.annotated
@options.as_json
def judge(run: Path, known: Path, annotations: str | None, as_json: bool) -> ExitCode:
    """Judge a stored run again and rewrite its report."""
    judgement, code = rejudge(Cache.default(), Progress(), run, known)
    reporting.write(run, judgement)
    output.show(judgement, as_json=as_json)
    output.annotate(run, judgement, annotations)
    return code


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(reporting.FORMATS),
    default=None,
    help="Print this one document instead; `github` are annotations, `throughput` is a table of commands a second.",
)
def report(run: Path, form: str | None) -> ExitCode:
    """Rewrite a judged run's report, or print one format of it.

    The command judges nothing, and exits 0 whatever the verdict.
    """
    stored_run.refuse_ways_out(run)
    judgement = reporting.read(run)
    if form:
        output.print_document(reporting.render(run, judgement, form), form)
        return ExitCode.PASS
    for path in reporting.write(run, judgement):
        click.echo(path)
    return ExitCode.PASS


@click.command()
@click.argument("folders", metavar="RUN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=None,
    help="What `plumb plan --json` printed: its cells that no run has are UNKNOWN.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Write findings.json, summary.md, junit.xml and findings.sarif of all into this folder.",
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
    judgement = joining.join([reporting.read(folder) for folder in folders], planned=planned)
    if into:
        into.mkdir(0o700, parents=True, exist_ok=True)
        reporting.write(into, judgement, forms=reporting.DOCUMENTS)
    output.show(judgement, as_json=as_json)
    output.annotate(into or folders[0], judgement, annotations)
    return conclusion.exit_code(judgement)


@click.command()
def schema() -> ExitCode:
    """Print the JSON schema of findings.json.

    `plumb check --json` prints a document of this schema.
    """
    output.print_json(findings_schema())
    return ExitCode.PASS
