"""Mutants of the harness: each changes one place as its operator says, and the tests that fail are found."""

from __future__ import annotations

import ast
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from harness.core import json_codec
from harness.core.strict_toml import ROOT
from tools.harness_mutants import document, observer
from tools.harness_mutants.journal import TIME, Entry, Journal
from tools.harness_mutants.operators import Mutant, compiles, mutants_in, mutants_of
from tools.harness_mutants.sample import draw
from tools.harness_mutants.stages import Stages, apart, changed_files
from tools.harness_mutants.trial import END, End, TrialResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tools.harness_mutants.journal import Stage

FILE = "harness/judge/example.py"
SOURCE = '''\
"""Docstrings are no place."""

LIMIT = 7


class Counter:
    """Counts."""

    SIZE: int = 2

    def over(self, ä: int) -> bool:
        """Whether it is over."""
        assert ä == 3
        if ä < LIMIT and self.ready:  # and nothing else
            self.count += 1
            return not self.idle
        raise ValueError(f"{1 + 1} wrong")

    def names(self, words: list[str]) -> list[str]:
        for word in words:
            if not word:
                continue
            self.add(word)
        return [word for word in words if word is not None]


def larger(one: int, other: int = 4) -> int:
    return max(one - 1, other)
'''


def test_each_operator_changes_its_places() -> None:
    mutants = mutants_of(FILE, SOURCE.encode())
    assert {(one.function, one.operator, one.before, one.after, one.at_import) for one in mutants} == {
        ("<module>", "constant", "7", "8", True),
        ("Counter", "constant", "2", "3", True),
        ("Counter.over", "comparison", "<", "<=", False),
        ("Counter.over", "and or", "and", "or", False),
        ("Counter.over", "condition", "ä < LIMIT and self.ready", "(not (ä < LIMIT and self.ready))", False),
        ("Counter.over", "no effect", "self.count += 1", "pass", False),
        ("Counter.over", "constant", "1", "2", False),
        ("Counter.over", "condition", "not self.idle", "(self.idle)", False),
        ("Counter.over", "no effect", 'raise ValueError(f"{1 + 1} wrong")', "pass", False),
        ("Counter.names", "condition", "not word", "(word)", False),
        ("Counter.names", "end of loop", "continue", "break", False),
        ("Counter.names", "no effect", "self.add(word)", "pass", False),
        ("Counter.names", "empty result", "[word for word in words if word is not None]", "[]", False),
        ("Counter.names", "condition", "word is not None", "(not (word is not None))", False),
        ("Counter.names", "comparison", "is not", "is", False),
        ("<module>", "constant", "4", "5", True),
        ("larger", "empty result", "max(one - 1, other)", "0", False),
        ("larger", "opposite function", "max", "min", False),
        ("larger", "arithmetic", "-", "+", False),
        ("larger", "constant", "1", "2", False),
    }


def test_a_mutant_differs_from_its_file_in_one_place_and_has_the_place_of_its_line() -> None:
    for one in mutants_of(FILE, SOURCE.encode()):
        changed = one.apply(SOURCE.encode())
        assert compiles(changed), one
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), one
        assert one.before.splitlines()[0] in SOURCE.splitlines()[one.line - 1] or one.line < one.last_line, one
        assert (
            changed[: one.start] + one.before.encode() + changed[one.start + len(one.after.encode()) :]
            == SOURCE.encode()
        )


def test_names_are_unique_and_a_line_added_elsewhere_changes_none() -> None:
    names = [one.name for one in mutants_of(FILE, SOURCE.encode())]
    assert len(set(names)) == len(names)
    assert names == [one.name for one in mutants_of(FILE, b"# A comment.\n" + SOURCE.encode())]


def test_what_does_not_compile_is_not_drawn() -> None:
    assert not compiles(b"def f():\n    break\n")
    assert compiles(b"def f():\n    pass\n")


def example(root: Path, text: str = SOURCE) -> list[Mutant]:
    """The mutants of a harness of one file."""
    path = root / FILE
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    return mutants_in(root)


