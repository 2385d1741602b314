"""Commands that run a server once more for a finding: plumb replay, suspects, explain, shell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness.analysis import suspects as suspect_lists
from harness.cli import options, output
from harness.cli.parameters import completion
from harness.cli.run_options import may_install
from harness.core.errors import ExitCode, InconclusiveError, UsageError
from harness.core.untrusted_text import visible
from harness.judge.provenance import open_reproducer
from harness.plan.board import read_board
from harness.plan.catalog import DEFAULT_SERVER
from harness.protocol.command_stream import text_of
from harness.record import stored_run
from harness.report import finding_list
from harness.report.finding import comparison_lines, suspect_lines
from harness.report.formats import registry as formats
from harness.workflows import suspect_search
from harness.workflows.debug import debug_shell
from harness.workflows.replay import replay as replay_workflow
from harness.workflows.replay import replay_result, shortening
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.analysis.suspects import SuspectList
    from harness.core.finding import Finding
    from harness.judge.reproducer import Reproducer


@click.command()
@click.argument("reproducer")
@click.option(
    "--server",
    default="",
    help="A release or source tree to use instead of the recorded one.",
    shell_complete=completion.servers,
)
@click.option("--target", default="", help="The target to send a .stream file to.", shell_complete=completion.targets)
@options.board
@click.option(
    "--bisect",
    is_flag=True,
    help="For `git bisect run`: exit 125 if this tree cannot be tested, 255 if the tree is not at fault.",
)
@click.option(
    "--shorten",
    "shortest",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Look for the fewest commands that still show the finding, and write them to this .stream file.",
)
@options.trust
@options.offline
@options.timeout_multiplier
@options.as_json
def replay(
    reproducer: str,
    *,
    server: str,
    target: str,
    board: Path | None,
    bisect: bool,
    shortest: Path | None,
    trust: bool,
    offline: bool,
    timeout_multiplier: float,
    as_json: bool,
) -> int:
    """Reproduce a finding, or send a command stream.

    The replies are compared with those of the native build. Exit 1: the finding is still there; 0: the replay looked
    for the finding, and it is gone; 6: the replay could not tell, and says why. Of a wrong result or an end that is
    still there, the native build is then asked, too.
    """
    if bisect and shortest:
        raise UsageError("a bisection replays the same commands each time", where="--shorten", remedy="leave it out")
    if board is not None and shortest:
        raise UsageError(
            "commands are shortened on an emulated target alone", where="--shorten", remedy="leave --board out"
        )

    def replay_once() -> replay_result.Replay:
        bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier)
        of_board = read_board(board).target if board is not None and _is_stream(reproducer) else ""
        _refuse_target(reproducer, target or of_board)
        opened = _opened(bench, reproducer, server, target or of_board, trust=trust)
        if shortest:
            opened = _shortened(bench, opened, server, shortest)
        # A bisection asks one question of each commit.
        asked = replay_workflow.replay if bisect else replay_workflow.replay_on_both
        result = asked(bench, opened, server=server, board=board)
        _show_replay(result, opened.finding, as_json=as_json)
        return result

    if bisect:
        return replay_result.bisect_exit_code(replay_once)
    return int(replay_result.EXIT_CODES[replay_once().outcome])


def _refuse_target(reproducer: str, target: str) -> None:
    """Raise UsageError if a stream has no target, or a reproducer has two."""
    if _is_stream(reproducer) and not target:
        raise UsageError("a stream names no target", where=reproducer, remedy="--target NAME")
    if target and not _is_stream(reproducer):
        raise UsageError("a reproducer already names its target", where="--target", remedy="leave --target out")


def _is_stream(reproducer: str) -> bool:
    return reproducer.endswith(".stream")


def _opened(bench: Workbench, reproducer: str, server: str, target: str, *, trust: bool) -> Reproducer:
    """A reproducer, or a stream for a target. Raises UsageError if it is unreadable or untrusted."""
    if _is_stream(reproducer):
        return replay_workflow.from_stream(Path(reproducer), target=target, server=server or DEFAULT_SERVER)
    return open_reproducer(bench.cache, bench.catalog.servers, reproducer, server=server, trust=trust)


def _shortened(bench: Workbench, opened: Reproducer, server: str, file: Path) -> Reproducer:
    found = shortening.shorten(bench, opened, server=server)
    if found.why_not:
        raise InconclusiveError("no shorter reproducer", where=opened.finding, because=found.why_not)
    file.write_text(text_of(found.stream), "utf-8")
    bench.progress.say(f"{file}: {len(found.stream)} of {found.commands_before} commands, after {found.tries} tries")
    return found.reproducer


def _show_replay(result: replay_result.Replay, finding: str, *, as_json: bool) -> None:
    if as_json:
        answer = {"outcome": result.outcome, "reason": result.reason, "reproduced": result.outcome == "reproduced"}
        answer["host"] = result.host
        output.print_json({"finding": finding, **answer, "text": result.text})
    else:
        click.echo(visible(replay_result.text_of(result, finding)))


def _ranked(run: Path, name: str, rank: Callable[[Finding], SuspectList]) -> tuple[Finding, SuspectList]:
    """Rank the functions behind a finding, and rewrite the run's report."""
    stored_run.refuse_ways_out(run)
    judgement = formats.read(run)
    found = finding_list.named(judgement, name, run=run)
    ranking = rank(found)
    findings = suspect_lists.collect(run, judgement.findings)
    formats.write(run, msgspec.structs.replace(judgement, findings=findings))
    return found, ranking


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("finding", metavar="ID")
@options.trust
@options.offline
@options.timeout_multiplier
@options.as_json
def suspects(
    run: Path, finding: str, *, trust: bool, offline: bool, timeout_multiplier: float, as_json: bool
) -> ExitCode:
    """Rank the functions behind a wrong result.

    The command runs tests of the finding's suite, and neighbours of its shortest commands, on a target that shows it.
    Functions that run only when the result is wrong come first. None of them need be at fault. The ranking becomes part
    of the run's report. ID may be a glob, or the beginning of the id.
    """
    bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier)
    found, ranking = _ranked(run, finding, lambda one: suspect_search.find_suspects(bench, run, one, trust=trust))
    if as_json:
        output.print_json({"finding": found.id, **msgspec.to_builtins(ranking)})
    else:
        click.echo(f"{found.id}: {ranking.failing} runs show it, {ranking.passing} do not")
        for line in suspect_lines(ranking.suspects):
            click.echo(visible(line))
    return ExitCode.PASS


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("finding", metavar="ID")
@options.trust
@options.offline
@options.timeout_multiplier
@options.as_json
def explain(
    run: Path, finding: str, *, trust: bool, offline: bool, timeout_multiplier: float, as_json: bool
) -> ExitCode:
    """Show where the values behind a wrong result diverge.

    gdb records the arguments and return values of functions on a target and in the native build, while both execute
    the finding's shortest commands. The command shows the last equal and the first different value. If `plumb suspects`
    made a ranking, the function that computed the different value from equal ones moves to the top of it. ID may be
    a glob, or the beginning of the id.
    """
    bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier)
    found, ranking = _ranked(run, finding, lambda one: suspect_search.explain(bench, run, one, trust=trust))
    if as_json:
        output.print_json({"finding": found.id, **msgspec.to_builtins(ranking)})
        return ExitCode.PASS
    click.echo(f"{found.id}: {len(ranking.suspects)} functions")
    for line in [*comparison_lines(ranking.comparison), *suspect_lines(ranking.suspects)]:
        click.echo(visible(line))
    return ExitCode.PASS


