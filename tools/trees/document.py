"""measurements/trees.toml: the commits, and what explains their findings. measurements/trees.json: the stored answers.

It starts nothing.
"""

from __future__ import annotations

import shlex
from datetime import datetime  # noqa: TC003  msgspec reads it
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.judge.verdict import EVERYWHERE
from tools.checks import CellFinding, SuiteTally, canaries, seen, tallies, tests

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from harness.judge.findings import Judgement

LISTED = ROOT / "measurements" / "trees.toml"
STORED = ROOT / "measurements" / "trees.json"
SEED = "11"
ABBREVIATED = 10
"""Digits of a commit in the name of its tree."""


class Tree(Record, frozen=True):
    """A commit to check."""

    family: Literal["redis", "valkey"]
    commit: str
    """All 40 digits."""
    committed: str
    """The day on which it was committed, `2022-06-30`."""
    targets: tuple[str, ...]
    unknown: str = ""
    """Why a check of it has no verdict, in one sentence, where the commit is the reason; usually empty."""

    @property
    def name(self) -> str:
        """The name of its folder: `redis-35e836c263`."""
        return f"{self.family}-{self.commit[:ABBREVIATED]}"

    @property
    def words(self) -> list[str]:
        """The command that checks it, in the folder that contains its tree, without the folder of the run."""
        chosen = [word for name in self.targets for word in ("--target", name)]
        return ["check", "--server", self.name, *chosen, "--seed", SEED]

    @property
    def command(self) -> str:
        """The same for a shell."""
        return shlex.join(["plumb", *self.words])


class Explanation(Record, frozen=True):
    """Why commits show a finding."""

    finding: str
    """The finding's id, or a glob."""
    because: str
    """One sentence: the bug with the commit that fixed it, or the known difference."""
    commits: tuple[str, ...] = ()
    """The names of the trees that it is true of; empty: of all that show it."""


class TreeList(Record, frozen=True):
    """measurements/trees.toml."""

    trees: tuple[Tree, ...]
    explanations: tuple[Explanation, ...] = ()


class TargetAnswer(Record, frozen=True):
    """What a check said of one target."""

    target: str
    suites: tuple[SuiteTally, ...]

    @property
    def canaries(self) -> int:
        """How many canaries behaved."""
        return canaries(self.suites)

    @property
    def tests(self) -> Counter[str]:
        """How many tests passed, failed and were skipped, without the canaries."""
        return tests(self.suites)


class TreeAnswer(Record, frozen=True):
    """What the check of a commit said."""

    tree: str
    """`Tree.name`."""
    verdict: Verdict
    exit_code: int
    asked: datetime
    seconds: float
    by: str
    """Plumbline's own commit, as `tools.project.commit` returned it."""
    targets: tuple[TargetAnswer, ...] = ()
    """Empty if the check ended without a judgement."""
    findings: tuple[CellFinding, ...] = ()
    reason: str = ""
    """The end of what the check printed, if there is no judgement."""

    @property
    def failing(self) -> list[CellFinding]:
        """The findings that make the check fail."""
        return [one for one in self.findings if not one.known]

    @property
    def everywhere(self) -> list[CellFinding]:
        """The findings that the host shows, too."""
        return [one for one in self.findings if one.known == EVERYWHERE]

    @property
    def unknown(self) -> list[tuple[str, SuiteTally]]:
        """The cells without a verdict: target and suite."""
        return [(of.target, one) for of in self.targets for one in of.suites if one.verdict is Verdict.UNKNOWN]

    def doubt(self) -> str:
        """Why the verdict is not to be believed; empty if it is. UNKNOWN claims nothing, and needs no proof."""
        if self.verdict is Verdict.UNKNOWN:
            return ""
        if not self.targets or not all(one.canaries for one in self.targets):
            return "a target has no canary that behaved"
        if self.verdict is Verdict.FAIL:
            failed = any(one.tests["failed"] for one in self.targets)
            return "" if self.failing or failed else "nothing failed"
        if self.failing or self.unknown:
            return "the verdict is better than its findings and cells"
        return "" if all(one.tests["passed"] for one in self.targets) else "a target has no test that passed"


class TreeAnswers(Record, frozen=True):
    """measurements/trees.json."""

    answers: tuple[TreeAnswer, ...] = ()

    def of(self, tree: Tree) -> TreeAnswer | None:
        """The answer about a commit; None if it was not checked."""
        return next((one for one in self.answers if one.tree == tree.name), None)


@cache
def listed(path: Path = LISTED) -> TreeList:
    """The commits and the explanations. Raises UsageError for a file that is not valid."""
    return read_toml(path, TreeList)


def read(path: Path = STORED) -> TreeAnswers:
    """The stored answers; none if there is no file.

    Raises UsageError for a file that is not valid, and for a verdict that its own evidence does not carry.
    """
    if not path.is_file():
        return TreeAnswers()
    try:
        stored = json_codec.decode(path.read_bytes(), TreeAnswers)
    except msgspec.MsgspecError as error:
        raise UsageError("not a valid file of answers about commits", where=str(path), because=str(error)) from error
    for one in stored.answers:
        if doubt := one.doubt():
            raise UsageError(
                f"an answer is not to be believed: {doubt}",
                where=f"{path}, {one.tree}",
                remedy="remove it, and check the commit again: python -m tools.trees --git CLONE",
            )
    return stored


def store(new: TreeAnswer, path: Path = STORED) -> None:
    """Put an answer in the place of its predecessor, whole or not at all, in the order of the list."""
    order = [tree.name for tree in listed().trees]
    others = [one for one in read(path).answers if one.tree != new.tree]
    answers = sorted([*others, new], key=lambda one: order.index(one.tree) if one.tree in order else len(order))
    write_whole(path, msgspec.json.format(json_codec.encode(TreeAnswers(answers=tuple(answers))), indent=1) + b"\n")


def judged(tree: Tree, judgement: Judgement, *, exit_code: int, by: str, asked: datetime, seconds: float) -> TreeAnswer:
    """The answer that a check's judgement gives."""
    return TreeAnswer(
        tree=tree.name,
        verdict=judgement.verdict,
        exit_code=exit_code,
        asked=asked,
        seconds=seconds,
        by=by,
        targets=tuple(
            TargetAnswer(
                target=target,
                suites=tallies(one for one in judgement.cells if one.target == target),
            )
            for target in tree.targets
        ),
        findings=tuple(seen(one, one.witnesses) for one in judgement.findings),
    )
