"""`python -m tools.found [BUG…]`: asks releases whether they still have the bugs of docs/found.

It carries out the checks that docs/found/BUG.toml names, one release after another, and stores the answers in
measurements/found.json. Only a check that ran to its end, whose test passed, counts as the bug's absence: everything
else without the bug's own finding is unclear. An answer that contradicts the data is stored, told, and ends the command
with the exit code 1. `--patched` asks releases with our own small fixes instead: they must not show the bug, nor
anything new in the whole suite.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness.core.errors import ExitCode, PlumblineError, UsageError
from harness.core.finding import Verdict
from harness.core.model import CANARY_SUITE
from harness.core.processes import process
from harness.core.strict_toml import ROOT, near_names
from harness.judge.known import known_list
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.report.formats import registry
from harness.workflows.check import Check
from harness.workflows.mutation_testing import mutations
from harness.workflows.replay import replay
from harness.workflows.workbench import Workbench
from tools import bugs, project, question_options
from tools.checks import seen
from tools.matrix.page import bugs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict
    from harness.workflows.mutation_testing.mutations import Edit
    from harness.workflows.replay.recurrence import Outcome
    from tools.bugs import Answer, Bug, BugCheck, Patch, StoredAnswer, StoredScope, StreamCheck

SEED = 1
USUAL = "redis-7.0.15"
"""The release whose builds most machines have: it is checked first."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One check of a bug on one release."""

    bug: Bug
    check: BugCheck | StreamCheck
    server: str
    patch: Patch | None = None
    """The fix that the release gets before."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identifies its stored answer."""
        return self.bug.name, self.server, self.check.command(self.server), self.patch.digest if self.patch else ""


def questions(
    known: dict[str, Bug], names: Sequence[str], servers: Sequence[str], targets: Sequence[str] = ()
) -> list[Question]:
    """The questions about these bugs, releases and targets; all if none is named.

    A release that a bug's page does not mention is checked only if both are named.

    Raises UsageError for an unknown bug, and if none of the named checks exists.
    """
    _refuse_unknown(known, names)
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


