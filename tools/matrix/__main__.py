"""`python -m tools.matrix`: asks the cells of docs/MATRIX.md, one `plumb check` after another.

One check asks all machines of a server that was made in one way, so that preparation, native build and imports are paid
once. Its answers are stored in measurements/matrix.json when it ends. A tool that is killed loses the running check
alone: the next call continues with what is missing. Cells that are UNKNOWN, as on a machine that is too busy, count as
missing. They come last, each in its own check, because what spoiled one of them need not spoil others.
"""

from __future__ import annotations

import datetime
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from harness.cli.parameters.value_types import Duration
from harness.core.errors import ExitCode
from harness.core.finding import Verdict
from harness.core.model import SuiteTier
from harness.core.processes import process
from harness.plan.catalog import Catalog
from tools import bugs, project, question_options
from tools.checks import keep_run, run_check, trial_folder
from tools.matrix import document, page
from tools.matrix.document import WAYS, Check, MatrixCell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.matrix.document import Matrix, Question

DEADLINE_SECONDS = 6 * 3600.0
_SHOWN_AFTER = "docs/MATRIX.md shows the answers after: python -m tools.generated"


def ask(check: Check, run: Path, *, jobs: int) -> list[MatrixCell]:
    """Check cells as a person would. All cells of a check that ends without a judgement are UNKNOWN, with what it said.

    Raises KeyboardInterrupt where the check was interrupted, and InfrastructureError if it cannot be started.
    """
    at, asked = project.commit(), datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    ended = run_check(check.words, run, jobs=jobs, deadline_seconds=DEADLINE_SECONDS)
    if ended.judgement is not None:
        return [document.judged(question, ended.judgement, commit=at, asked=asked) for question in check.questions]
    return [
        MatrixCell(
            question=question,
            verdict=Verdict.UNKNOWN,
            commit=at,
            asked=asked,
            seconds=ended.seconds,
            reason=ended.reason,
        )
        for question in check.questions
    ]


def wanted(asked: Sequence[Question], stored: Matrix, *, again: bool, stale: bool, commit: str) -> list[Question]:
    """What is left to ask: cells without an answer, then those that are UNKNOWN.

    `stale` adds the answers of other commits, the oldest first; `again` adds all.
    """
    new = [one for one in asked if stored.of(one) is None]
    there = sorted((cell for one in asked if (cell := stored.of(one))), key=lambda cell: cell.asked)
    unknown = [cell.question for cell in there if cell.verdict is Verdict.UNKNOWN]
    old = [cell.question for cell in there if again or (stale and cell.commit != commit)]
    return list(dict.fromkeys([*new, *unknown, *old]))


def checks(left: Sequence[Question], stored: Matrix, *, together: int) -> list[Check]:
    """The checks that ask what is left, in its order: neighbours of one server, way and tier, at most so many at once.

    What is UNKNOWN is asked alone.
    """

    def kind(question: Question) -> tuple[str, ...]:
        there = stored.of(question)
        alone = question.target if there is not None and there.verdict is Verdict.UNKNOWN else ""
        return (question.server, question.way, question.tier, alone)

    return [
        Check(tuple(some))
        for _, neighbours in itertools.groupby(left, kind)
        for some in _parts(list(neighbours), together)
    ]


def _parts(questions: Sequence[Question], most: int) -> list[Sequence[Question]]:
    return [questions[at : at + most] for at in range(0, len(questions), most)]


@click.command()
@question_options.servers
@click.option("--way", "ways", multiple=True, help=f"Only servers made so ({', '.join(WAYS)}); repeat for more.")
@question_options.targets
@click.option(
    "--tier", type=click.Choice(get_args(SuiteTier)), default="quick", show_default=True, help="How much to run."
)
@click.option("--promised", "is_promised", is_flag=True, help="Ask only the cells that docs/MATRIX.md promises.")
@click.option("--again", is_flag=True, help="Ask what has an answer, too.")
@click.option("--stale", is_flag=True, help="Ask what has an answer of another commit, too.")
@click.option("--time", "limit_seconds", type=Duration(), metavar="TIME", help="Begin no check after this time.")
@click.option(
    "--together",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="How many targets one check has at most; the check that runs is lost when the tool is killed.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="As of `plumb check`.")
@question_options.plan
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the runs with cells that do not pass in this folder.",
)
@click.option(
    "--take",
    "taken",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Ask nothing, but store the answers of this file, which another machine has asked; repeat for more.",
)
@question_options.answers("--document", document.STORED)
def main(
    servers: tuple[str, ...],
    ways: tuple[str, ...],
    targets: tuple[str, ...],
    tier: SuiteTier,
    limit_seconds: float | None,
    together: int,
    jobs: int,
    keep: Path | None,
    taken: tuple[Path, ...],
    path: Path,
    *,
    is_promised: bool,
    again: bool,
    stale: bool,
    plan: bool,
) -> None:
    """Ask the cells of the matrix that are missing."""
    if taken:
        if servers or ways or targets or plan or is_promised or again or stale:
            raise click.UsageError("--take stores every answer of the file, and asks nothing")
        question_options.exit_with(lambda: _take_all(taken, path))
    end = time.monotonic() + (limit_seconds or float("inf"))

    def ask_all() -> int:
        asked, stored = document.questions(servers, ways, targets, tier), document.read(path)
        if is_promised:
            catalog = Catalog()
            asked = [one for one in asked if document.promised(catalog, one)]
        left = wanted(asked, stored, again=again, stale=stale, commit=project.commit())
        planned = checks(left, stored, together=together)
        if plan:
            click.echo("\n".join(one.command for one in planned))
            return ExitCode.PASS
        for number, check in enumerate(planned):
            if time.monotonic() >= end:
                rest = sum(len(one.questions) for one in planned[number:])
                click.echo(f"{rest} cells are left: the time is over")
                break
            _answered(check, path, keep, jobs=jobs)
        click.echo(_SHOWN_AFTER)
        return ExitCode.PASS

    question_options.exit_with(ask_all)


def _take_all(files: Sequence[Path], path: Path) -> int:
    for file in files:
        click.echo(f"{file}: {document.take(file, path)} new answers")
    click.echo(_SHOWN_AFTER)
    return ExitCode.PASS


def _answered(check: Check, path: Path, keep: Path | None, *, jobs: int) -> None:
    with trial_folder("plumbline-matrix-") as folder:
        click.echo(check.command)
        cells = ask(check, folder / "run", jobs=jobs)
        for cell in cells:
            document.store(cell, path)
            _tell(cell)
        if any(cell.verdict is not Verdict.PASS for cell in cells):
            keep_run(folder / "run", keep, check.name)


def _tell(cell: MatrixCell) -> None:
    click.echo(f"{cell.question.target}  {cell.verdict}  {cell.seconds:.0f} s  {dict(cell.tests)}")
    for finding in cell.findings:
        told = finding.known or page.bugs_of(cell.question.server, finding, bugs.read_bugs()) or "NEW"
        click.echo(f"    {finding.id}  {told}")


if __name__ == "__main__":
    process.stop_on_signals()
    main()
