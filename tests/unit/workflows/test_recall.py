"""Recall: shares and their intervals, documents that are joined or refused, and explanations of survivors."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from harness.cli.group import plumb
from harness.core import json_codec
from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Occasion, Verdict
from harness.core.strict_toml import ROOT
from harness.judge.findings import Judgement
from harness.judge.verdict import CellVerdict
from harness.workflows.mutation_testing.generator.mutants import Mutant
from harness.workflows.mutation_testing.mutations import Edit
from harness.workflows.mutation_testing.recall import examination, tables
from harness.workflows.mutation_testing.recall.document import (
    JUDGED,
    Header,
    MutantOutcome,
    NewFinding,
    RecallDocument,
    Share,
    State,
    joined,
    read_document,
    share_of,
)
from harness.workflows.mutation_testing.recall.examination import ATTEMPTS, Examiner, evidence_in, in_both
from harness.workflows.mutation_testing.recall.object_code import (
    CompiledUnit,
    ReleaseObjects,
    ReleaseRecord,
    UnreferencedFunction,
)
from harness.workflows.mutation_testing.recall.release_baseline import ReleaseCell, release_cell, useless_cells
from harness.workflows.mutation_testing.recall.sample_run import commit_of
from harness.workflows.workbench import Workbench
from tests.support import fakes
from tests.support.repositories import commit, git
from tests.unit.workflows.test_mutations import a_finding
from tools import recall

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from harness.core.finding import Finding

HEADER = Header(
    server="redis-7.0.15", tier="quick", targets=["armv5"], operators="one", commit="0123456789ab", suite_seed=1
)


def an_outcome(name: str, state: State = "survived", *, file: str = "src/part.c", found_by: str = "") -> MutantOutcome:
    mutant = Mutant(
        name=name,
        operator=name.rpartition("-")[0],
        fault="width",
        targets=["armv5"],
        file=file,
        function="f",
        line=7,
        before="a | b",
        after="",
        edits=[Edit(file=file, anchor="a | b", replacement="")],
    )
    evidence = [NewFinding(finding=f"wrong-result-{name}", targets=["armv5"], suites=[found_by])] if found_by else []
    return MutantOutcome(
        mutant=mutant, state=state, why="", targets=["armv5"], suites=["sds", "bitops"], found_by=evidence
    )


def a_document(*outcomes: MutantOutcome, seed: int = 1, header: Header = HEADER) -> RecallDocument:
    return RecallDocument(header=header, seeds=[seed], baseline=["hang-x"], outcomes=list(outcomes))


def a_judgement(*findings: Finding) -> Judgement:
    return Judgement(
        schema=1,
        verdict=Verdict.FAIL,
        server="redis-7.0.15",
        seed=1,
        run="/run",
        policy="signal",
        optimisation="O2",
        cells=[],
        findings=list(findings),
        remarks=[],
        stages={},
    )


MIXED = a_document(
    an_outcome("drop-1", "found", found_by="sds"),
    an_outcome("drop-2", "survived"),
    an_outcome("drop-3", "equivalent"),
    an_outcome("add-1", "found", file="src/other.c", found_by="bitops"),
    an_outcome("add-2", "invalid"),
    an_outcome("add-3", "unjudged"),
)


@pytest.mark.parametrize(
    ("found", "judged", "low", "high"),
    # The first example is from table I of Newcombe 1998 (Statistics in Medicine 17:857-872).
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (29, 29, 0.8830, 1.0), (0, 0, 0.0, 1.0)],
)
def test_an_interval_is_that_of_wilson(found: int, judged: int, low: float, high: float) -> None:
    interval = Share(found=found, judged=judged).interval
    assert interval == pytest.approx((low, high), abs=1e-4)


def test_only_judged_mutants_count() -> None:
    assert share_of(MIXED.outcomes) == Share(found=2, judged=3)
    assert str(share_of(MIXED.outcomes)) == "2 of 3 (67 %, 21 % to 94 %)"
    assert str(share_of([])) == "none"
    assert tables.summary_of(MIXED) == (
        "found: 2 of 3 (67 %, 21 % to 94 %); beside them 1 equivalent, 1 invalid, 1 unjudged"
    )


def test_tables_group_by_operator_file_and_suite() -> None:
    assert "| `drop` | 1 of 2 (50 %, 9 % to 91 %) | 1 | – | 1 | 0 | 0 |" in tables.by_operator(MIXED)
    assert "| `add` | 1 of 1 (100 %, 21 % to 100 %) | 0 | – | 0 | 1 | 1 |" in tables.by_operator(MIXED)
    assert [row.split(" |")[0] for row in tables.by_file(MIXED)[2:]] == ["| `src/other.c`", "| `src/part.c`"]
    assert tables.by_suite(MIXED)[2:] == ["| `bitops` | 3 | 1 |", "| `sds` | 3 | 1 |"]
    assert "| `drop-1` | armv5 | sds | `wrong-result-drop-1` |" in tables.found_rows(MIXED)


REACHED = (True, False, False, None)


def test_survivors_that_no_test_executes_have_a_column() -> None:
    ends = [an_outcome(f"drop-{number}", "survived") for number in range(4)]
    reached = [msgspec.structs.replace(one, reached=known) for one, known in zip(ends, REACHED, strict=True)]
    rows = tables.by_operator(a_document(*reached))
    assert "| `drop` | 0 of 4 (0 %, 0 % to 49 %) | 4 | 2 | 0 | 0 | 0 |" in rows


def test_the_weakest_pairs_of_suite_and_operator_come_first() -> None:
    assert tables.weakest(MIXED)[2:] == [
        "| `bitops` | `drop` | 2 | 0 |",
        "| `sds` | `add` | 1 | 0 |",
        "| `sds` | `drop` | 2 | 1 |",
        "| `bitops` | `add` | 1 | 1 |",
    ]


def test_findings_that_name_the_changed_function_are_counted_by_what_they_show() -> None:
    """The identity of a wrong value contains a test's name, which may contain a function's name by chance."""

    def found(name: str, *identities: str, file: str = "src/part.c") -> MutantOutcome:
        evidence = [NewFinding(finding=each, targets=["armv5"], suites=["sds"]) for each in identities]
        return msgspec.structs.replace(an_outcome(name, "found", file=file), found_by=evidence)

    document = a_document(
        found("drop-1", "alignment-f-load", "wrong-result-sds_test_one.py_test_b"),
        found("drop-2", "alignment-memcpy-load"),
        found("drop-3", "crash-if-x"),
        found("drop-4", "wrong-result-protocol-f-1"),
        found("drop-5", "alignment-f-load", file="src/part.h"),
        an_outcome("drop-6"),
    )
    assert tables.by_evidence(document)[2:] == ["| a place in the code | 3 | 1 |", "| a wrong value alone | 1 | 0 |"]


def test_a_survivors_row_has_its_place_its_change_and_its_reason() -> None:
    (row,) = tables.survivor_rows(MIXED, {"drop-2": "nothing reads it"})[2:]
    assert row == r"| `drop-2` | src/part.c:7 | `a \| b` becomes nothing | nothing reads it |"


def test_samples_of_several_seeds_are_joined_and_a_mutant_counts_once() -> None:
    first = a_document(an_outcome("drop-1", "found", found_by="sds"), an_outcome("drop-2"), seed=3)
    second = a_document(an_outcome("drop-2"), an_outcome("drop-4"), seed=2)
    both = joined([first, second])
    assert both.seeds == [2, 3]
    assert [outcome.mutant.name for outcome in both.outcomes] == ["drop-1", "drop-2", "drop-4"]
    assert both.baseline == ["hang-x"]


@pytest.mark.parametrize("field", Header.__struct_fields__)
def test_samples_that_differ_are_not_joined(field: str) -> None:
    other = {"tier": "full", "suite_seed": 2, "targets": ["sparc64"]}.get(field, "another")
    changed = msgspec.structs.replace(HEADER, **{field: other})
    with pytest.raises(UsageError, match=f"two samples differ in `{field}`"):
        joined([a_document(), a_document(header=changed)])


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "recall.json"
    file.write_bytes(json_codec.pretty(MIXED))
    assert read_document(file) == MIXED
    file.write_text("{}", "utf-8")
    with pytest.raises(UsageError, match="not the document of a sample"):
        read_document(file)


def test_a_finding_counts_if_two_runs_show_it() -> None:
    def seen(*findings: str) -> list[NewFinding]:
        return [NewFinding(finding=each, targets=["armv5"], suites=["sds"]) for each in findings]

    assert in_both(seen("a", "b"), seen("b", "c")) == seen("b")
    assert in_both(seen("a"), seen()) == []
    assert in_both(seen("crash-a"), seen("crash-b")) == seen("crash-b")
    assert in_both(seen(), seen()) == []


class ToldExaminer(Examiner):
    """An examiner whose runs show what they are told to, and whose stage has one target."""

    def __init__(self, *shown: str, lasting: str = "") -> None:
        """`shown`: the test that fails in each run, empty for none. `lasting`: the one that fails again."""
        self.without: list[list[str]] = []
        self._shown = [*shown]
        self._lasting = lasting

    def _stages(self, *_: object) -> Iterator[tuple[str, list[str]]]:
        yield "armv5", ["sds"]

    def _check(self, *_: object, chance: Collection[str] = (), **__: object) -> Judgement:
        self.without.append(sorted(chance))
        test = self._shown.pop(0)
        (witness,) = a_finding(identity="", suite="sds").witnesses
        seen = msgspec.structs.replace(witness, test=test)
        finding = msgspec.structs.replace(a_finding(identity=f"wrong-result-{test}", suite="sds"), witnesses=[seen])
        return a_judgement(*([finding] if test else []))

    def _new_findings(self, judgement: Judgement, target: str, suites: list[str]) -> list[NewFinding]:
        del target, suites
        return evidence_in(judgement, [])

    def _seen_again(self, *words: Any) -> list[NewFinding]:
        outcome: MutantOutcome = words[2]
        return [one for one in outcome.found_by if self._lasting and one.finding.endswith(self._lasting)]

    def ended(self, folder: Path) -> MutantOutcome:
        """The outcome of a mutant."""
        return self._checked(an_outcome("drop-1").mutant, folder / "tree", ["armv5"])


def test_what_a_failure_by_chance_has_kept_from_running_runs_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the stage's other tests never ran, and the mutant counted as a survivor."""
    monkeypatch.setattr(examination, "_may_be_entered", lambda *_: True)
    found = ToldExaminer("test_chance", "test_real", lasting="test_real")
    assert (found.ended(tmp_path).state, found.without) == ("found", [[], ["test_chance"]])
    survived = ToldExaminer("test_chance", "")
    assert (survived.ended(tmp_path).state, survived.without) == ("survived", [[], ["test_chance"]])
    assert ToldExaminer("test_chance", "").ended(tmp_path).why == "seen once, and not again: wrong-result-test_chance"
    busy = ToldExaminer(*(f"test_{number}" for number in range(ATTEMPTS)))
    assert busy.ended(tmp_path).state == "unjudged"
    assert len(busy.without) == ATTEMPTS
    assert ToldExaminer("").ended(tmp_path).why == "no suite found it"