def _refuse_unknown(known: dict[str, Bug], names: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = ", ".join(near_names(name, known)) or "see docs/FOUND.md"
            raise UsageError(f"no bug '{name}'", where="docs/found", remedy=f"one of these: {near}")


def patched(
    known: dict[str, Bug], names: Sequence[str], servers: Sequence[str], targets: Sequence[str]
) -> list[Question]:
    """The questions about releases with Plumbline's patches, for these bugs; all if none is named.

    Raises UsageError for an unknown bug.
    """
    _refuse_unknown(known, names)
    return [
        Question(bug=bug, check=check, server=patch.server, patch=patch)
        for bug in (known[name] for name in (names or known))
        for patch in bug.patches
        for check in bug.proofs(patch)
        if (not servers or patch.server in servers) and (not targets or check.target in targets)
    ]


@dataclass(frozen=True, kw_only=True)
class _Planted:
    """A patch, as it is planted into a tree."""

    name: str
    edits: Sequence[Edit]


@contextlib.contextmanager
def with_patch(bug: str, patch: Patch) -> Iterator[tuple[Path, Path]]:
    """A release's tree, and a copy of it with a patch, which is removed in the end."""
    bench = Workbench.default()
    tree = bench.fetcher.server(bench.catalog.servers[patch.server]).path
    folder = Path(tempfile.mkdtemp(prefix="plumbline-patched-"))
    # Also where it is killed.
    process.keep_folder(folder)
    try:
        copy = folder / patch.server
        mutations.plant(_Planted(name=f"the patch for {bug}", edits=patch.edits), tree, copy)
        yield tree, copy
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def difference(bug: str, patch: Patch) -> str:
    """A patch as a unified diff, which `patch -p1` and `git apply` take."""
    lines: list[str] = []
    with with_patch(bug, patch) as (tree, copy):
        for file in dict.fromkeys(edit.file for edit in patch.edits):
            old, new = ((root / file).read_text("utf-8").splitlines(keepends=True) for root in (tree, copy))
            lines += difflib.unified_diff(old, new, f"a/{file}", f"b/{file}")
    return "".join(lines)


def judged_patched(question: Question, judgement: Judgement, known: dict[str, Bug]) -> tuple[Answer, str]:
    """The same of a release with a patch: it may show other bugs of docs/found, and what is in the known list."""
    assert isinstance(question.check, bugs.BugCheck)
    answer, reason = judged(question.check, judgement)
    if answer != "unclear":
        return answer, reason
    others = {name: bug for name, bug in known.items() if name != question.bug.name}
    excuses = [_excuses(question.server, finding, others) for finding in judgement.findings]
    cells = [one for one in judgement.cells if one.suite != CANARY_SUITE]
    if not all(excuses) or not _is_conclusive(judgement, cells):
        return "unclear", reason
    told = sorted({name for names in excuses for name in names})
    return "gone", f"{sum(one.passed for one in cells)} tests passed; others fail for {', '.join(told)}"


def _excuses(server: str, finding: Finding, others: dict[str, Bug]) -> list[str]:
    """The other bugs that a finding shows, or `known`; none for a finding that a bug asked for may have caused."""
    return bugs_of(server, seen(finding, finding.witnesses), others) or (["known"] if finding.known else [])


def _is_conclusive(judgement: Judgement, cells: Sequence[CellVerdict]) -> bool:
    """Whether the canaries and other tests passed, nothing is unknown, and a finding explains each failed test.
    `cells`: those of the judgement without the canaries'.
    """
    canaries = {one.verdict for one in judgement.cells if one.suite == CANARY_SUITE}
    tests = {one.test for finding in judgement.findings for witness in finding.witnesses for one in witness.occasions}
    return (
        canaries == {Verdict.PASS}
        and len(cells) > 0
        and all(one.passed and one.verdict is not Verdict.UNKNOWN for one in cells)
        and sum(one.failed for one in cells) <= len(tests)
    )


def judged(check: BugCheck, judgement: Judgement) -> tuple[Answer, str]:
    """A judgement's answer about the bug, and the finding or the lack of evidence on which it rests."""
    for finding in judgement.findings:
        for witness in finding.witnesses:
            # A file of the target can kill the server of another machine, in the target's own cell.
            if check.target != witness.target and f"{check.target}/{check.suite}" not in witness.cells:
                continue
            for occasion in witness.occasions:
                identities = {finding.id, occasion.id or finding.id}
                if any(check.shown(identity, occasion.said or occasion.title) for identity in identities):
                    return "there", finding.id
    cells = [cell for cell in judgement.cells if (cell.target, cell.suite) == (check.target, check.suite)]
    if not cells:
        return "unclear", "the check has no cell of this suite"
    for cell in judgement.cells:
        # A known finding may hide what the test would have shown, so XFAIL does not show silence either.
        if cell.verdict is not Verdict.PASS:
            others = ", ".join(finding.id for finding in judgement.findings)
            return "unclear", "; ".join(filter(None, [f"{cell.suite}: {cell.verdict.name}", cell.reason, others]))
    if check.tests and cells[0].skipped:
        # The test that shows the bug may be one of them.
        return "unclear", f"{cells[0].skipped} of the named tests were skipped"
    return "gone", f"{cells[0].passed} tests passed"


OUTCOMES: dict[Outcome, Answer] = {"reproduced": "there", "gone": "gone", "unknown": "unclear"}


def ask(question: Question, run: Path, known: dict[str, Bug]) -> tuple[Answer, str]:
    """Run the check.

    If it cannot run, the answer is unclear, with the error as the reason. Raises KeyboardInterrupt, and every error
    except the harness' own.
    """
    try:
        if isinstance(question.check, bugs.StreamCheck):
            return _replayed(question.check, question.server)
        if question.patch:
            with with_patch(question.bug.name, question.patch) as (_, copy):
                return judged_patched(question, _checked(question.check, str(copy), run), known)
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
        known=known_list.DEFAULT,
        run=run,
        tests=list(check.tests),
        allocator=check.allocator,
        environment=check.environment,
        warnings="off",
        everywhere="off",
    )
    judgement, _ = Check(bench, request).run()
    return judgement


def answers(asked: Sequence[Question], known: dict[str, Bug]) -> Iterator[StoredAnswer]:
    """Run the checks one after another, and yield each answer as soon as it is known."""
    at = project.commit()
    for question in asked:
        folder = Path(tempfile.mkdtemp(prefix="plumbline-found-"))
        try:
            answer, reason = ask(question, folder / "run", known)
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
            patch=question.key[3],
        )


def stored_with(stored: bugs.StoredAnswers, new: StoredAnswer, known: dict[str, Bug]) -> bugs.StoredAnswers:
    """The stored answers with a new one in place of its predecessor, and without outdated ones."""
    kept = [
        one
        for one in stored.answers
        if (one.bug, one.server, one.command, one.patch) != (new.bug, new.server, new.command, new.patch)
        and not bugs.out_of_date(known.get(one.bug), one)
    ]
    return bugs.StoredAnswers(answers=(*kept, new), scopes=stored.scopes)


