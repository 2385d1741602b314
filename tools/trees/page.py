"""The tables of docs/TREES.md, made of measurements/trees.toml, measurements/trees.json and docs/found."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from harness.core.errors import ExitCode
from harness.core.finding import Verdict
from harness.report.formats.markdown import as_text
from harness.report.markdown_table import table
from tools.trees import document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.checks import CellFinding
    from tools.trees.document import Explanation, Tree, TreeAnswer, TreeAnswers, TreeList

UNEXPLAINED = "**not explained yet**"


def explanation_of(tree: Tree, finding: CellFinding, explanations: Sequence[Explanation]) -> str:
    """Why a commit shows a finding; empty if nobody has said."""
    for one in explanations:
        if fnmatchcase(finding.id, one.finding) and (not one.commits or tree.name in one.commits):
            return one.because
    return ""


def state(listed: TreeList, stored: TreeAnswers) -> list[str]:
    """How many commits have an answer, and what the answers are."""
    answers = [answer for tree in listed.trees if (answer := stored.of(tree))]
    verdicts = Counter(one.verdict for one in answers)
    told = ", ".join(f"{count} {verdict.value}" for verdict, count in sorted(verdicts.items()))
    refused = sum(one.exit_code == ExitCode.USAGE for one in answers)
    broken = sum(one.exit_code == ExitCode.INFRASTRUCTURE for one in answers)
    unknown = sum(len(one.unknown) for one in answers)
    unclear = sum(len(found.unknown) for tree in listed.trees if not tree.unknown and (found := stored.of(tree)))
    cells = sum(len(of.suites) for one in answers for of in one.targets)
    failing = [(tree, one) for tree in listed.trees if (found := stored.of(tree)) for one in found.failing]
    explained = sum(bool(explanation_of(tree, one, listed.explanations)) for tree, one in failing)
    lines = [
        f"{len(answers)} of {len(listed.trees)} commits have been checked: {told or 'none'}.",
        f"{refused} were refused, and {broken} ended with exit code 7.",
        f"{unknown} of {cells} cells are UNKNOWN, {unclear} of them for a reason that is not the commit's.",
        f"{explained} of {len(failing)} findings that fail a check have an explanation.",
    ]
    return [" ".join(lines)]


def commit_rows(listed: TreeList, stored: TreeAnswers) -> list[str]:
    """A row for each commit."""
    rows = []
    for tree in listed.trees:
        answer = stored.of(tree)
        where = ", ".join(f"`{name}`" for name in tree.targets)
        if answer is None:
            rows.append((f"{tree.family} {tree.commit[: document.ABBREVIATED]}", tree.committed, where, "", "", "", ""))
            continue
        rows.append(
            (
                f"{tree.family} {tree.commit[: document.ABBREVIATED]}",
                tree.committed,
                where,
                _verdict(answer),
                _findings(tree, answer, listed.explanations),
                str(len(answer.everywhere)),
                _unknown(tree, answer),
            )
        )
    return table(["commit", "day", "targets", "verdict", "findings of the machine", "everywhere", "UNKNOWN"], rows)


def _verdict(answer: TreeAnswer) -> str:
    return answer.verdict.value if answer.verdict is Verdict.PASS else f"**{answer.verdict.value}**"


def _findings(tree: Tree, answer: TreeAnswer, explanations: Sequence[Explanation]) -> str:
    """The findings that fail the check, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for one in answer.failing:
        because = as_text(explanation_of(tree, one, explanations)) or UNEXPLAINED
        by_reason.setdefault(because, []).append(f"`{one.id}`")
    return " <br> ".join(f"{', '.join(names)}: {because}" for because, names in by_reason.items())


def _unknown(tree: Tree, answer: TreeAnswer) -> str:
    if tree.unknown and answer.unknown:
        return as_text(tree.unknown)
    if answer.reason:
        return as_text(answer.reason.splitlines()[-1])
    return "<br>".join(as_text(f"{target}/{one.suite}: {one.reason}") for target, one in answer.unknown)


def tables(listed: TreeList | None = None, stored: TreeAnswers | None = None) -> dict[str, Callable[[], list[str]]]:
    """The tables of docs/TREES.md by their marks; of the stored data by default."""
    every, answers = listed or document.listed(), stored or document.read()
    return {"state": lambda: state(every, answers), "commits": lambda: commit_rows(every, answers)}
