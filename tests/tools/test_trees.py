"""docs/TREES.md: its commits, the proofs of their verdicts, and a tool that can be interrupted."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from harness.core import json_codec
from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Verdict
from harness.core.processes.process import Result
from harness.judge.verdict import EVERYWHERE
from harness.plan.catalog import Catalog
from tests.support.repositories import commit, git
from tests.tools import test_found
from tests.tools.test_found import SHOWN
from tests.tools.test_matrix import with_cells
from tools import project
from tools.trees import __main__ as tool
from tools.trees import document, page
from tools.trees.document import Explanation, Tree, TreeAnswer, TreeAnswers, TreeList

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement

TREE = Tree(family="redis", commit="0123456789" * 4, committed="2022-06-30", targets=("armv7", "armv5"))
NOON = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
PASSED = [(target, suite, Verdict.PASS) for target in TREE.targets for suite in ("canary", "life")]


def judgement(*, failed: bool = False, known: str = "", unknown: bool = False) -> Judgement:
    cells = list(PASSED)
    if failed and not known:
        cells[1] = ("armv7", "life", Verdict.FAIL)
    if unknown:
        cells[3] = ("armv5", "life", Verdict.UNKNOWN)
    made = test_found.judgement(cells, [SHOWN] if failed else [], "a reason" if unknown else "")
    findings = [msgspec.structs.replace(with_cells(one, ["armv7/life"]), known=known) for one in made.findings]
    return msgspec.structs.replace(made, verdict=Verdict.merge([verdict for _, _, verdict in cells]), findings=findings)


def answer(judged: Judgement, tree: Tree = TREE) -> TreeAnswer:
    return document.judged(tree, judged, exit_code=0, by="new", asked=NOON, seconds=7)


def test_the_list_has_twenty_commits_of_each_family_on_two_targets_one_of_them_strict() -> None:
    trees, targets = document.listed().trees, Catalog().targets
    assert len({one.name for one in trees}) == 40
    assert [sum(one.family == family for one in trees) for family in ("redis", "valkey")] == [20, 20]
    for one in trees:
        assert re.fullmatch("[0-9a-f]{40}", one.commit)
        assert len(set(one.targets)) == 2
        assert set(one.targets) <= set(targets)
        assert {"armv5", "sparc64", "sparc32plus"} & set(one.targets)


def test_each_explanation_names_commits_of_the_list() -> None:
    names = {one.name for one in document.listed().trees}
    assert all(set(one.commits) <= names for one in document.listed().explanations)


def test_what_the_host_shows_does_not_count_as_a_finding_of_the_machine() -> None:
    assert [one.id for one in answer(judgement(failed=True)).failing] == [SHOWN[0]]
    noted = answer(judgement(failed=True, known=EVERYWHERE))
    assert (noted.failing, [one.id for one in noted.everywhere]) == ([], [SHOWN[0]])


@pytest.mark.parametrize(
    ("judged", "changes", "doubt"),
    [
        (judgement(), {}, ""),
        (judgement(failed=True), {}, ""),
        (judgement(failed=True, known=EVERYWHERE), {}, ""),
        (judgement(unknown=True), {}, ""),
        (judgement(failed=True), {"verdict": Verdict.PASS}, "better than its findings and cells"),
        (judgement(unknown=True), {"verdict": Verdict.PASS}, "better than its findings and cells"),
        (judgement(), {"verdict": Verdict.FAIL}, "nothing failed"),
        (judgement(), {"targets": ()}, "no canary that behaved"),
    ],
)
def test_a_verdict_that_its_evidence_does_not_carry_is_refused(
    tmp_path: Path, judged: Judgement, changes: dict[str, object], doubt: str
) -> None:
    one = msgspec.structs.replace(answer(judged), **changes)
    assert doubt in one.doubt()
    assert bool(doubt) == bool(one.doubt())
    file = tmp_path / "trees.json"
    file.write_bytes(json_codec.encode(TreeAnswers(answers=(one,))))
    if doubt:
        with pytest.raises(UsageError, match="not to be believed"):
            document.read(file)
    else:
        assert document.read(file).answers == (one,)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trees.json").write_text('{"answers": [{', "utf-8")
    with pytest.raises(UsageError, match="not a valid file"):
        document.read(tmp_path / "trees.json")


def test_a_new_answer_replaces_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "trees.json"
    document.store(answer(judgement(unknown=True)), file)
    document.store(answer(judgement()), file)
    assert [one.verdict for one in document.read(file).answers] == [Verdict.PASS]


def test_commits_without_an_answer_come_first_then_unknown_ones() -> None:
    trees = [msgspec.structs.replace(TREE, commit=digit * 40) for digit in "abc"]
    stored = TreeAnswers(answers=(answer(judgement(), trees[0]), answer(judgement(unknown=True), trees[1])))
    assert tool.wanted(trees, stored, again=False) == [trees[2], trees[1]]
    assert tool.wanted(trees, stored, again=True) == [trees[2], trees[1], trees[0]]
    trees[1] = msgspec.structs.replace(trees[1], unknown="It compiles on no machine.")
    assert tool.wanted(trees, stored, again=False) == [trees[2]]


def test_the_page_says_what_is_explained_and_what_is_not() -> None:
    stored = TreeAnswers(answers=(answer(judgement(failed=True)),))
    without, explained = (
        TreeList(trees=(TREE,), explanations=explanations)
        for explanations in ((), (Explanation(finding="wrong-result-life*", because="A limit | is cut."),))
    )
    assert page.UNEXPLAINED in "\n".join(page.commit_rows(without, stored))
    assert "0 of 1 findings" in page.state(without, stored)[0]
    assert r"A limit \| is cut." in "\n".join(page.commit_rows(explained, stored))
    assert "1 of 1 findings" in page.state(explained, stored)[0]
    assert "| redis 0123456789 | 2022-06-30 |" in "\n".join(page.commit_rows(without, TreeAnswers()))


def test_a_cell_without_a_verdict_is_named_with_its_reason() -> None:
    stored = TreeAnswers(answers=(answer(judgement(unknown=True)),))
    rows = page.commit_rows(TreeList(trees=(TREE,)), stored)
    assert "armv5/life: a reason" in rows[-1]
    assert "1 of 4 cells are UNKNOWN, 1 of them" in page.state(TreeList(trees=(TREE,)), stored)[0]
    hopeless = TreeList(trees=(msgspec.structs.replace(TREE, unknown="It compiles on no machine."),))
    assert "It compiles on no machine." in page.commit_rows(hopeless, stored)[-1]
    assert "1 of 4 cells are UNKNOWN, 0 of them" in page.state(hopeless, stored)[0]


@pytest.fixture
def clone(tmp_path: Path) -> tuple[Path, Tree]:
    """A clone with one commit, and that commit."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "file").write_text("content", "utf-8")
    return folder, msgspec.structs.replace(TREE, commit=commit(folder))


