"""`python -m tools.trees --git CLONE`: checks the commits of measurements/trees.toml that a clone contains.

Each check runs alone, as a person would type it, and its answer is stored when it ends. A tool that is killed loses the
running check alone: the next call continues with what is missing. Nothing is written to the clone.
"""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.parameters.value_types import Duration
from harness.core.errors import ExitCode
from harness.core.finding import Verdict
from harness.core.processes import process
from tools import clones, project, question_options
from tools.checks import keep_run, run_check, trial_folder
from tools.trees import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.trees.document import Tree, TreeAnswer, TreeAnswers

DEADLINE_SECONDS = 2 * 3600.0


def wanted(trees: Sequence[Tree], stored: TreeAnswers, *, again: bool) -> list[Tree]:
    """The commits to check: those without an answer, then those that are UNKNOWN. `again`: then all others."""
    answered = [(tree, answer) for tree in trees if (answer := stored.of(tree))]
    new = [tree for tree in trees if stored.of(tree) is None]
    unknown = [tree for tree, answer in answered if answer.verdict is Verdict.UNKNOWN and not tree.unknown]
    old = [tree for tree, _ in sorted(answered, key=lambda pair: pair[1].asked)] if again else []
    return list({tree.name: tree for tree in (*new, *unknown, *old)}.values())


def check(tree: Tree, clone: Path, into: Path, *, jobs: int) -> TreeAnswer:
    """Check a commit. A check that ends without a judgement is UNKNOWN, with what it said.

    Raises KeyboardInterrupt where the check was interrupted, and InfrastructureError if it cannot be started.
    """
    folder, run = clones.check_out(tree.commit, clone, into / tree.name), into / "run"
    by, asked = project.commit(), datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    words = [str(folder) if word == tree.name else word for word in tree.words]
    ended = run_check(words, run, jobs=jobs, deadline_seconds=DEADLINE_SECONDS)
    if ended.judgement is not None:
        return document.judged(tree, ended.judgement, exit_code=ended.code, by=by, asked=asked, seconds=ended.seconds)
    return document.TreeAnswer(
        tree=tree.name,
        verdict=Verdict.UNKNOWN,
        exit_code=ended.code,
        asked=asked,
        seconds=ended.seconds,
        by=by,
        reason=ended.reason,
    )


@click.command()
@question_options.histories(required=True)
@click.option("--tree", "names", multiple=True, help="Check only this commit (redis-35e836c263); repeat for more.")
@click.option("--again", is_flag=True, help="Check what has an answer, too.")
@click.option("--time", "limit_seconds", type=Duration(), metavar="TIME", help="Begin no check after this time.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="As of `plumb check`.")
@question_options.plan
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the runs that do not pass in this folder.",
)
@question_options.answers("--document", document.STORED)
def main(
    histories: tuple[Path, ...],
    names: tuple[str, ...],
    limit_seconds: float | None,
    jobs: int,
    keep: Path | None,
    path: Path,
    *,
    again: bool,
    plan: bool,
) -> None:
    """Check the listed commits that have no answer yet."""
    end = time.monotonic() + (limit_seconds or float("inf"))

    def check_all() -> int:
        every = document.listed().trees
        question_options.refuse_unknown("tree", names, [tree.name for tree in every])
        places = clones.found_in(histories, [tree.commit for tree in every])
        there = [tree for tree in every if tree.commit in places and (not names or tree.name in names)]
        left = wanted(there, document.read(path), again=again)
        for number, tree in enumerate(left):
            click.echo(tree.command)
            if plan:
                continue
            if time.monotonic() >= end:
                click.echo(f"{len(left) - number} commits are left: the time is over")
                break
            _answered(tree, places[tree.commit], path, keep, jobs=jobs)
        if absent := [tree.name for tree in every if tree.commit not in places]:
            click.echo(f"no clone contains these commits: {', '.join(absent)}")
        click.echo("docs/TREES.md shows the answers after: python -m tools.generated")
        return ExitCode.PASS

    question_options.exit_with(check_all)


def _answered(tree: Tree, clone: Path, path: Path, keep: Path | None, *, jobs: int) -> None:
    with trial_folder("plumbline-trees-") as folder:
        answer = check(tree, clone, folder, jobs=jobs)
        document.store(answer, path)
        click.echo(f"{answer.verdict}  {answer.seconds:.0f} s  {answer.reason}")
        for one in answer.failing:
            click.echo(f"    {one.id}  {one.title}")
        for target, suite in answer.unknown:
            click.echo(f"    {target}/{suite.suite} UNKNOWN: {suite.reason}")
        if answer.verdict is not Verdict.PASS:
            keep_run(folder / "run", keep, tree.name)


if __name__ == "__main__":
    process.stop_on_signals()
    main()
