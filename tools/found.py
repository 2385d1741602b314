"""`python -m tools.found [BUG…]`: asks releases whether they still have the bugs of docs/found.

It carries out the checks that docs/found/BUG.toml names, one release after another, and stores the answers in
docs/found.json. Only a check that ran to its end, whose test passed, counts as the bug's absence: everything else
without the bug's own finding is unclear. An answer that contradicts the data is stored, told, and ends the command
with the exit code 1.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.core.errors import ExitCode, PlumblineError, UsageError
from harness.core.finding import Verdict
from harness.core.processes import process
from harness.core.strict_toml import ROOT, near_names
from harness.judge import known_findings
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.workflows.check import Check
from harness.workflows.replay import replay
from harness.workflows.workbench import Workbench
from tools import bugs, project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.judge.findings import Judgement
    from harness.workflows.replay.recurrence import Outcome
    from tools.bugs import Answer, Bug, BugCheck, StoredAnswer, StreamCheck

SEED = 1
USUAL = "redis-7.0.15"
"""The release whose builds most machines have: it is asked first."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One check of a bug, asked of one release."""

    bug: Bug
    check: BugCheck | StreamCheck
    server: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What distinguishes its stored answer from all others."""
        return self.bug.name, self.server, self.check.command(self.server)


def questions(
    known: dict[str, Bug], names: Sequence[str], servers: Sequence[str], targets: Sequence[str] = ()
) -> list[Question]:
    """What to ask: for the bugs, of the releases and on the targets that are named; all where none is.

    A release about which a bug's page says nothing is only asked if both are named.

    Raises UsageError for a name that is no bug's, and where nothing of what is named can be asked.
    """
    for name in names:
        if name not in known:
            near = ", ".join(near_names(name, known)) or "see docs/FOUND.md"
            raise UsageError(f"no bug '{name}'", where="docs/found", remedy=f"one of these: {near}")
    found = [
        Question(bug=bug, check=check, server=server)
        for bug in (known[name] for name in (names or known))
        for server in (servers if names and servers else bug.concerned())
        if (not servers or server in servers) and not bug.why_unasked(server)
        for check in bug.ways
        if (not check.servers or server in check.servers) and (not targets or check.target in targets)
    ]
    if not found and names:
        reasons = sorted({known[name].why_unasked(server) for name in names for server in (servers or ("",))})
        raise UsageError("nothing can be asked", where=", ".join(names), because="; ".join(filter(None, reasons)))
    return sorted(found, key=lambda one: (one.server != USUAL, one.server, one.check.target, one.bug.name))


def judged(check: BugCheck, judgement: Judgement) -> tuple[Answer, str]:
    """What a check's judgement says about its bug, and which finding or which lack of evidence says so."""
    for finding in judgement.findings:
        for witness in finding.witnesses:
            if witness.target != check.target:
                continue
            for occasion in witness.occasions:
                identities = {finding.id, occasion.id or finding.id}
                if any(check.shown(identity, occasion.said or occasion.title) for identity in identities):
                    return "there", finding.id
    cells = [cell for cell in judgement.cells if (cell.target, cell.suite) == (check.target, check.suite)]
    if not cells:
        return "unclear", "the check has no cell of this suite"
    for cell in judgement.cells:
        # A known finding may hide what the test would have shown, so XFAIL is no silence either.
        if cell.verdict is not Verdict.PASS:
            others = ", ".join(finding.id for finding in judgement.findings)
            return "unclear", "; ".join(filter(None, [f"{cell.suite}: {cell.verdict.name}", cell.reason, others]))
    return "gone", f"{cells[0].passed} tests passed"


OUTCOMES: dict[Outcome, Answer] = {"reproduced": "there", "gone": "gone", "unknown": "unclear"}


def ask(question: Question, run: Path) -> tuple[Answer, str]:
    """Carry out the check. One that cannot be carried out is an unclear answer with its error.

    Raises KeyboardInterrupt and every error that is none of the harness' own.
    """
    try:
        if isinstance(question.check, bugs.StreamCheck):
            return _replayed(question.check, question.server)
        return judged(question.check, _checked(question.check, question.server, run))
    except PlumblineError as error:
        return "unclear", f"the check ended early: {str(error).removeprefix('error: ')}"