def checked(monkeypatch: pytest.MonkeyPatch, clone: tuple[Path, Tree], tmp_path: Path, result: Result) -> TreeAnswer:
    folder, tree = clone
    monkeypatch.setattr(project, "plumb", lambda *_words, **_limits: result)
    return tool.check(tree, folder, tmp_path, jobs=1)


@pytest.mark.usefixtures("safe_checkout")
def test_a_check_without_a_judgement_is_unknown_with_its_last_words(
    tmp_path: Path, clone: tuple[Path, Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Result([], ExitCode.USAGE, b"one\ntwo of /some/folder/file is older than 2.6\n", expired=False, seconds=1)
    found = checked(monkeypatch, clone, tmp_path, said)
    assert (found.verdict, found.exit_code) == (Verdict.UNKNOWN, ExitCode.USAGE)
    assert found.reason == f"the check ended with status {ExitCode.USAGE.value}\none\ntwo of file is older than 2.6"


def test_the_tool_stores_an_answer_and_continues_with_what_is_missing(
    tmp_path: Path, clone: tuple[Path, Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tree = clone
    lost = msgspec.structs.replace(TREE, commit="f" * 40)
    monkeypatch.setattr(document, "listed", lambda: TreeList(trees=(tree, lost)))
    asked = []

    def check(one: Tree, *_arguments: object, **_limits: object) -> TreeAnswer:
        asked.append(one.name)
        return answer(judgement(), one)

    monkeypatch.setattr(tool, "check", check)
    words = ["--git", str(folder), "--document", str(tmp_path / "trees.json")]
    for _ in range(2):
        ended = CliRunner().invoke(tool.main, words)
        assert ended.exit_code == ExitCode.PASS, ended.output
        assert f"no clone contains these commits: {lost.name}" in ended.output
    assert asked == [tree.name]
    assert [one.tree for one in document.read(tmp_path / "trees.json").answers] == [tree.name]
    refused = CliRunner().invoke(tool.main, [*words, "--tree", "redis-0"])
    assert refused.exit_code == ExitCode.USAGE