def test_a_sample_is_the_seeds_has_a_line_once_and_starts_the_larger_one(tmp_path: Path) -> None:
    mutants = example(tmp_path)
    drawn = draw(mutants, tmp_path, 1, {"judge": 6, "run": 3})
    assert drawn == draw(mutants, tmp_path, 1, {"judge": 6})
    assert len({one.line for one in drawn}) == 6
    assert drawn != draw(mutants, tmp_path, 2, {"judge": 6})
    assert draw(mutants, tmp_path, 1, {"judge": 4}) == drawn[:4]
    assert draw(mutants, tmp_path, 1, {"judge": 2}, skip=4) == drawn[4:]


def test_mutants_that_overlap_are_planted_apart(tmp_path: Path) -> None:
    mutants = {(one.function, one.operator): one for one in example(tmp_path)}
    whole, part = mutants["larger", "empty result"], mutants["larger", "opposite function"]
    other = mutants["Counter.names", "end of loop"]
    assert apart([whole, part, other]) == [whole, other]
    (content,) = changed_files(tmp_path, [part, other]).values()
    assert content.decode() == SOURCE.replace("max(", "min(").replace("continue", "break")


ARITHMETIC = """\
import functools

STEP = 3


@functools.cache
def add(one: int) -> int:
    return one + STEP


def first(one: int) -> int:
    return add(one) * 2


def never(one: int) -> int:
    while one != 0:
        one = one - 1
    return one
"""
TESTS: dict[str, tuple[Callable[[dict[str, Any]], bool], list[str]]] = {
    "tests/test_example.py::test_first": (lambda code: code["first"](3) == 12, ["first"]),
    "tests/test_example.py::test_never": (lambda code: code["never"](3) == 0, ["never"]),
    "tests/test_other.py::test_add": (lambda code: code["add"](0) == 3, []),
    "tests/test_other.py::test_of_nothing": (lambda code: "add" in code, []),
}
"""Test -> whether it passes, and the functions that it enters: nobody enters `add`, whose answers a cache keeps."""


