"""Before a change is blamed, the base is asked about each finding, and about none twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from harness.core.errors import ExitCode
from harness.judge import baseline, conclusion
from harness.judge.baseline import Baseline, BaseRevision
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.record import stored_run
from harness.workflows.premerge.base_comparison import BaseComparison
from tests.support import fakes
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement
    from harness.plan.request import Request

BASE = BaseRevision(commit="a" * 40, subject="it", why="HEAD")
TARGETS = ("armv5", "sparc64")
SUITES = ("canary", "bitops", "sds", "selftests")


class Asked(NamedTuple):
    """A question to the base."""

    name: str
    targets: Sequence[str]
    suites: Sequence[str]
    tests: Sequence[str]


class Tree:
    """A run in which a test of each suite fails, and a base that fails in some of them."""

    def __init__(self, folder: Path) -> None:
        run = StoredRun(folder / "run", targets=TARGETS, suites=SUITES)
        for target in TARGETS:
            run.canary(target)
            for suite in SUITES[1:]:
                run.test(target, suite, f"{suite}/test_other")
                if suite != "selftests" or target == "armv5":
                    run.test(target, suite, f"{suite}/test_it", outcome="failed", message="1 != 2", asserted="a.py:1")
        self.folder = run.finish()
        self.known = fakes.write(folder / "known.toml", "findings = []\n")
        self.judgement, _ = conclusion.conclude(stored_run.read(self.folder), self.known, fakes.quiet())
        self.fails: set[str] = set()
        """Suites in which the base fails alike."""
        self.asked: list[Asked] = []
        self.comparison = BaseComparison(self._bench(), self.request, BASE)

    @staticmethod
    def _bench() -> Any:
        return SimpleNamespace(progress=fakes.quiet(), catalog=Catalog())

    @property
    def request(self) -> Request:
        plan = make_plan(Catalog(), targets=TARGETS, server="/a/checkout", suites=SUITES)
        return fakes.quick_request(plan, server="/a/checkout", known=self.known, run=self.folder)

    def findings(self, *suites: str) -> list[Finding]:
        return [one for one in self.judgement.findings if {each.suite for each in one.witnesses} <= {*suites}]

    def findings_of(self, _: object, request: Request, base: BaseRevision, *, name: str = "base") -> Baseline:
        """What the base shows."""
        plan = request.plan
        self.asked.append(Asked(name, plan.targets, plan.suites, request.tests))
        shown = self.findings(*self.fails.intersection(plan.suites))
        return baseline.of_judgement(base, msgspec.structs.replace(self.judgement, findings=shown), {})

    def early(self, suite: str, *targets: str) -> Baseline:
        return self.comparison.early(self.request.plan.only([suite]).on(targets), self.findings(suite), {})

    def judged(self) -> tuple[Judgement, ExitCode]:
        return self.comparison.judged_again(self.request, self.judgement)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path)
    monkeypatch.setattr("harness.workflows.premerge.base_comparison.findings_of", made.findings_of)
    return made


def test_what_the_base_has_shown_while_the_tree_ran_is_not_asked_again(tree: Tree) -> None:
    tree.fails = {"bitops", "sds", "selftests"}
    early = tree.early("selftests", "armv5")
    assert tree.asked == [Asked("base-early", ["armv5"], ["canary", "selftests"], ["selftests/test_it"])]
    (finding,) = tree.findings("selftests")
    assert baseline.reason(early, finding, {})
    assert tree.early("sds", "armv5") == early, "its run has a folder, and a second one would mix with it"
    judged, code = tree.judged()
    assert (code, {one.known for one in judged.findings}) == (ExitCode.PASS, {f"also in BASE {'a' * 12}"})
    assert tree.asked[1:] == [Asked("base", [*TARGETS], ["canary", "bitops", "sds"], ["bitops/test_it", "sds/test_it"])]


def test_if_the_base_has_shown_all_it_does_not_run_again(tree: Tree) -> None:
    tree.judgement = msgspec.structs.replace(
        tree.judgement,
        findings=tree.findings("selftests"),
        cells=[one for one in tree.judgement.cells if one.suite in {"canary", "selftests"}],
    )
    tree.fails = {"selftests"}
    tree.early("selftests", "armv5")
    tree.judged()
    assert [one.name for one in tree.asked] == ["base-early"]


def test_what_it_does_not_show_is_asked_again_of_these_suites_alone(tree: Tree) -> None:
    tree.fails = {"bitops"}
    tree.early("selftests", "armv5")
    judged, code = tree.judged()
    assert code == ExitCode.FINDINGS
    assert {one.witnesses[0].suite for one in judged.findings if not one.known} == {"sds", "selftests"}
    again = [one for one in tree.asked if one.name.startswith("base-again")]
    assert [one.suites for one in again] == [["canary", "sds", "selftests"]] * 2
    assert [one.tests for one in again] == [["sds/test_it", "selftests/test_it"]] * 2


def test_a_new_warning_is_asked_of_the_whole_base(tree: Tree) -> None:
    """Regression: a warning has no test, and its suite is none of the catalog's: the check ended with a KeyError."""
    (finding,) = tree.findings("sds")
    (first, *_) = finding.witnesses
    occasions = [msgspec.structs.replace(one, test="") for one in first.occasions]
    warning = msgspec.structs.replace(first, suite="warnings", test="", cells=[], occasions=occasions)
    finding = msgspec.structs.replace(finding, targets=["armv5"], witnesses=[warning])
    tree.judgement = msgspec.structs.replace(tree.judgement, findings=[finding])
    tree.judged()
    assert tree.asked[0] == Asked("base", ["armv5"], ["canary"], [])