def test_only_findings_count_that_are_neither_known_nor_the_releases_own() -> None:
    known = msgspec.structs.replace(a_finding(identity="wrong-result-known"), known="listed")
    judgement = a_judgement(a_finding(identity="wrong-result-new"), a_finding(identity="wrong-result-own"), known)
    assert evidence_in(judgement, ["wrong-result-own"]) == [
        NewFinding(finding="wrong-result-new", targets=["armv5"], suites=["sds"])
    ]


def test_the_tests_that_found_the_releases_own_findings_are_grouped_by_suite() -> None:
    finding = a_finding(identity="wrong-result-own", suite="sds")
    (witness,) = finding.witnesses
    occasion = Occasion(test="sds/test_other.py::test_b", command="", title="", said="", functions=())
    seen = msgspec.structs.replace(witness, test="sds/test_one.py::test_a", occasions=[occasion])
    judgement = a_judgement(msgspec.structs.replace(finding, witnesses=[seen]))
    assert release_cell(judgement, "sds", 1.26) == ReleaseCell(
        findings=["wrong-result-own"], tests=["sds/test_one.py::test_a", "sds/test_other.py::test_b"], seconds=1.3
    )
    assert release_cell(judgement, "bitops", 2.0) == ReleaseCell(findings=[], tests=[], seconds=2.0)


