"""Ranks functions for a wrong result. tests/end_to_end/findings/test_suspects.py does so for a planted bug."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Literal

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from rich.console import Console

from harness.analysis import suspects
from harness.analysis.c_source.machine_dependence import Dependence, DependentLine
from harness.analysis.executed_code import CodeLine, parsed
from harness.analysis.suspects import Score, Spectrum, SuspectList
from harness.core.errors import UsageError
from harness.core.finding import Finding, Occasion, Suspect
from harness.plan.catalog import Catalog
from harness.protocol.command_stream import clients_of, from_text, text_of
from harness.protocol.stream_neighbours import neighbours, with_fewer_commands
from harness.record import program_launch, stored_run
from harness.record.executed_blocks.executed_tests import ExecutedTest, append_executed, read_executed
from harness.record.run_folder import write_run
from harness.report import issue, terminal
from harness.report.formats import markdown, sarif
from harness.report.formats import registry as formats
from harness.workflows.suspect_search import explain, find_suspects, targets_that_pass
from harness.workflows.workbench import Workbench
from tests.support.judgements import HOSTILE, judgement, run_folder
from tests.support.stored import StoredRun
from tests.unit.report.test_issue import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAULTY, CALLER, DISPATCH = 0x100, 0x200, 0x300
SUSPECT = Suspect(function="encodeTimeoutKey", file="src/timeout.c", line=99, score=0.5, why="ran in 1 of 4 runs")


def spectrum(failing: list[set[int]], passing: list[set[int]]) -> Spectrum:
    runs = Spectrum()
    for executed in failing:
        runs.add(executed, fails=True)
    for executed in passing:
        runs.add(executed, fails=False)
    return runs


def with_suspects(*listed: Suspect) -> Finding:
    (finding, *_) = judgement().findings
    return msgspec.structs.replace(finding, kind="wrong-result", suspects=list(listed))


def test_the_coefficient_is_that_of_ochiai() -> None:
    runs = spectrum([{FAULTY, CALLER, DISPATCH}, {FAULTY, CALLER, DISPATCH}], [{CALLER, DISPATCH}, {DISPATCH}, {7}])
    assert suspects.scores(runs) == {
        FAULTY: Score(1.0, 2, 0),
        CALLER: Score(2 / math.sqrt(2 * 3), 2, 1),
        DISPATCH: Score(2 / math.sqrt(2 * 4), 2, 2),
    }, "code that no failing run executed has no score"


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=6), st.lists(st.sets(st.integers(0, 9)), max_size=6))
def test_a_score_is_a_share_and_a_passing_run_never_raises_it(failing: list[set[int]], passing: list[set[int]]) -> None:
    fewer, more = suspects.scores(spectrum(failing, passing)), suspects.scores(spectrum(failing, [*passing, {3}]))
    assert all(0 < score.ochiai <= 1 + 1e-9 for score in more.values())
    assert fewer.keys() == more.keys()
    assert all(more[address].ochiai <= fewer[address].ochiai for address in fewer)


def test_a_run_of_which_nothing_is_known_does_not_count() -> None:
    runs = spectrum([set(), {FAULTY}], [set()])
    assert (len(runs.failing), len(runs.passing)) == (1, 0)


def test_a_function_has_the_score_of_its_most_suspicious_code_and_the_line_there() -> None:
    runs = spectrum([{FAULTY, FAULTY + 4, CALLER}], [{FAULTY, CALLER}])
    inlined = CodeLine("swapped", "src/endianconv.h", 30, "server")
    lines = {
        FAULTY: [CodeLine("saveLen", "src/rdb.c", 170, "server")],
        FAULTY + 4: [inlined, CodeLine("saveLen", "src/rdb.c", 183, "server")],
        CALLER: [CodeLine("save", "src/rdb.c", 900, "server")],
    }
    ranked = suspects.ranked(suspects.scores(runs), lines, runs, dependent={})
    assert [(one.function, one.line, one.score) for one in ranked] == [
        ("swapped", 30, 0.5),
        ("saveLen", 183, 0.5),
        ("save", 900, 0.354),
    ]
    assert ranked[0].why == "ran in 1 of 1 runs that show it, and in 0 of 1 that do not"


def test_a_line_that_depends_on_the_machine_counts_in_full_and_the_reason_names_it() -> None:
    runs = spectrum([{FAULTY, CALLER, DISPATCH}], [{FAULTY}, {9}])
    lines = {
        FAULTY: [CodeLine("saveLen", "src/rdb.c", 183, "server")],
        CALLER: [CodeLine("save", "src/rdb.c", 900, "server")],
        DISPATCH: [CodeLine("call", "src/server.c", 900, "server")],
    }
    dependent = {"src/rdb.c": {183: DependentLine(Dependence.BYTE_ORDER, "htonl")}}
    first, *others = suspects.ranked(suspects.scores(runs), lines, runs, dependent=dependent)
    assert (first.function, first.score) == ("saveLen", 0.707)
    assert first.why == (
        "ran in 1 of 1 runs that show it, and in 1 of 2 that do not; its line converts byte order: htonl"
    )
    assert [(one.function, one.score) for one in others] == [("call", 0.5), ("save", 0.5)]
    assert not any("its line" in one.why for one in others), "line 900 of another file is not listed"


def saw(test: str, title: str, kind: str = "wrong-result") -> Finding:
    """A finding that one test saw."""
    (finding, *_) = judgement().findings
    occasion = Occasion(test=test, command="", title=title, said="", functions=())
    witness = msgspec.structs.replace(finding.witnesses[0], test=test, occasions=[occasion])
    return msgspec.structs.replace(finding, kind=kind, witnesses=[witness])


def test_tests_that_fail_with_other_values_and_the_same_words_are_alike() -> None:
    others = [
        saw("dump::b", "the checksum of the 84 bytes is 4d6d, the file says 6d4d"),
        saw("dump::c", "the length of the 84 bytes is 4d6d, the file says 6d4d"),
        saw("dump::d", "the checksum of the 84 bytes is 4d6d, the file says 6d4d", kind="exit"),
        saw("dump::e", "expected 1 got 2"),
    ]

    def alike(title: str) -> set[str]:
        return suspects.alike(saw("dump::a", title).witnesses[0], others)

    assert alike("the checksum of the 9 bytes is 3fe9, the file says e93f; byte 9 of it, checksum: 3fe9") == {"dump::b"}
    assert alike("expected 3 got 4") == set(), "many tests say that"
    assert alike("1 == 2") == set()


def test_of_functions_alike_the_one_with_more_code_stands_first() -> None:
    runs = spectrum([{FAULTY, FAULTY + 4, CALLER}], [{DISPATCH}])
    small, large = CodeLine("a", "src/a.c", 1, "server"), CodeLine("b", "src/a.c", 9, "server")
    lines = {FAULTY: [large], FAULTY + 4: [large], CALLER: [small]}
    assert [one.function for one in suspects.ranked(suspects.scores(runs), lines, runs, dependent={})] == ["b", "a"]
    named = suspects.ranked(suspects.scores(runs), lines, runs, dependent={}, implicated="a")
    assert [one.function for one in named] == ["a", "b"]


def test_a_ranking_is_kept_with_the_run_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    (finding, *_) = judgement().findings
    assert suspects.collect(tmp_path, [finding]) == [finding]
    suspects.store(tmp_path, finding.id, SuspectList(suspects=[SUSPECT], failing=1, passing=3))
    suspects.store(tmp_path, "wrong-result-other", SuspectList(suspects=[], failing=1, passing=3))
    assert [one.suspects for one in suspects.collect(tmp_path, [finding])] == [[SUSPECT]]
    (tmp_path / suspects.FILE).write_text("{", "utf-8")
    assert suspects.collect(tmp_path, [finding]) == [finding]


def test_what_a_test_executed_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_executed(tmp_path) == []
    for name, failed in (("a", False), ("b", True)):
        append_executed(tmp_path, ExecutedTest.of(name, {FAULTY, 1 << 40}, failed=failed))
    read = read_executed(tmp_path)
    assert [(one.test, one.failed, set(one.addresses)) for one in read] == [
        ("a", False, {FAULTY, 1 << 40}),
        ("b", True, {FAULTY, 1 << 40}),
    ]


def test_the_names_of_inlined_functions_are_read_with_their_callers() -> None:
    printed = """addr2line: DWARF error: mangled line number section
