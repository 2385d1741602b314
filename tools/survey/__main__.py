"""`python -m tools.survey`: asks what `plumb deb` says of the packages of measurements/survey-packages.json.

`--choose` applies the rule to today's indexes and writes that list, which is committed before anything runs. Each
answer is stored in measurements/survey.json when it arrives. A tool that is killed loses what was running alone: the
next call continues with what is missing.
"""

from __future__ import annotations

import datetime
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness.build.sources.debian_archive import Apt
from harness.cli import options
from harness.cli.parameters.value_types import Duration
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InconclusiveError
from harness.core.finding import Verdict
from harness.core.processes import process
from harness.core.progress import Progress
from harness.judge.findings import Judgement
from harness.workflows.campaign.campaign_folder import CampaignFolder
from harness.workflows.campaign.job import DISCARDED, FOLDER
from harness.workflows.campaign.spread import commands_on
from tools import project, question_options
from tools.checks import LATE, keep_run, run_check, trial_folder
from tools.survey import document, rule
from tools.survey.reasons import error_in, reason_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.workflows.campaign.campaign_folder import JobReport
    from tools.survey.document import Answer, Answers, PackageList, Trial

OUTPUT = "output.txt"
"""In the folder of a trial: what the build and the tests printed."""
BINARIES = "amd64"
"""The architecture by whose packages dependants are counted."""


def choose(cache: Cache, progress: Progress) -> PackageList:
    """The packages that the rule chooses now. Raises InfrastructureError if an index cannot be read."""
    survey = document.survey()
    suites = dict.fromkeys([document.SUITE, *(one.suite for one in survey.named)])
    sources = {suite: _index(cache, progress, suite) for suite in suites}
    found = rule.choose(sources, _index(cache, progress, document.SUITE, BINARIES), survey)
    return document.PackageList(
        indexed=datetime.datetime.now(datetime.UTC).date().isoformat(),
        considered=found.considered,
        libraries=found.libraries,
        fitting=found.fitting,
        packages=found.packages,
    )


def _index(cache: Cache, progress: Progress, suite: str, architecture: str = "") -> list[dict[str, str]]:
    """The paragraphs of a suite's index of source packages, or of the binary packages of an architecture."""
    name = f"{suite}-{architecture}" if architecture else suite
    with tempfile.TemporaryDirectory(prefix="plumbline-survey-") as folder, cache.lock(f"apt-{name}"):
        apt = Apt(cache.path("apt", name), suite, architecture)
        apt.ready_index(progress, offline=False, remedy="")
        return list(rule.paragraphs(apt.index(Path(folder) / "index")))


def wanted(trials: Sequence[Trial], stored: Answers, *, again: bool) -> list[Trial]:
    """What to ask: trials without an answer, then those that the machine or the archive left without a judgement.

    `again`: then all others, the oldest answers first.
    """
    answered = [(one, answer) for one in trials if (answer := stored.of(one))]
    new = [one for one in trials if stored.of(one) is None]
    left = [one for one, answer in answered if not answer.suites and answer.exit_code != ExitCode.USAGE]
    old = [one for one, _ in sorted(answered, key=lambda pair: pair[1].asked)] if again else []
    return list({one.name: one for one in (*new, *left, *old)}.values())


def ask(trial: Trial, folder: Path, *, deadline_seconds: float) -> Answer:
    """Ask about a package on this machine, in a folder that has neither its tree nor its run yet.

    Raises KeyboardInterrupt where it was interrupted, and InfrastructureError if it cannot be started.
    """
    by, asked = project.commit(), _now()
    # Tests that root runs may run programs of the tree as another user.
    folder.chmod(0o755)
    ended = run_check(
        [*trial.words, "--into", str(folder / "tree")],
        folder / "run",
        jobs=None,
        deadline_seconds=deadline_seconds,
        # A machine that is busy with other work would end the trials of large packages.
        usable=True,
    )
    (folder / OUTPUT).write_text(ended.output, "utf-8")
    if ended.judgement is not None:
        return document.judged(
            trial,
            ended.judgement,
            exit_code=ended.code,
            by=by,
            asked=asked,
            seconds=ended.seconds,
            failure=reason_in(ended.output),
        )
    status = ended.reason.splitlines()[0]
    # The last lines of a command that was ended from outside explain nothing.
    reason = status if status == LATE else f"{status}\n{error_in(ended.output)}"
    return _without_judgement(trial, ended.code, ended.seconds, reason, by=by, asked=asked)


def _without_judgement(
    trial: Trial, code: int, seconds: float, reason: str, *, by: str, asked: datetime.datetime
) -> Answer:
    return document.Answer(
        package=trial.package.name,
        version=trial.package.version,
        target=trial.target,
        verdict=Verdict.UNKNOWN,
        exit_code=code,
        asked=asked,
        seconds=seconds,
        by=by,
        reason=reason,
    )


def ask_here(
    trials: Sequence[Trial], path: Path, keep: Path | None, *, jobs: int, deadline_seconds: float, end: float
) -> int:
    """Ask on this machine, `jobs` at a time, and store each answer when it arrives. Begin none after `end`.

    Returns how many were not begun.
    """
    left = iter(trials)
    running: dict[Future[Answer], Trial] = {}

    def one(trial: Trial) -> Answer:
        with trial_folder("plumbline-survey-") as folder:
            answer = ask(trial, folder, deadline_seconds=deadline_seconds)
            if answer.verdict is not Verdict.PASS:
                keep_run(folder, keep, trial.name)
            return answer

    with ThreadPoolExecutor(jobs) as pool:
        while True:
            for trial in _until(left, end, jobs - len(running)):
                click.echo(trial.command)
                running[pool.submit(one, trial)] = trial
            if not running:
                return len(list(left))
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _store(future.result(), path)
                del running[future]


