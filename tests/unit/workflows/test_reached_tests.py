"""Which tests a change can reach, and how a judgement reports the tests that were left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis.code.code_map import CodeChange, CodeMap
from harness.analysis.code.elf_object import ObjectCode
from harness.core.finding import Verdict
from harness.core.model import Cell
from harness.judge.change import left_out
from harness.record import run_folder
from harness.record.executed_blocks.cell_reach import CellReach
from harness.record.run_record import CellRecord, LeftOut
from harness.report.verdict_sentence import sentence
from harness.workflows.preparation.reach.reached_tests import (
    EVERY_TEST,
    KeptReach,
    added,
    hosts_of,
    not_entered,
    select,
    selected,
    settled,
    with_native,
)
from tests.support import judgements
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

REACH = CellReach(
    every=["main", "aeMain"],
    tests={"bits": ["bitopCommand", "setKey"], "texts": ["setKey", "getCommand"], "ping": ["pingCommand"]},
    failed={"script": ["evalCommand"]},
    skipped={},
    count=4,
)
NO_CODE = CodeMap(objects={}, link=["ld"], recipe="1")
KEPT = KeptReach(code=NO_CODE, native=NO_CODE, reach=REACH, functions=[], run="/runs/1", excused=[])


def chosen(
    functions: Iterable[str], *elsewhere: str, reached: Iterable[str] = (), kept: KeptReach = KEPT
) -> tuple[list[str], LeftOut | None]:
    """The tests that do not run, and the message about them. `reached` is what the tests of the target's other cells
    reach.
    """
    change = CodeChange(functions=frozenset(functions), elsewhere=list(elsewhere))
    found = selected(kept, change, {*change.functions, *reached}, set())
    return found.without, found.left_out


def test_tests_that_enter_changed_functions_run() -> None:
    without, omitted = chosen(["bitopCommand"])
    assert without == ["ping", "texts"]
    assert omitted == LeftOut(tests=2, of=4, functions=["bitopCommand"], before="/runs/1")
    assert chosen(["setKey"])[0] == ["ping"]


@pytest.mark.parametrize(
    ("functions", "elsewhere"),
    [
        (["bitopCommand", "aeMain"], []),
        (["bitopCommand"], ["src/bitops.o"]),
        ([], []),
        ([], ["the link"]),
        (["bitopCommand", "getCommand", "pingCommand"], []),
    ],
    ids=["what every test enters", "data", "nothing that is known", "the link", "something of each test"],
)
def test_all_tests_run_if_any_may_reach_the_change(functions: list[str], elsewhere: list[str]) -> None:
    change = CodeChange(functions=frozenset(functions), elsewhere=elsewhere)
    assert selected(KEPT, change, set(functions), set()) == EVERY_TEST


def test_an_unreached_cell_runs_the_tests_that_did_not_pass_and_the_shortest_other_one() -> None:
    without, omitted = chosen(["hsetCommand"])
    assert without == ["bits", "texts"]
    assert omitted is not None
    assert (omitted.tests, omitted.of) == (2, 4)
    complete = msgspec.structs.replace(KEPT, reach=msgspec.structs.replace(REACH, failed={}, count=3))
    assert chosen(["hsetCommand"], kept=complete)[0] == ["bits", "ping", "texts"], "none of its tests has to run"


def test_a_test_with_a_known_failure_is_assumed_to_stop_there_again() -> None:
    units = msgspec.structs.replace(KEPT, native=None, excused=["script"])
    assert chosen(["hsetCommand"], kept=units)[0] == ["bits", "ping", "script", "texts"]
    without, omitted = chosen(["bitopCommand"], kept=units)
    assert (without, omitted and omitted.known) == (["ping", "script", "texts"], 1)
    without, omitted = chosen(["evalCommand"], kept=units)
    assert without == ["bits", "texts"], "it enters a changed function, and one other test has to pass"
    assert omitted is not None
    assert (omitted.tests, omitted.of, omitted.known) == (2, 4, 0)


def test_in_comparisons_a_failed_test_is_left_out_if_it_passed_elsewhere_and_is_not_reached_there() -> None:
    """The native build continues after the target has failed, and may reach the change there."""
    failing = msgspec.structs.replace(
        KEPT, functions=["bitopCommand", "hsetCommand", "evalCommand"], excused=["script"]
    )
    agreed = {"script": ["evalCommand", "hsetCommand"], **REACH.tests}
    passing = msgspec.structs.replace(
        failing, excused=[], reach=msgspec.structs.replace(REACH, tests=agreed, failed={}, count=4)
    )

    def without(function: str, kept: dict[Cell, KeptReach]) -> list[str]:
        change = CodeChange(functions=frozenset([function]), elsewhere=[])
        return select(kept, dict.fromkeys(kept, change), idle=False)[BITOPS].without

    assert without("bitopCommand", {BITOPS: failing}) == ["ping", "texts"]
    assert without("bitopCommand", {BITOPS: failing, ELSEWHERE: passing}) == ["ping", "script", "texts"]
    assert "script" not in without("bitopCommand", {BITOPS: failing, UNITS: passing}), "another suite's test"
    reached = msgspec.structs.replace(
        failing, reach=msgspec.structs.replace(REACH, tests={**REACH.tests, "more": ["hsetCommand"]}, count=5)
    )
    assert "script" not in without("hsetCommand", {BITOPS: reached, ELSEWHERE: passing}), "it is reached there"


def test_a_known_failure_is_excused_unless_chance_or_an_audit_was_involved() -> None:
    recorded = msgspec.structs.replace(REACH, failed={"script": [], "streams": [], "blocked": []})
    found = {"texts", "script", "streams[3]", "blocked_by"}
    reach, excused = settled(recorded, found, set(), audited=False)
    assert (sorted(reach.tests), excused) == (["bits", "ping"], ["script", "streams"])
    assert settled(recorded, found, {"streams[3]"}, audited=False)[1] == ["script"]
    assert settled(recorded, found, set(), audited=True)[1] == []


def test_a_skipped_test_is_left_out_if_it_sent_nothing_to_the_program() -> None:
    reach = msgspec.structs.replace(REACH, skipped={"release": [], "asked": ["infoCommand"]}, count=6)
    kept = msgspec.structs.replace(KEPT, reach=reach)
    assert chosen(["bitopCommand"], kept=kept)[0] == ["ping", "release", "texts"]


def test_a_cell_without_a_passed_test_and_finding_runs_completely() -> None:
    kept = msgspec.structs.replace(
        KEPT, native=None, excused=["script"], reach=msgspec.structs.replace(REACH, tests={})
    )
    assert chosen(["bitopCommand"], kept=kept)[0] == []


def test_functions_that_no_test_of_the_target_reaches_require_no_test() -> None:
    change = CodeChange(functions=frozenset(["bitopCommand", "printBits"]), elsewhere=[])
    omitted = selected(KEPT, change, {"bitopCommand"}, set()).left_out
    assert omitted is not None
    assert omitted.functions == ["bitopCommand"]


def test_a_function_that_only_the_second_of_two_builds_has_is_added() -> None:
    def code(**objects: str) -> CodeMap:
        made = {
            name: ObjectCode(
                sha256="", functions=dict.fromkeys(functions.split(), ""), data="", defines=[], needs=[], places=[]
            )
            for name, functions in objects.items()
        }
        return CodeMap(objects=made, link=[], recipe="1")

    assert added(code(a="one two", b="three"), code(a="one four", c="three five")) == {"four", "five"}


BITOPS, UNITS, ELSEWHERE = (
    Cell(target=target, server="redis", suite=suite)
    for target, suite in (("armv5", "bitops"), ("armv5", "units"), ("sparc64", "bitops"))
)


def of_cells(functions: Iterable[str], *, unknown: bool = False, idle: bool = False) -> dict[Cell, list[str]]:
    """By cell, the tests that do not run if these functions differ in all programs."""
    names = {name for entered in REACH.tests.values() for name in entered} | {"unitMain", "printBits"}
    bitops = msgspec.structs.replace(KEPT, functions=sorted(names - ({"printBits"} if unknown else set())))
    unit = CellReach(every=["main"], tests={"unit": ["unitMain"]}, failed={}, skipped={}, count=1)
    kept = {BITOPS: bitops, UNITS: msgspec.structs.replace(bitops, reach=unit), ELSEWHERE: bitops}
    change = CodeChange(functions=frozenset(functions), elsewhere=[])
    return {cell: one.without for cell, one in select(kept, dict.fromkeys(kept, change), idle=idle).items()}


def test_a_cell_that_the_change_does_not_reach_does_not_run_where_another_of_its_target_does() -> None:
    assert of_cells(["bitopCommand"]) == {BITOPS: ["ping", "texts"], UNITS: ["unit"], ELSEWHERE: ["ping", "texts"]}


def test_if_no_test_of_a_target_reaches_the_change_all_run() -> None:
    assert of_cells(["unitMain"]) == {BITOPS: ["bits", "texts"], UNITS: []}
    assert of_cells(["printBits"]) == {}


def test_of_a_mutant_that_no_test_of_a_target_reaches_only_what_is_in_doubt_runs() -> None:
    every = sorted(KEPT.as_expected)
    found = of_cells(["printBits"], idle=True)
    assert found[UNITS] == ["unit"]
    assert set(found[BITOPS]) < set(every)
    assert of_cells(["printBits"], unknown=True, idle=True) == {}, "it is unknown who enters it"


def test_functions_entered_only_by_tests_that_did_not_pass_are_not_reached() -> None:
    known = msgspec.structs.replace(KEPT, functions=["evalCommand"])
    change = CodeChange(functions=frozenset(["evalCommand"]), elsewhere=[])
    assert select({BITOPS: known}, {BITOPS: change}, idle=False) == {}


def test_a_function_without_a_program_may_be_reached_by_any_test() -> None:
    """For example, there is no record of the tests that enter a module's function."""
    assert of_cells(["bitopCommand", "printBits"])[UNITS] == ["unit"]
    assert of_cells(["bitopCommand", "printBits"], unknown=True) == {}