class FakeCheckout:
    """Runs functions in place of pytest."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.mutants = example(self.root, ARITHMETIC)
        for file in ("test_example.py", "test_other.py"):
            (self.root / "tests").mkdir(exist_ok=True)
            (self.root / "tests" / file).touch()
        self.state = folder / "state"
        self.trials: list[tuple[str, ...]] = []
        """The tests of each trial."""
        self.breaks_off = False
        """Whether the mutant that no test notices has pytest end at the first failure, without a record of it."""

    def run(
        self,
        _files: Sequence[str],
        *,
        chosen: Sequence[str] | None = None,
        changed: Mapping[str, bytes] | None = None,
        first_failure: bool = False,
        keep: Path | None = None,
        **_: object,
    ) -> TrialResult:
        if keep is not None:
            (keep / observer.ENTERED).mkdir(parents=True)
            entered = [f"{test}\t{FILE}\t{name}\n" for test, (_, names) in TESTS.items() for name in names]
            (keep / observer.ENTERED / "1").write_text("".join(entered), "utf-8")
        code: dict[str, Any] = {}
        text = (changed or {}).get(FILE, ARITHMETIC.encode()).decode()
        expired = "one + 1" in text or "one - 2" in text
        exec(text, code)  # noqa: S102 - the mutants of ARITHMETIC
        ends = []
        broken = False
        for test in chosen or TESTS:
            if expired and test.endswith("never"):
                break
            passes = TESTS[test][0](code)
            if not passes and self.breaks_off and text.rstrip().endswith("return 0"):
                broken = True
                break
            ends.append(End(test=test, outcome="passed" if passes else "failed", when="teardown", seconds=0.1))
            if not passes and first_failure:
                break
        else:
            expired = False
        self.trials.append(tuple(chosen or TESTS))
        if keep is not None:
            (keep / "ends.jsonl").write_bytes(b"".join(json_codec.encode(end) + b"\n" for end in ends))
        status = pytest.ExitCode.TESTS_FAILED if any(end.outcome == "failed" for end in ends) else pytest.ExitCode.OK
        if broken:
            status = pytest.ExitCode.INTERNAL_ERROR
        return TrialResult(ends=ends, expired=expired, code=status, seconds=0.1)


def test_the_test_that_fails_kills_the_mutant_in_the_stage_that_reaches_it(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path)
    checkout.state.mkdir()
    journal = Journal(checkout.state / "journal")
    said: list[str] = []
    stages = Stages(checkout, journal, time.monotonic() + 60, said.append)  # type: ignore[arg-type]
    executions = stages.measure_quick()
    stages.covering(checkout.mutants, executions)
    stages.quick(checkout.mutants, executions)
    found = {
        (one.function, one.operator, one.number): (entry.stage, entry.by.rpartition("_")[2])
        if (entry := journal.killed(one.name, ["covering", "quick"]))
        else None
        for one in checkout.mutants
    }
    assert found == {
        ("<module>", "constant", 1): ("covering", "first"),
        ("add", "empty result", 1): ("quick", "first"),
        ("add", "arithmetic", 1): ("quick", "first"),
        ("first", "empty result", 1): ("covering", "first"),
        ("first", "arithmetic", 1): ("covering", "first"),
        ("first", "constant", 1): ("covering", "first"),
        ("never", "condition", 1): ("covering", "never"),
        ("never", "comparison", 1): ("covering", "never"),
        ("never", "constant", 1): ("covering", "never"),
        ("never", "arithmetic", 1): ("covering", TIME),
        ("never", "constant", 2): ("covering", TIME),
        ("never", "empty result", 1): None,
    }
    assert len(checkout.trials[-1]) == len(TESTS), "the last trial has every test"


def test_tests_on_servers_run_for_halves_of_the_mutants_that_they_enter(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path)
    checkout.state.mkdir()
    journal = Journal(checkout.state / "journal")
    chosen = [one for one in checkout.mutants if one.function in {"first", "never"} and one.operator != "condition"]
    for one in chosen:
        journal.add(Entry(mutant=one.name, stage="quick", state="survived"))
    stages = Stages(checkout, journal, time.monotonic() + 60, str)  # type: ignore[arg-type]
    stages.end_to_end(chosen, ["tests/test_example.py"], slow=False)
    found = {one.name: journal.get(one.name, "end_to_end") for one in chosen}
    assert {name: (entry.state, entry.by.rpartition("_")[2]) for name, entry in found.items() if entry} == {
        f"{FILE}::first::arithmetic-1": ("killed", "first"),
        f"{FILE}::first::constant-1": ("killed", "first"),
        f"{FILE}::first::empty result-1": ("killed", "first"),
        f"{FILE}::never::arithmetic-1": ("killed", TIME),
        f"{FILE}::never::comparison-1": ("killed", "never"),
        f"{FILE}::never::constant-1": ("killed", "never"),
        f"{FILE}::never::constant-2": ("killed", TIME),
        f"{FILE}::never::empty result-1": ("survived", ""),
    }
    asked = {tests for tests in checkout.trials if len(tests) == 1}
    assert asked == {("tests/test_example.py::test_first",), ("tests/test_example.py::test_never",)}


class EndingCheckout(FakeCheckout):
    """A change of `never` ends pytest before its first test, with a status that its result has."""

    result = TrialResult(ends=[], expired=False, code=0, seconds=0.1, finished=False)

    def run(self, _files: Sequence[str], **options: Any) -> TrialResult:
        changed = (options.get("changed") or {}).get(FILE, b"")
        if changed and b"while one != 0:\n        one = one - 1\n    return one\n" not in changed:
            return self.result
        return super().run(_files, **options)


@pytest.mark.parametrize(("code", "finished"), [(-9, False), (0, False), (2, True)], ids=["kill", "exit", "interrupt"])
def test_a_mutant_that_ends_pytest_is_killed_and_hides_no_other(tmp_path: Path, code: int, *, finished: bool) -> None:
    """Regression: the tests that had not run counted as passed, and so every mutant beside it as a survivor."""
    checkout = EndingCheckout(tmp_path)
    checkout.result = msgspec.structs.replace(checkout.result, code=code, finished=finished)
    checkout.state.mkdir()
    journal = Journal(checkout.state / "journal")
    stages = Stages(checkout, journal, time.monotonic() + 60, str)  # type: ignore[arg-type]
    executions = stages.measure_quick()
    chosen = [one for one in checkout.mutants if one.function in {"add", "never"} and one.operator != "condition"]
    for one in chosen:
        journal.add(Entry(mutant=one.name, stage="covering", state="uncovered"))
    stages.quick(chosen, executions)
    found = {one.name: entry.by for one in chosen if (entry := journal.get(one.name, "quick"))}
    assert {by for name, by in found.items() if "::never::" in name} == {END}
    assert {by.rpartition("_")[2] for name, by in found.items() if "::add::" in name} == {"first"}


def test_a_mutant_that_breaks_pytest_off_at_a_failure_hides_none_that_is_planted_with_it(tmp_path: Path) -> None:
    """Regression: all of them survived."""
    checkout = FakeCheckout(tmp_path)
    checkout.breaks_off = True
    checkout.state.mkdir()
    journal = Journal(checkout.state / "journal")
    names = {f"{FILE}::first::arithmetic-1": "killed", f"{FILE}::never::empty result-1": "survived"}
    chosen = [one for one in checkout.mutants if one.name in names]
    for one in chosen:
        journal.add(Entry(mutant=one.name, stage="quick", state="survived"))
    stages = Stages(checkout, journal, time.monotonic() + 60, str)  # type: ignore[arg-type]
    stages.end_to_end(chosen, ["tests/test_example.py"], slow=False)
    assert {name: entry.state for name in names if (entry := journal.get(name, "end_to_end"))} == names


@pytest.mark.parametrize(
    ("outcomes", "code", "broken"),
    [
        (["passed", "skipped"], pytest.ExitCode.OK, False),
        (["passed", "failed"], pytest.ExitCode.TESTS_FAILED, False),
        (["passed"], pytest.ExitCode.TESTS_FAILED, True),
        (["passed"], pytest.ExitCode.INTERNAL_ERROR, True),
        (["failed"], pytest.ExitCode.INTERNAL_ERROR, True),
        (["passed"], -9, True),
    ],
)
def test_a_trial_is_broken_off_if_its_tests_do_not_explain_how_pytest_ended(
    outcomes: list[Literal["passed", "failed", "skipped"]], code: int, *, broken: bool
) -> None:
    ends = [End(test="test", outcome=outcome, when="call", seconds=0.1) for outcome in outcomes]
    result = TrialResult(ends=ends, expired=False, code=code, seconds=0.1)
    assert (END in result.failed) == broken


def test_an_interrupted_command_continues_where_it_was(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path)
    checkout.state.mkdir()
    path = checkout.state / "journal"
    stages = Stages(checkout, Journal(path), time.monotonic() + 60, str)  # type: ignore[arg-type]
    executions = stages.measure_quick()
    stages.covering(checkout.mutants[:3], executions)
    with path.open("ab") as stream:
        stream.write(b'{"mutant": "half a li')
    done = len(checkout.trials)
    journal = Journal(path)
    again = Stages(checkout, journal, time.monotonic() + 60, str)  # type: ignore[arg-type]
    again.covering(checkout.mutants[:3], again.measure_quick())
    assert len(checkout.trials) == done
    late = Stages(checkout, journal, time.monotonic() - 1, str)  # type: ignore[arg-type]
    late.covering(checkout.mutants, executions)
    assert len(checkout.trials) == done


def test_two_commands_try_different_files_at_the_same_time(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "journal"), Journal(tmp_path / "journal")
    one.add(
        Entry(mutant="first", stage="end_to_end", state="killed", by="test_that_kills", files=["tests/test_one.py"])
    )
    other.add(Entry(mutant="first", stage="end_to_end", state="survived", files=["tests/test_other.py"]))
    other.add(Entry(mutant="second", stage="end_to_end", state="survived", files=["tests/test_other.py"]))
    one.add(Entry(mutant="second", stage="end_to_end", state="survived", files=["tests/test_one.py"]))
    journal = Journal(tmp_path / "journal")
    files = ["tests/test_one.py", "tests/test_other.py"]
    assert journal.get("first", "end_to_end") == Entry(
        mutant="first", stage="end_to_end", state="killed", by="test_that_kills", files=files
    )
    assert journal.get("second", "end_to_end") == Entry(
        mutant="second", stage="end_to_end", state="survived", files=files[::-1]
    )


def test_a_document_names_the_files_of_tests_once(tmp_path: Path) -> None:
    mutants = example(tmp_path)[:2]
    journal = Journal(tmp_path / "journal")
    for one, files in zip(mutants, (["tests/b.py"], ["tests/a.py", "tests/b.py"]), strict=True):
        journal.add(Entry(mutant=one.name, stage="end_to_end", state="survived", files=files))
    found = document.document("0" * 12, 62, mutants, journal)
    assert found.tried == ["tests/a.py", "tests/b.py"]
    assert [entry.files for one in found.mutants for entry in one.stages] == [[], []]
    assert "tests/end_to_end/house/test_documents.py" in document.files_on_servers(ROOT)


def test_the_shares_count_a_mutant_for_each_command_that_kills_it() -> None:
    def judged(number: int, stage: Stage, by: str) -> document.JudgedMutant:
        name = f"harness/{'judge' if number < 3 else 'run'}/a.py::f::constant-{number}"
        entry = Entry(mutant=name, stage=stage, state="killed" if by else "survived", by=by)
        return document.JudgedMutant(name=name, line=1, before="1", after="2", stages=[entry])

    stages: list[tuple[Stage, str]] = [
        ("covering", "a"),
        ("quick", "b"),
        ("end_to_end", "c"),
        ("slow", "d"),
        ("quick", ""),
        ("covering", ""),
    ]
    found = document.MutantsDocument(
        commit="abc", seed=1, mutants=[judged(number, *each) for number, each in enumerate(stages)]
    )
    rows = document.shares(found)
    killed = " | ".join(f"killed by `{command}`" for command in ("ci/test --quick", "ci/test", "ci/test --all"))
    assert rows[0] == f"| package | mutants | {killed} | undecided |"
    assert "| `judge` | 3 | 2 (67 %) | 3 (100 %) | 3 (100 %) | 0 |" in rows
    assert "| `run` | 3 | 0 (0 %) | 0 (0 %) | 1 (33 %) | 1 |" in rows
    assert rows[-1] == "| all | 6 | 2 (33 %) | 3 (50 %) | 4 (67 %) | 1 |"
    early = msgspec.structs.replace(found, mutants=found.mutants[:1])
    assert document.shares(early)[-1] == "| all | 1 | 1 (100 %) | not run | not run | 0 |"
    (left,) = document.unexplained(found, document.SurvivorList(survivors=[]))
    assert left == "harness/run/a.py::f::constant-4"
    said = document.SurvivorList(survivors=[document.Survivor(mutant=left, reason="It is the same.", same=True)])
    assert document.unexplained(found, said) == []
    assert document.survivors(found, said)[-1] == f"| `{left}` | `1` | `2` | It is the same. |"


def test_a_test_that_was_written_for_a_survivor_counts_for_the_commands_that_run_it() -> None:
    def survivor(number: int) -> document.JudgedMutant:
        entry = Entry(mutant=f"harness/run/a.py::f::constant-{number}", stage="quick", state="survived")
        return document.JudgedMutant(name=entry.mutant, line=1, before="1", after="2", stages=[entry])

    mutants = [survivor(number) for number in range(5)]
    quick, server, slow, same, _ = (one.name for one in mutants)
    said = [
        document.Survivor(mutant=quick, test="tests/unit/a.py::test_a"),
        document.Survivor(mutant=server, test="tests/end_to_end/b.py::test_b"),
        document.Survivor(mutant=slow, test="tests/end_to_end/b.py::test_c", slow=True),
        document.Survivor(mutant=same, reason="It is the same.", same=True),
    ]
    rows = document.shares_since(
        document.MutantsDocument(commit="abc", seed=1, mutants=mutants),
        document.SurvivorList(survivors=said),
        {"tests/end_to_end/b.py"},
    )
    assert rows[-1] == "| all | 5 | 0 (0 %) | 0 (0 %) | 1 (20 %) | 2 (40 %) | 3 (60 %) | 1 | 1 |"


def test_what_is_said_of_survivors_is_a_reason_or_a_test_that_exists() -> None:
    for one in document.reasons().survivors:
        assert bool(one.reason) != bool(one.test), one.mutant
        assert not one.same or one.reason, one.mutant
        if one.test:
            file, _, name = one.test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text("utf-8"), one.mutant