def test_a_suite_of_which_every_test_fails_in_the_release_finds_no_mutant() -> None:
    def cell(suite: str, *, passed: int, failed: int) -> CellVerdict:
        return CellVerdict("armv5", suite, Verdict.FAIL, 1.0, "tests failed", passed, failed, skipped=0)

    finding = a_finding(identity="alignment-murmur32-load", suite="sds")
    (witness,) = finding.witnesses
    seen = msgspec.structs.replace(finding, witnesses=[msgspec.structs.replace(witness, cells=["armv5/sds"])])
    cells = [
        cell("sds", passed=0, failed=100),
        cell("units", passed=0, failed=2),
        cell("limits", passed=5, failed=31),
        cell("vectors", passed=0, failed=0),
    ]
    judgement = msgspec.structs.replace(a_judgement(seen), cells=cells)
    assert useless_cells(judgement) == [
        "armv5/sds: 100 tests failed and none passed: alignment-murmur32-load",
        "armv5/units: 2 tests failed and none passed: tests failed",
    ]


def test_an_unexplained_survivor_is_reported(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_bytes(json_codec.pretty(MIXED))
    (tmp_path / "survivors.toml").write_text("survivors = []\n", "utf-8")
    assert recall.unexplained(recall.documents(tmp_path), recall.survivors(tmp_path)) == ["redis-7.0.15: drop-2"]
    entry = '[[survivors]]\nserver = "redis-7.0.15"\nmutant = "drop-2"\n'
    (tmp_path / "survivors.toml").write_text(f'{entry}reason = "nothing reads it"\n', "utf-8")
    assert recall.unexplained(recall.documents(tmp_path), recall.survivors(tmp_path)) == []
    (tmp_path / "survivors.toml").write_text(entry, "utf-8")
    with pytest.raises(UsageError, match="drop-2 has neither a reason nor a test"):
        recall.survivors(tmp_path)
    (tmp_path / "survivors.toml").write_text(f'{entry}test = "a::b"\nsame = true\n', "utf-8")
    with pytest.raises(UsageError, match="drop-2 is said to be the same, and a test finds it"):
        recall.survivors(tmp_path)


def stored(monkeypatch: pytest.MonkeyPatch, folder: Path, said: str, *samples: RecallDocument) -> None:
    """Samples in place of those of measurements/recall, and what is said of their survivors."""
    for number, sample in enumerate(samples):
        (folder / f"{number}.json").write_bytes(json_codec.pretty(sample))
    (folder / "survivors.toml").write_text(said or "survivors = []\n", "utf-8")
    documents, survivors = recall.documents(folder), recall.survivors(folder)
    monkeypatch.setattr(recall, "documents", lambda: documents)
    monkeypatch.setattr(recall, "survivors", lambda: survivors)


def explained(number: int, words: str) -> str:
    return f'[[survivors]]\nserver = "redis-7.0.15"\nmutant = "drop-{number}"\n{words}\n'


def test_survivors_that_behave_like_the_release_are_counted_separately(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = explained(2, 'reason = "nothing reads it"\nsame = true') + explained(4, 'test = "a::b"')
    said += explained(6, 'reason = "nothing prints it"') + "[[held_back]]\nseed = 1\n"
    sample = a_document(*MIXED.outcomes, an_outcome("drop-4"), an_outcome("drop-6"))
    stored(monkeypatch, tmp_path, said, sample)
    row = recall.sample_rows()[2]
    assert row.endswith("| 2 of 5 (40 %, 12 % to 77 %) | 2 of 4 (50 %, 15 % to 85 %) | 3 | 1 | 1 | 1 | 1 | 1 | 1 |")
    assert "| redis-7.0.15 | width | 2 of 5 (40 %, 12 % to 77 %) | 3 | 1 | 1 | 1 |" in recall.kind_rows()


def test_of_a_mutant_in_several_samples_of_a_release_the_newest_outcome_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def sample(commit: str, seed: int, *outcomes: MutantOutcome) -> RecallDocument:
        return a_document(*outcomes, seed=seed, header=msgspec.structs.replace(HEADER, commit=commit))

    said = explained(1, 'test = "a::b"') + "".join(f"[[held_back]]\nseed = {seed}\n" for seed in (9, 2))
    newer = sample("b", 2, an_outcome("drop-1", "found", found_by="sds"))
    older = sample("c", 9, an_outcome("drop-1"), an_outcome("drop-2", "found", found_by="sds"))
    training = sample("a", 5, an_outcome("drop-3"))
    stored(monkeypatch, tmp_path, said, newer, older, training)
    assert [row.split(" | ")[3] for row in recall.sample_rows()[2:4]] == ["2", "9"], "the newest sample is not first"
    assert recall.sample_rows()[-1].startswith("1 training samples")
    (release,) = recall.releases()
    assert [(one.mutant.name, one.state) for one in release.outcomes] == [("drop-1", "found"), ("drop-2", "found")]
    assert "### redis-7.0.15" in recall.suite_rows()
    assert recall.result_rows([9])[0] == "### redis-7.0.15, quick, seed 9, commit c"
    assert sum(line.startswith("###") for line in recall.result_rows()) == 3


def test_survivors_are_split_into_those_that_no_test_executes_and_those_that_none_notices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = explained(1, 'reason = "nothing reads it"\nsame = true') + explained(2, 'test = "a::b"')
    said += explained(3, 'test = "a::b"') + explained(4, 'test = "a::b"') + "[[held_back]]\nseed = 1\n"
    ends = [an_outcome(f"drop-{number}") for number in (1, 2, 3)]
    reached = [
        msgspec.structs.replace(one, reached=known) for one, known in zip(ends, (True, True, False), strict=True)
    ]
    found = [
        an_outcome(f"drop-{number}", "found", file=file, found_by="sds") for number, file in ((5, "a.c"), (6, "b.c"))
    ]
    found = [msgspec.structs.replace(one, reached=True) for one in found]
    other = msgspec.structs.replace(an_outcome("drop-4", file="src/a.c"), reached=False)
    stored(monkeypatch, tmp_path, said, a_document(*reached, *found, other, an_outcome("drop-9", "equivalent")))
    assert recall.reach_rows()[2:] == [
        "| redis-7.0.15 | all | all | 6 | 2 | 2 | 1 |",
        "| redis-7.0.15 | `src/a.c` | `drop` | 1 | 1 | 0 | 0 |",
        "| redis-7.0.15 | `src/part.c` | `drop` | 3 | 1 | 2 | 1 |",
    ]


def test_an_operators_row_counts_its_mutants_of_all_releases() -> None:
    rows = recall.operator_rows()[2:]
    judged = sum(int(found.group(1)) for row in rows if (found := re.search(r"\d+ of (\d+) \|", row)))
    assert judged == sum(len(one.of(*JUDGED)) for one in recall.releases()) > 0


def test_every_survivor_has_a_reason_or_a_test_that_exists() -> None:
    said, samples = recall.survivors(), recall.documents()
    assert recall.unexplained(samples, said) == [], "say why in measurements/recall/survivors.toml, or add a test"
    survived = {(one.header.server, each.mutant.name) for one in samples for each in one.of("survived")}
    assert {(one.server, one.mutant) for one in said.survivors} <= survived, "entries for mutants that do not survive"
    for one in said.survivors:
        if one.test:
            file, _, name = one.test.partition("::")
            content = (ROOT / file).read_text("utf-8")
            if file.endswith(".testsuite"):
                assert f"\ntest {name} {{" in content, one.test
            else:
                functions = {node.name for node in ast.walk(ast.parse(content)) if isinstance(node, ast.FunctionDef)}
                assert name in functions, one.test


def test_a_sample_whose_list_of_mutants_was_read_is_training_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    later = msgspec.structs.replace(HEADER, commit="later")
    said = "survivors = []\n" + "".join(
        f'[[held_back]]\nseed = {seed}\nwanted = {wanted}\nread_before = ["{name}"]\n'
        for seed, wanted, name in ((3, 9, "drop-1"), (5, 7, "drop-3"))
    )
    stored(
        monkeypatch,
        tmp_path,
        said,
        a_document(an_outcome("drop-1"), an_outcome("drop-3"), seed=3),
        a_document(an_outcome("drop-1"), seed=4, header=later),
        a_document(an_outcome("drop-2"), seed=3, header=later),
    )
    row, blank, sentence = recall.sample_rows()[2:]
    cells = row.split(" | ")
    # It is enough that one seed was read: both samples of the later commit count as training data.
    assert (cells[3], blank) == ("3", "")
    assert sentence == "1 training samples are stored, too. They say nothing about recall."
    assert cells[4] == "2 of 9", "time ran out"
    assert cells[6].startswith("0 of 1"), "another seed's list counts for that seed"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--seed", "3"], "--seed"),
        (["--server", "redis-7.0.15"], "--server"),
        (["--sample", "3"], "--sample"),
        (["--generate", "--time", "1h"], "--time"),
        (["--generate", "--sample", "3", "--target", "armv5"], "--target"),
        (["--generate", "--sample", "3", "--on", "local:2"], "--on"),
    ],
)
def test_an_option_without_effect_is_refused(words: list[str], option: str) -> None:
    result = CliRunner().invoke(plumb, ["mutate", "no-such-mutation", *words], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code is ExitCode.USAGE
    assert result.exception.what == f"{option} has no effect here"


def test_a_ranking_counts_up_to_its_place_and_one_beyond_the_list_never(tmp_path: Path) -> None:
    entry = """
[[rankings]]
bug = "drop-1"
function = "save"
target = "sparc64"
suite = "sds"
rank = {rank}
failing = 1
passing = 9
points_to = "{points_to}"
{explained}
"""
    ranks = (
        (1, "save", ""),
        (5, "", 'explained = 1\nparts_in = "save"'),
        (6, "load", 'unexplained = "not run"'),
        (0, "", 'explained = 0\nparts_in = "load"\ntraining = true'),
        (2, "", 'explained = 2\ncommit = "def"'),
    )
    text = "".join(
        entry.format(rank=rank, points_to=points_to, explained=explained) for rank, points_to, explained in ranks
    )
    (tmp_path / "suspects.toml").write_text(f'commit = "abc"\n{text}', "utf-8")
    lines = recall.ranking_rows(tmp_path)[2:]
    assert [row.split(" | ")[5] for row in lines] == ["1", "5", "6", "beyond 10", "2"]
    said = "no value differs"
    assert [row.split(" | ")[6] for row in lines] == [said, "1", "not run", "beyond 10", "2"]
    assert [row.split(" | ")[-1] for row in lines] == [
        *["held back, abc |"] * 3,
        "training, abc |",
        "held back, def |",
    ]
    shares = recall.suspect_rows(tmp_path)
    assert shares[0] == "| the changed function is | held back | training |"
    text = "\n".join(shares)
    assert re.findall(r"(\d) of 4", text) == ["1", "3", "4", "1"]
    assert re.findall(r"(\d) of 3", text) == ["2", "3", "1"]
    assert re.findall(r"(\d) of 1\b", text) == ["0"] * 7


def test_outcomes_of_one_state_of_the_suites_are_not_resumed_with_another(tmp_path: Path) -> None:
    """Regression: all states after a commit had the same name, so that a sample mixed outcomes of several states."""
    suite, notes = tmp_path / "suites" / "test_it.py", tmp_path / "notes"
    fakes.write(suite, "first")
    # Regression: the links of Plumbline's own environment were refused like those of a stranger's tree.
    fakes.write(tmp_path / ".gitignore", ".venv\n")
    (tmp_path / ".venv").symlink_to("/usr")
    git(tmp_path, "init", "--quiet")
    made = commit(tmp_path)[:12]
    fakes.write(notes, "nothing depends on them")
    states = [commit_of(tmp_path)]
    for text in ("second", "third"):
        fakes.write(suite, text)
        states.append(commit_of(tmp_path))
    suite.unlink()
    states.append(commit_of(tmp_path))
    assert states[0] == made
    assert all(state.startswith(f"{made}+") for state in states[1:])
    assert len(set(states)) == len(states)


def test_a_function_never_runs_if_no_program_of_the_release_refers_to_it(tmp_path: Path) -> None:
    """A file may be compiled for several programs, and one of them may need the function."""
    tree = fakes.opened(fakes.server_tree(tmp_path / "tree"))
    fakes.write(tree.path / "src" / "sds.c", "struct sdshdr;\n")
    units = [
        CompiledUnit(folder="src", words=["-c", word], object=made, sources=[source, "src/sds.h"], digest="")
        for word, made, source in (
            ("sds.c", "sds.o", "src/sds.c"),
            ("sds.c", "cli-sds.o", "src/sds.c"),
            ("zmalloc.c", "zmalloc.o", "src/zmalloc.c"),
        )
    ]
    places = [("sds.o", "sdsunused"), ("cli-sds.o", "sdsunused"), ("sds.o", "sdsclient"), ("sds.o", "sdshdr")]
    gone = [UnreferencedFunction(folder="src", object=made, function=function) for made, function in places]
    gone.append(UnreferencedFunction(folder="src", object="cli-sds.o", function="sdshdr"))
    objects = ReleaseObjects(Workbench.default(), tree, fakes.target(), ReleaseRecord(units=units, unreferenced=gone))
    asked = [
        ("src/sds.c", "sdsunused"),
        ("src/sds.c", "sdsclient"),
        ("src/sds.c", "sdshdr"),
        ("src/sds.h", "sdsunused"),
    ]
    assert [objects.is_unreferenced(*one) for one in asked] == [True, False, False, False]