def test_the_chosen_tests_must_enter_the_same_functions_again() -> None:
    change = CodeChange(functions=frozenset(["bitopCommand", "getCommand", "printBits", "pingCommand"]), elsewhere=[])

    def lacking(**fields: object) -> set[str]:
        now = msgspec.structs.replace(REACH, tests={"bits": ["bitopCommand"]}, failed={}, **fields)
        return not_entered(KEPT, change, ["bitopCommand", "getCommand", "printBits"], now)

    assert lacking() == {"getCommand"}, "no test had entered printBits, and pingCommand no longer exists"
    assert lacking(every=["getCommand"]) == set()
    assert lacking(problem="a program executed nothing") == {"bitopCommand", "getCommand"}
    failing = msgspec.structs.replace(REACH, tests={}, failed={"bits": ["bitopCommand"], "texts": ["getCommand"]})
    assert not_entered(KEPT, change, ["bitopCommand", "getCommand"], failing) == set()


@pytest.mark.parametrize(
    ("native", "differing"),
    [
        (["pingCommand"], {"bitopCommand", "pingCommand"}),
        (["pingCommand.part.0"], {"bitopCommand", "pingCommand"}),
        (["setKey"], {"bitopCommand", "setKey", "setKey.isra.0"}),
        (["redisPopcountAvx2"], {"bitopCommand", "redisPopcountAvx2"}),
        ([], {"bitopCommand"}),
    ],
    ids=["a function", "a part of one", "one that the target has in parts", "one that the target lacks", "nothing"],
)
def test_differences_of_the_native_build_count_by_the_targets_names(native: list[str], differing: set[str]) -> None:
    own = CodeChange(functions=frozenset(["bitopCommand"]), elsewhere=[])
    there = CodeChange(functions=frozenset(native), elsewhere=[])
    found = with_native(own, there, ["bitopCommand", "pingCommand", "setKey", "setKey.isra.0"], {})
    assert found == CodeChange(functions=frozenset(differing), elsewhere=[])