def _replayed(check: StreamCheck, server: str) -> tuple[Answer, str]:
    stream = replay.from_stream(ROOT / check.file, target=check.target, server=server)
    result = replay.replay(Workbench.default(), stream, server=server)
    return OUTCOMES[result.outcome], result.reason or result.text


def _checked(check: BugCheck, server: str, run: Path) -> Judgement:
    bench = Workbench.default().with_toolchain(check.toolchain)
    plan = make_plan(bench.catalog, targets=[check.target], server=server, suites=[check.suite])
    request = Request(
        plan=plan,
        server=server,
        tier=check.tier,
        policy=check.policy,
        optimisation=check.optimisation,
        emulator="pinned",
        jobs=1,
        seed=SEED,
        install=False,
        known=known_findings.DEFAULT,
        run=run,
        tests=list(check.tests),
        allocator=check.allocator,
        environment=check.environment,
        warnings="off",
    )
    judgement, _ = Check(bench, request).run()
    return judgement


def answers(asked: Sequence[Question]) -> Iterator[StoredAnswer]:
    """Ask one after another; each answer comes as soon as it is there."""
    at = project.commit()
    for question in asked:
        folder = Path(tempfile.mkdtemp(prefix="plumbline-found-"))
        try:
            answer, reason = ask(question, folder / "run")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        yield bugs.StoredAnswer(
            bug=question.bug.name,
            server=question.server,
            command=question.check.command(question.server),
            answer=answer,
            reason=reason,
            commit=at,
            date=datetime.datetime.now(datetime.UTC).date(),
        )


def stored_with(stored: bugs.StoredAnswers, new: StoredAnswer, known: dict[str, Bug]) -> bugs.StoredAnswers:
    """The stored answers with a new one in place of its predecessor, and without those to questions of the past."""
    kept = [
        one
        for one in stored.answers
        if (one.bug, one.server, one.command) != (new.bug, new.server, new.command)
        and not bugs.out_of_date(known.get(one.bug), one)
    ]
    return bugs.StoredAnswers(answers=(*kept, new))


@click.command()
@click.argument("names", metavar="[BUG]...", nargs=-1)
@click.option("--server", "servers", multiple=True, help="Ask only this release; repeat for more.")
@click.option("--target", "targets", multiple=True, help="Carry out only this target's checks; repeat for more.")
@click.option("--missing", is_flag=True, help="Ask only what has no stored answer.")
@click.option("--plan", is_flag=True, help="Print the commands, and ask nothing.")
@click.option(
    "--answers",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=bugs.ANSWERS,
    help="The file of answers.",
)
def main(
    names: tuple[str, ...],
    servers: tuple[str, ...],
    targets: tuple[str, ...],
    *,
    missing: bool,
    plan: bool,
    path: Path,
) -> None:
    """Ask releases for bugs; all of docs/found without names."""
    try:
        code = _asked(names, servers, targets, missing=missing, plan=plan, path=path)
    except PlumblineError as error:
        click.echo(str(error), err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise SystemExit(code)


def _asked(
    names: Sequence[str], servers: Sequence[str], targets: Sequence[str], *, missing: bool, plan: bool, path: Path
) -> int:
    known = bugs.read_bugs()
    stored = bugs.read_answers(path)
    there = {(one.bug, one.server, one.command) for one in stored.answers}
    asked = [one for one in questions(known, names, servers, targets) if not (missing and one.key in there)]
    if plan:
        click.echo("\n".join(f"{one.bug.name}: {one.key[2]}" for one in asked))
        return ExitCode.PASS
    contradictions = 0
    for answer in answers(asked):
        stored = stored_with(stored, answer, known)
        bugs.write_answers(stored, path)
        click.echo(f"{answer.bug}  {answer.server}  {answer.answer}  {answer.reason.splitlines()[0]:.200}")
        if problem := bugs.contradiction(known[answer.bug], answer):
            contradictions += 1
            click.echo(f"error: {problem}", err=True)
    if asked and path == bugs.ANSWERS:
        click.echo("docs/FOUND.md shows the answers after: python -m tools.generated")
    return ExitCode.FINDINGS if contradictions else ExitCode.PASS


if __name__ == "__main__":
    process.stop_on_signals()
    main()