0x0000000000001200
intrev64
/tmp/x/tree/src/endianconv.h:70
encodeTimeoutKey
/tmp/x/tree/src/timeout.c:99 (discriminator 2)
0x0000000000001300
??
??:0
"""
    (address,) = found = parsed(printed)
    assert address == 0x1200
    assert [(one.function, one.line) for one in found[address]] == [("intrev64", 70), ("encodeTimeoutKey", 99)]


def test_neighbours_lack_a_command_or_have_another_word() -> None:
    stream = from_text("SET k 10\nAPPEND k x\n@2 GET k\n")
    drawn = list(neighbours(stream))
    assert len(set(drawn)) == len(drawn)
    assert stream not in drawn
    assert () not in drawn
    texts = {text_of(one) for one in drawn}
    assert {"SET k 10\nAPPEND k x\n", "SET k 10\n@2 GET k\n", "SET k 10\n", "GET k\n"} <= texts
    assert "SET k 0\nAPPEND k x\n@2 GET k\n" in texts
    fewer = list(with_fewer_commands(stream))
    assert all(len(one) < len(stream) for one in fewer)
    assert {len(one) for one in fewer} == {1, 2}
    assert all(clients_of(one) == 1 for one in fewer if len(one) == 1), "a command alone is the first client's"


def test_one_command_without_words_has_no_neighbours() -> None:
    assert list(neighbours(from_text("PING\n"))) == []


def test_every_format_shows_suspects_and_says_that_none_need_be_at_fault(tmp_path: Path) -> None:
    finding = with_suspects(SUSPECT, msgspec.structs.replace(SUSPECT, function="raxInsert", file="src/rax.c"))
    whole = msgspec.structs.replace(judgement(), findings=[finding])
    console = Console(file=(text := io.StringIO()), width=200)
    terminal.show_finding(console, finding, whole=True)
    assert "suspects      1. encodeTimeoutKey (src/timeout.c:99)  score 0.50: ran in 1 of 4 runs" in text.getvalue()
    formats.write(run_folder(tmp_path), whole)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<h4>Suspects</h4>" in page
    assert "None of them need be at fault" in page
    assert "src/timeout.c:99" in page
    document = sarif.FORMAT.render(tmp_path, whole)
    assert '"function": "encodeTimeoutKey"' in document
    assert "none need be at fault: encodeTimeoutKey (src/timeout.c:99), raxInsert (src/rax.c:99)" in document
    assert "none need be at fault" in markdown.FORMAT.render(tmp_path, whole)
    assert "## Suspects\n" in issue.render(whole, finding, FACTS)
    assert "## Suspects" not in issue.render(whole, with_suspects(), FACTS)


def test_a_function_of_a_hostile_tree_is_shown_harmless(tmp_path: Path) -> None:
    finding = with_suspects(msgspec.structs.replace(SUSPECT, function=HOSTILE))
    whole = msgspec.structs.replace(judgement(), findings=[finding])
    formats.write(run_folder(tmp_path), whole)
    assert "<script>" not in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "\x1b" not in sarif.FORMAT.render(tmp_path, whole)
    assert "\x1b" not in issue.render(whole, finding, FACTS)


def test_a_finding_with_a_place_has_no_ranking(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (finding, *_) = judgement().findings
    for changes, why in (
        ({}, "its evidence names the function"),
        ({"kind": "wrong-result", "unit": "crc64"}, "the test calls crc64 alone"),
        ({"kind": "wrong-result", "targets": ["kernel-armv5"]}, "executed blocks are not recorded on kernel-armv5"),
    ):
        with pytest.raises(UsageError) as caught:
            find_suspects(Workbench.default(offline=True), folder, msgspec.structs.replace(finding, **changes))
        assert why in caught.value.because


@pytest.mark.parametrize("rank", [find_suspects, explain])
@pytest.mark.parametrize("kind", ["alignment", "exit", "crash"])
def test_a_finding_of_a_program_has_no_ranking_whose_commands_are_a_servers(
    tmp_path: Path, rank: Callable[..., SuspectList], kind: str
) -> None:
    """S7: the run's command was taken for a server's source tree."""
    folder = run_folder(tmp_path)
    record = stored_run.read(folder).record
    write_run(folder, msgspec.structs.replace(record, server="make check", suites=["canary", program_launch.SUITE]))
    finding = msgspec.structs.replace(judgement().findings[0], kind=kind)
    with pytest.raises(UsageError) as caught:
        rank(Workbench.default(offline=True), folder, finding)
    assert "it is a program's, and only functions of servers are ranked" in caught.value.because


def test_a_target_of_the_other_byte_order_is_right_if_its_test_passed(tmp_path: Path) -> None:
    name = "bitops/test_x.py::test_x"
    outcomes: dict[str, Literal["passed", "failed"]] = {
        "armv5": "failed",
        "armv6": "passed",
        "armeb": "passed",
        "sparc64": "passed",
        "s390x": "failed",
        "mips": "passed",
    }
    run = StoredRun(tmp_path / "run", targets=tuple(outcomes), suites=("bitops",))
    for target, outcome in outcomes.items():
        run.test(target, "bitops", f"{name}[1]", outcome=outcome)
    run.test("armeb", "bitops", f"{name}[2]", outcome="failed")
    folder = run.finish()
    machines = {target: Catalog().targets[target] for target in outcomes}
    write_run(folder, msgspec.structs.replace(stored_run.read(folder).record, machines=machines))
    finding = saw(name, "it is wrong")
    witness = msgspec.structs.replace(finding.witnesses[0], target="armv5", suite="bitops")

    def right(*showing: str) -> list[str]:
        return targets_that_pass(folder, msgspec.structs.replace(finding, targets=["armv5", *showing]), witness)

    assert right() == ["mips"], "the width of armv5; one case failed on armeb"
    assert right("mips") == ["sparc64"]
    assert right("mips", "sparc64") == []
    other = msgspec.structs.replace(witness, test="bitops/test_x.py::test_y")
    assert targets_that_pass(folder, finding, other) == [], "a test that did not run"