def an_object(functions: str, *, defines: str = "", needs: str = "") -> ObjectCode:
    return ObjectCode(
        sha256="",
        functions=dict.fromkeys(functions.split(), ""),
        data="",
        defines=defines.split(),
        needs=needs.split(),
        places=[],
    )


def a_program(**objects: ObjectCode) -> CodeMap:
    return CodeMap(objects=objects, link=[], recipe="1")


def test_a_function_that_the_target_has_inlined_is_in_one_of_its_objects_functions() -> None:
    native = a_program(
        anet=an_object("accept anetAccept", defines="anetAccept"),
        net=an_object("acceptHandler", defines="acceptHandler", needs="anetAccept"),
    )
    target = a_program(
        anet=an_object("anetAccept anetListen", defines="anetAccept anetListen"),
        net=an_object("acceptHandler", defines="acceptHandler", needs="anetAccept"),
    )
    assert hosts_of("accept", native, target) == ["anetAccept", "anetListen"]
    own = CodeChange(functions=frozenset(["anetAccept"]), elsewhere=[])
    there = CodeChange(functions=frozenset(["accept"]), elsewhere=[])
    inlined = {"accept": hosts_of("accept", native, target)}
    assert with_native(own, there, ["anetAccept", "anetListen", "acceptHandler"], inlined).functions == {
        "anetAccept",
        "anetListen",
    }