@click.command()
@click.argument("target", shell_complete=completion.targets)
@click.argument("gdb", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--server",
    default="",
    help="The name of a release, or the path of a source tree.  [default: the reproducer's, or redis-7.0.15]",
    shell_complete=completion.servers,
)
@click.option("--run", "reproducer", default="", help="Send this reproducer, or .stream file, once the server answers.")
@click.option("--running", is_flag=True, help="Let the server run at once instead of stopping it in main.")
@click.option(
    "--policy",
    default="",
    help="The effect of a misaligned access.  [default: the reproducer's, or signal]",
    shell_complete=completion.policies,
)
@click.option(
    "--optimisation",
    type=click.Choice(["", *options.LEVELS]),
    default="",
    help="Compiler optimisation level.  [default: the reproducer's, or O2]",
)
@options.trust
@options.offline
@options.timeout_multiplier
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
    timeout_multiplier: float,
    install: bool | None,
) -> ExitCode:
    """Open gdb on a server that runs on a target.

    gdb finds the server's sources. Arguments after -- go to gdb: -- -batch -ex continue -ex bt.
    """
    bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier)
    debug_shell.debuggable(bench.catalog, target)
    session = debug_shell.DebugSession(
        target=target,
        server=server,
        policy=policy,
        optimisation=optimisation,
        running=running,
        install=may_install(install, offline=offline),
        gdb=gdb,
    )
    stored = _opened(bench, reproducer, server, target, trust=trust) if reproducer else None
    debug_shell.open_shell(bench, session, stored)
    return ExitCode.PASS
