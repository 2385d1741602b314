"""Mutations: complete data, edits that match exactly or are refused, and the findings that count as found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from harness.core import json_codec
from harness.core.errors import InconclusiveError, UsageError
from harness.core.finding import Finding, Witness
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing import campaign
from harness.workflows.mutation_testing.mutations import Edit, Expected, Mutation, caught, mutations, plant
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

EVERY = mutations()


def a_mutation(*edits: Edit, expected: list[Expected] | None = None) -> Mutation:
    return Mutation(
        name="planted",
        title="a bug",
        fault="width",
        server="redis-7.0.15",
        edits=list(edits),
        expected=expected or [Expected(targets=["armv5", "sparc64"], suites=["sds"], finding="wrong-*")],
    )


def an_edit(*, file: str = "src/sds.c", anchor: str = "two", replacement: str = "2", after: str = "") -> Edit:
    return Edit(file=file, anchor=anchor, replacement=replacement, after=after)


def a_finding(
    *,
    identity: str = "wrong-result-x",
    target: str = "armv5",
    suite: str = "sds",
    function: str = "",
    kind: Literal["wrong-result", "build"] = "wrong-result",
    known: str = "",
) -> Finding:
    witness = Witness(
        target=target, suite=suite, file="", line=0, instruction="", access="", test="", evidence="", backtrace=[]
    )
    return Finding(
        id=identity,
        kind=kind,
        title="",
        function=function,
        file="",
        line=0,
        instruction="",
        access="",
        origin="server",
        targets=[target],
        command="",
        replay="",
        known=known,
        witnesses=[witness],
        occurrences=1,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "sds.c", "one two three\nfunction\none three two\none\n")
    return path


def planted(tree: Path, *edits: Edit) -> str:
    into = tree.parent / "mutant"
    plant(a_mutation(*edits), tree, into)
    return (into / "src" / "sds.c").read_text("utf-8")


def test_an_edit_changes_only_the_copy(tree: Path) -> None:
    before = (tree / "src" / "sds.c").read_text("utf-8")
    assert planted(tree, an_edit(anchor="function", replacement="changed")) == before.replace("function", "changed")
    assert (tree / "src" / "sds.c").read_text("utf-8") == before


def test_an_anchor_is_the_first_match_after_its_preceding_text(tree: Path) -> None:
    assert planted(tree, an_edit(after="function")) == "one two three\nfunction\none three 2\none\n"


def test_several_edits_are_made_one_after_the_other(tree: Path) -> None:
    edits = (an_edit(anchor="function", replacement="a two"), an_edit(anchor="a two", replacement="b"))
    assert planted(tree, *edits) == "one two three\nb\none three two\none\n"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (an_edit(anchor="four"), "'four' is there no times, and not once (planted: src/sds.c)"),
        (an_edit(anchor="two"), "'two' is there 2 times, and not once (planted: src/sds.c)\n  try: say `after` which"),
        (an_edit(after="four"), "'four' is there no times"),
        (an_edit(after="three"), "'three' is there 2 times"),
        (an_edit(anchor="function", after="function\none three"), "no 'function' behind 'function\none three'"),
        (an_edit(file="src/absent.c"), "the mutation's file does not exist (planted: src/absent.c)"),
    ],
)
def test_an_edit_that_does_not_match_is_refused(tree: Path, edit: Edit, message: str) -> None:
    with pytest.raises(UsageError) as caught_error:
        planted(tree, edit)
    assert message in str(caught_error.value)


@pytest.mark.parametrize("name", EVERY)
def test_every_mutation_names_existing_targets_and_files(name: str) -> None:
    catalog, one = Catalog(), EVERY[name]
    assert one.server in catalog.servers
    assert {*one.targets, *one.silent} <= set(catalog.targets)
    assert not set(one.targets) & set(one.silent)
    assert set(one.suites) <= set(catalog.suites)
    assert one.edits
    assert one.targets
    if one.fault == "alignment":
        assert any(expected.finding.startswith("alignment-") for expected in one.expected), (
            "the finding must be expected by name"
        )


def test_there_are_ten_mutations_with_every_kind_of_fault() -> None:
    assert len(EVERY) >= 10
    assert {one.fault for one in EVERY.values()} == {
        "alignment",
        "byte-order",
        "width",
        "signedness",
        "bounds",
        "order",
    }


def test_a_mutation_is_caught_on_the_targets_that_show_it() -> None:
    found = caught(a_mutation(), [a_finding(), a_finding(identity="wrong-other")])
    assert {target: [one.id for one in findings] for target, findings in found.items()} == {
        "armv5": ["wrong-result-x", "wrong-other"],
        "sparc64": [],
    }


@pytest.mark.parametrize(
    "finding",
    [
        a_finding(identity="hang-x"),
        a_finding(target="aarch64"),
        a_finding(suite="protocol"),
        a_finding(function="another"),
        a_finding(function="named", known="the release has it, too"),
        a_finding(function="named", kind="build"),
    ],
    ids=["another-kind", "another-target", "another-suite", "another-function", "known", "not-built"],
)
def test_an_unexpected_finding_does_not_count(finding: Finding) -> None:
    expected = [Expected(targets=["armv5"], suites=["sds"], finding="wrong-*", function="named")]
    assert caught(a_mutation(expected=expected), [finding]) == {"armv5": []}


def test_the_table_shows_missed_mutations() -> None:
    def row(name: str, findings: list[str], causes: int) -> campaign.MutationRow:
        result = campaign.MutationResult(
            target="armv5", suites=["sds"] * bool(findings), findings=findings, function="f"
        )
        return campaign.MutationRow(
            mutation=name,
            title="",
            fault="width",
            allocator="libc",
            seconds=4.4,
            run="/run",
            seen=[result],
            findings=len(findings),
            causes=causes,
            annotations=2,
            at_fault=len(findings) // 2,
        )

    text = campaign.text_of([row("one", ["wrong-result-x", "wrong-result-y"], 1), row("other", [], 0)])
    assert "| `one` (4 s) | armv5 | sds | wrong-result-x | f |" in text
    assert "| `other` (4 s) | armv5 |  | **missed** | f |" in text
    assert text.endswith(
        "1 of 2 found; 0.50 causes and 1.00 findings for each bug; 1 of 4 annotations stand in a file with the bug"
    )


def test_a_workers_document_is_about_its_mutation_and_its_targets() -> None:
    """An empty document counted as no bug that was missed, and so did one without targets."""
    planted = a_mutation()

    def document(name: str, *targets: str) -> str:
        seen = [
            campaign.MutationResult(target=one, suites=["sds"], findings=["wrong-x"], function="") for one in targets
        ]
        row = campaign.MutationRow(
            mutation=name, title="", fault="width", allocator="libc", seconds=1.0, run="/run", seen=seen
        )
        return json_codec.pretty([row]).decode()

    assert campaign.row_in(document("planted", "armv5", "sparc64"), planted, ()).caught
    assert campaign.row_in(document("planted", "sparc64"), planted, ("sparc64",)).caught
    for wrong in ("[]", "", document("other", "armv5", "sparc64"), document("planted", "armv5"), document("planted")):
        with pytest.raises(InconclusiveError, match="a worker's document is not that of its job"):
            campaign.row_in(wrong, planted, ())


@pytest.mark.parametrize(
    ("loud", "silent", "is_caught"), [(["order-x"], [], True), ([], [], False), (["order-x"], ["unknown-order"], False)]
)
def test_a_bug_of_order_is_caught_if_it_shows_only_where_the_order_allows_it(
    loud: list[str], silent: list[str], is_caught: bool
) -> None:
    def result(target: str, findings: list[str], *, must_be_silent: bool) -> campaign.MutationResult:
        return campaign.MutationResult(
            target=target, suites=[], findings=findings, function="", must_be_silent=must_be_silent
        )

    row = campaign.MutationRow(
        mutation="one",
        title="",
        fault="order",
        allocator="libc",
        seconds=1.0,
        run="/run",
        seen=[result("aarch64", loud, must_be_silent=False), result("sparc64", silent, must_be_silent=True)],
    )
    assert row.caught == is_caught
    assert ("silent, as due" in campaign.text_of([row])) == (not silent)


def test_mutations_are_chosen_by_name_and_glob() -> None:
    assert [one.name for one in campaign.chosen(["sds-*"])] == [name for name in EVERY if name.startswith("sds-")]
    assert len(campaign.chosen([])) == len(EVERY)
    with pytest.raises(UsageError, match="unknown mutation 'sds-heder-size'"):
        campaign.chosen(["sds-heder-size"])


@pytest.mark.parametrize("name", EVERY)
def test_every_mutation_has_its_row(name: str) -> None:
    rows = [line for line in (ROOT / "docs" / "MUTATIONS.md").read_text("utf-8").splitlines() if f"`{name}` |" in line]
    named = {*EVERY[name].targets, *EVERY[name].silent}
    assert {target for target in named if any(target in row for row in rows)} == named


def test_a_target_that_has_only_the_hosts_order_shows_a_bug_of_order_in_that_one() -> None:
    targets = [Catalog().targets[name] for name in ("aarch64", "native-tsan", "sparc64")]
    assert campaign.by_order("weak", targets) == {"weak": ["aarch64", "sparc64"], "usual": ["native-tsan"]}
    assert campaign.by_order("usual", targets) == {"usual": ["aarch64", "native-tsan", "sparc64"]}