def test_of_a_function_that_only_the_native_build_has_it_is_unknown_who_enters_it() -> None:
    """On x86 alone, other objects call it, and what it enters there."""
    native = a_program(
        bits=an_object("countAvx2 count fast", defines="count countAvx2"),
        server=an_object("main", needs="count countAvx2"),
    )
    target = a_program(bits=an_object("count", defines="count"), server=an_object("main", needs="count"))
    assert hosts_of("countAvx2", native, target) == []
    assert hosts_of("fast", native, target) == []
    assert hosts_of("main", native, a_program()) == []
    twice = a_program(one=an_object("same"), other=an_object("same"))
    assert hosts_of("same", twice, twice) == []


def test_data_of_the_native_build_has_no_recorded_reach() -> None:
    own = CodeChange(functions=frozenset(["bitopCommand"]), elsewhere=["src/a.o"])
    there = CodeChange(functions=frozenset(), elsewhere=["src/b.o"])
    assert with_native(own, there, ["bitopCommand"], {}).elsewhere == ["src/a.o", "src/b.o of the native build"]


def remarks_of(tmp_path: Path, *cells: tuple[str, str, LeftOut | None]) -> list[str]:
    """The number of tests that a run left out, and its remarks."""
    record = run_folder.read_run(StoredRun(tmp_path / "run").finish())
    record = msgspec.structs.replace(
        record,
        cells=[CellRecord(target=target, suite=suite, seconds=1, left_out=left) for target, suite, left in cells],
    )
    return [str(left_out.tests(record)), *left_out.remarks(record)]


def left(tests: int, of: int, *functions: str) -> LeftOut:
    return LeftOut(tests=tests, of=of, functions=list(functions), before="/runs/1")


def test_a_run_reports_the_tests_left_out_with_place_and_reason(tmp_path: Path) -> None:
    assert remarks_of(
        tmp_path,
        ("armv5", "canary", None),
        ("armv5", "bitops", left(70, 173, "bitopCommand")),
        ("armv5", "units", left(27, 32, "bitopCommand")),
        ("armv6", "bitops", left(70, 173, "bitopCommand")),
        ("armv6", "units", left(27, 32, "bitopCommand")),
        ("armv7", "units", msgspec.structs.replace(left(27, 32, "bitopCommand"), known=2)),
        ("sparc64", "bitops", left(9, 173, "bitopCommand", "redisBitpos")),
    ) == [
        "230",
        (
            "tests not run, because they do not reach the changed code (bitopCommand) "
            "and ended as expected in /runs/1: "
            "70 of 173 in bitops, 27 of 32 in units on armv5, armv6; 27 of 32 (2 with known findings) in units on armv7"
        ),
        (
            "tests not run, because they do not reach the changed code (bitopCommand, redisBitpos) "
            "and ended as expected in "
            "/runs/1: "
            "9 of 173 in bitops on sparc64"
        ),
    ]


def test_cells_compared_with_different_runs_are_listed_separately(tmp_path: Path) -> None:
    later = msgspec.structs.replace(left(3, 9, "bitopCommand"), before="/runs/2")
    assert remarks_of(tmp_path, ("armv5", "bitops", left(1, 2, "bitopCommand")), ("armv5", "units", later)) == [
        "4",
        (
            "tests not run, because they do not reach the changed code (bitopCommand) "
            "and ended as expected in /runs/1: "
            "1 of 2 in bitops on armv5"
        ),
        (
            "tests not run, because they do not reach the changed code (bitopCommand) "
            "and ended as expected in /runs/2: "
            "3 of 9 in units on armv5"
        ),
    ]


def test_many_functions_are_counted(tmp_path: Path) -> None:
    (_, remark) = remarks_of(tmp_path, ("armv5", "bitops", left(1, 2, *(f"f{number}" for number in range(10)))))
    assert "(f0, f1, f2, f3, f4, f5, f6, f7 and 2 more)" in remark


def test_if_all_tests_ran_there_is_no_remark(tmp_path: Path) -> None:
    assert remarks_of(tmp_path, ("armv5", "bitops", None)) == ["0"]


def test_a_verdict_claims_only_what_ran() -> None:
    passed = msgspec.structs.replace(
        judgements.judgement(), verdict=Verdict.PASS, findings=[], cells=[judgements.cell("armv5", "bitops", "PASS")]
    )
    assert sentence(passed) == "nothing found; 3 tests passed on 1 target"
    part = msgspec.structs.replace(passed, left_out=1200)
    assert (
        sentence(part) == "nothing new; 3 tests passed on 1 target, 1,200 not run because the change cannot reach them"
    )