def scopes_of(judgement: Judgement, known: dict[str, Bug], commit: str) -> tuple[list[StoredScope], list[str]]:
    """The class of each bug whose findings a whole check of a release shows, and the class and id of each other
    finding. `commit`: of the project, which made the check.
    """
    targets = tuple(dict.fromkeys(cell.target for cell in judgement.cells))
    found: dict[str, list[Finding]] = {}
    others = []
    for finding in judgement.findings:
        names = bugs_of(judgement.server, seen(finding, finding.witnesses), known)
        for name in names:
            found.setdefault(name, []).append(finding)
        if not names:
            others.append(f"{finding.scope}: {finding.id}")
    return [
        bugs.StoredScope(
            bug=name,
            server=judgement.server,
            targets=targets,
            scope="machine" if any(one.scope == "machine" for one in findings) else "everywhere",
            findings=tuple(sorted(one.id for one in findings)),
            date=datetime.datetime.now(datetime.UTC).date(),
            commit=commit,
        )
        for name, findings in found.items()
    ], others


def _classed(runs: Sequence[Path], path: Path) -> int:
    """Store the classes that runs gave to bugs."""
    known = bugs.read_bugs()
    stored = bugs.read_answers(path)
    contradictions = 0
    for run in runs:
        judgement = registry.read(run)
        new, others = scopes_of(judgement, known, project.commit())
        kept = [one for one in stored.scopes if one.server != judgement.server and one.bug in known]
        stored = msgspec.structs.replace(stored, scopes=(*kept, *new))
        for one in new:
            click.echo(f"{one.bug}  {one.server}  {one.scope}  {', '.join(one.findings):.200}")
            if problem := bugs.wrong_scope(known[one.bug], one):
                contradictions += 1
                click.echo(f"error: {problem}", err=True)
        for other in others:
            click.echo(f"no page  {judgement.server}  {other}")
    bugs.write_answers(stored, path)
    return ExitCode.FINDINGS if contradictions else ExitCode.PASS


@click.command()
@click.argument("names", metavar="[BUG]...", nargs=-1)
@question_options.servers
@question_options.targets
@click.option("--missing", is_flag=True, help="Ask only what has no stored answer.")
@click.option("--patched", "fixed", is_flag=True, help="Ask releases with the patches of docs/found, and whole suites.")
@click.option("--diff", is_flag=True, help="Print the patches, and ask nothing.")
@click.option(
    "--classes",
    "runs",
    metavar="RUN",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Store which bugs a check of a release classes as `machine` and which as `everywhere`, and ask nothing.",
)
@question_options.plan
@question_options.answers("--answers", bugs.ANSWERS)
def main(
    names: tuple[str, ...],
    servers: tuple[str, ...],
    targets: tuple[str, ...],
    *,
    missing: bool,
    fixed: bool,
    diff: bool,
    runs: tuple[Path, ...],
    plan: bool,
    path: Path,
) -> None:
    """Check releases for bugs; without names, for all of docs/found."""
    question_options.exit_with(
        lambda: (
            _print_patches(names)
            if diff
            else _classed(runs, path)
            if runs
            else _asked(names, servers, targets, missing=missing, fixed=fixed, plan=plan, path=path)
        )
    )


def _print_patches(names: Sequence[str]) -> int:
    known = bugs.read_bugs()
    _refuse_unknown(known, names)
    for bug in (known[name] for name in (names or known)):
        for patch in bug.patches:
            click.echo(difference(bug.name, patch), nl=False)
    return ExitCode.PASS


def _asked(
    names: Sequence[str],
    servers: Sequence[str],
    targets: Sequence[str],
    *,
    missing: bool,
    fixed: bool,
    plan: bool,
    path: Path,
) -> int:
    known = bugs.read_bugs()
    catalog = Catalog()
    # A page may name packages, which the catalog does not list.
    releases = [*catalog.servers, *sorted({one for bug in known.values() for one in bug.concerned()})]
    for kind, given, names_of_kind in (("server", servers, releases), ("target", targets, list(catalog.targets))):
        question_options.refuse_unknown(kind, given, names_of_kind)
    stored = bugs.read_answers(path)
    there = {(one.bug, one.server, one.command, one.patch) for one in stored.answers}
    wanted = (patched if fixed else questions)(known, names, servers, targets)
    if not wanted:
        raise UsageError(
            "nothing can be asked",
            where=", ".join((*names, *servers, *targets)),
            because="no check of docs/found is for all that is named together",
            remedy="name less: --plan prints what would be asked",
        )
    asked = [one for one in wanted if not (missing and one.key in there)]
    if plan:
        click.echo("\n".join(f"{one.bug.name}: {one.key[2]}" for one in asked))
        return ExitCode.PASS
    contradictions = 0
    for answer in answers(asked, known):
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