def _until(left: Iterator[Trial], end: float, count: int) -> Iterator[Trial]:
    """At most so many of what is left; none after `end`."""
    for _ in range(count):
        if time.monotonic() >= end or (trial := next(left, None)) is None:
            return
        yield trial


def ask_on(
    trials: Sequence[Trial], path: Path, parent: Path, *, on: str, insecure: bool, deadline_seconds: float
) -> None:
    """Ask on the machines of a cluster, with a new campaign below a folder, and store the answers.

    A package that no machine can build is an answer as well. Raises what `commands_on` raises.
    """
    by_name = {one.name: one for one in trials}
    failures: dict[str, JobReport] = {}
    words = {name: [*one.words, "--json", "--into", FOLDER, "--run", DISCARDED] for name, one in by_name.items()}
    try:
        commands_on(
            Progress(),
            words,
            parent / str(len(list(parent.glob("*"))) + 1),
            on=on,
            insecure=insecure,
            expected_seconds=deadline_seconds,
            deadline_seconds=deadline_seconds,
            read_document=lambda name, text: judgement_in(text, by_name[name]),
            failures=failures,
        )
    finally:
        take_arrived(trials, path, parent)
        for name, report in failures.items():
            _store(_answer_of(by_name[name], report), path)


def take_arrived(trials: Sequence[Trial], path: Path, parent: Path) -> None:
    """Store the answers of the campaigns below a folder that have arrived and are not stored."""
    by_name = {one.name: one for one in trials}
    for record in sorted(parent.glob("*/campaign.json")):
        for name, report in CampaignFolder.read(record.parent).arrived().items():
            if name in by_name and document.read(path).of(by_name[name]) is None:
                _store(_answer_of(by_name[name], report), path)


def _answer_of(trial: Trial, report: JobReport) -> Answer:
    """The answer in a worker's report."""
    by, asked = project.commit(), _now()
    seconds, code = round(report.seconds), report.exit_code
    if report.problem:
        return _without_judgement(trial, code, seconds, error_in(report.problem), by=by, asked=asked)
    found = judgement_in(report.output, trial)
    failure = reason_in(report.messages)
    return document.judged(trial, found, exit_code=code, by=by, asked=asked, seconds=seconds, failure=failure)


def judgement_in(text: str, trial: Trial) -> Judgement:
    """The judgement that a worker printed. Raises InconclusiveError for a document about anything else."""
    because = "it is about another target"
    try:
        found = json_codec.decode(text.encode(), Judgement)
    except msgspec.DecodeError as error:
        found, because = None, str(error)
    if found is None or {one.target for one in found.cells} != {trial.target}:
        raise InconclusiveError("a worker's document is not that of its job", where=trial.name, because=because)
    return found


def _store(answer: Answer, path: Path) -> None:
    document.store(answer, path)
    click.echo(f"{answer.verdict}  {answer.package} on {answer.target}  {answer.seconds:.0f} s")
    for one in answer.failing:
        click.echo(f"    {one.id}  {one.place}")
    for line in answer.reason.splitlines():
        click.echo(f"    {line}")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@click.command()
@click.option("--choose", "choosing", is_flag=True, help="Choose the packages by the rule anew, and ask nothing.")
@click.option("--package", "names", multiple=True, help="Ask only about this package; repeat for more.")
@question_options.targets
@click.option("--again", is_flag=True, help="Ask what has an answer, too.")
@click.option("--time", "limit_seconds", type=Duration(), metavar="TIME", help="Begin nothing after this time.")
@click.option("--each", "deadline_seconds", type=Duration(), metavar="TIME", default="15m", show_default=True)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="How many at a time.")
@options.on
@options.insecure
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --on: the folder of the campaigns. What has arrived in an earlier one counts.",
)
@question_options.plan
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the trees and runs that do not pass in this folder.",
)
@question_options.answers("--document", document.STORED)
def main(
    names: tuple[str, ...],
    targets: tuple[str, ...],
    limit_seconds: float | None,
    deadline_seconds: float,
    jobs: int,
    on: str,
    folder: Path | None,
    keep: Path | None,
    path: Path,
    *,
    choosing: bool,
    again: bool,
    insecure: bool,
    plan: bool,
) -> None:
    """Ask what has no answer yet, the smallest sources first."""
    end = time.monotonic() + (limit_seconds or float("inf"))

    def ask_all() -> int:
        if choosing:
            packages = choose(Cache.default(), Progress())
            document.write(packages, document.CHOSEN)
            click.echo(f"{len(packages.packages)} packages: commit {document.CHOSEN.name} before you ask about them")
            return ExitCode.PASS
        every = document.chosen().trials
        question_options.refuse_unknown("package", names, [one.package.name for one in every])
        question_options.refuse_unknown("target", targets, [one.target for one in every])
        asked = [
            one for one in every if (not names or one.package.name in names) and (not targets or one.target in targets)
        ]
        if folder is not None and not plan:
            take_arrived(asked, path, folder)
        left = wanted(asked, document.read(path), again=again)
        if plan:
            click.echo("\n".join(one.command for one in left))
        elif on:
            if folder is None:
                raise click.UsageError("--on needs --run FOLDER")
            ask_on(left, path, folder, on=on, insecure=insecure, deadline_seconds=deadline_seconds)
        elif rest := ask_here(left, path, keep, jobs=jobs, deadline_seconds=deadline_seconds, end=end):
            click.echo(f"{rest} are left: the time is over")
        click.echo("docs/PROGRAMS.md shows the answers after: python -m tools.generated")
        return ExitCode.PASS

    question_options.exit_with(ask_all)


if __name__ == "__main__":
    process.stop_on_signals()
    main()
