"""Findings are grouped by cause. The most direct evidence comes first, followed by findings that may follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from harness.analysis import implicated_code
from harness.core.finding import Cause, Difference, Finding, Frame, Occasion
from harness.judge.causes import causes_of, ordered
from harness.plan.catalog import Catalog
from tests.support import fakes
from tests.support.judgements import judgement
from tests.support.stored import StoredRun, concluded, judged

if TYPE_CHECKING:
    from pathlib import Path

BIG = ("sparc64", "s390x")
MACHINES = {name: Catalog().targets[name] for name in (*BIG, "armv5", "aarch64", "native")}


def finding(name: str, kind: str = "wrong-result", targets: tuple[str, ...] = BIG, **more: Any) -> Finding:
    plain = msgspec.structs.replace(
        judgement().findings[0], id=name, kind=kind, title=name, targets=list(targets), function="", file="", command=""
    )
    return msgspec.structs.replace(plain, **more)


def difference(record: str, function: str = "") -> Difference:
    return Difference(
        where="dump.rdb", record=record, writer="sparc64", reader="native", offset=8, actual="00", function=function
    )


REPLY = Difference(where="the reply", record="reply to SET k v", writer="sparc64", reader="a model")
SHOWN = Cause(title="", where="", start="unit", members=[], shared="", followers=[], known=False)
UNIT = finding("unit", unit="crc64")
CHECKSUM = finding("file", difference=difference("checksum"))
REFUSED = finding("reply", command="RESTORE k 0 x")
START = finding("exit-start", kind="exit")


def test_a_failing_unit_comes_first_and_less_direct_findings_may_follow_from_it() -> None:
    (cause,) = causes_of([START, REFUSED, CHECKSUM, UNIT], MACHINES)
    assert (cause.start, cause.members, cause.followers) == ("unit", [], ["file", "reply", "exit-start"])
    assert cause.where == "on all big-endian machines of the run"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (finding("other", targets=("armv5",), command="GET k"), "another target"),
        (finding("other", unit="crc16"), "another unit fails by itself"),
        (finding("sigsegv-f", kind="sigsegv", function="f"), "a fault has a place of its own"),
    ],
)
def test_an_unrelated_finding_is_a_separate_cause(other: Finding, why: str) -> None:
    causes = causes_of([UNIT, other], MACHINES)
    assert {one.start for one in causes} == {"unit", other.id}, why
    assert [one.followers for one in causes] == [[], []]


def in_test(one: Finding, test: str, command: str = "") -> Finding:
    """The finding, as a test of the suite persistence showed it after a command."""
    occasion = Occasion(test=test, command=command, title=one.title, said="", functions=())
    witness = msgspec.structs.replace(
        one.witnesses[0], target="sparc64", suite="persistence", backtrace=[], occasions=[occasion]
    )
    return msgspec.structs.replace(one, witnesses=[witness])


@pytest.mark.parametrize(
    ("start", "other", "follows"),
    [
        (in_test(UNIT, "a"), in_test(REFUSED, "b"), False),
        (in_test(CHECKSUM, "a"), in_test(REFUSED, "b"), False),
        (in_test(CHECKSUM, "a"), in_test(REFUSED, "a"), True),
        (in_test(CHECKSUM, "a", "SET k 1"), in_test(REFUSED, "b", "GETSET k 2"), True),
        (in_test(CHECKSUM, "a", "SET k 1"), in_test(REFUSED, "b", "GETSET m 2"), False),
        (in_test(finding("sigsegv-f", kind="sigsegv"), "a"), in_test(REFUSED, "b"), False),
        (in_test(finding("sigsegv-f", kind="sigsegv"), "a"), in_test(REFUSED, "a"), True),
    ],
    ids=[
        "nothing after a unit",
        "nothing",
        "the test",
        "the key",
        "another key",
        "nothing after a fault",
        "the test after a fault",
    ],
)
def test_a_consequence_has_something_in_common_with_its_cause(start: Finding, other: Finding, *, follows: bool) -> None:
    causes = causes_of([start, other], MACHINES)
    assert [one.followers for one in causes] == ([[other.id]] if follows else [[], []])


@pytest.mark.parametrize("kind", ["wrong-result", "crash-handler-sigsegv"])
def test_what_the_native_build_shows_as_well_follows_from_nothing_on_machines_alone(kind: str) -> None:
    start = in_test(finding("sigsegv-f", kind="sigsegv", function="f"), "a")
    other = in_test(finding("other", kind=kind, function="f", scope="everywhere"), "a")
    assert [(one.start, one.members, one.followers) for one in causes_of([other, start], MACHINES)] == [
        ("sigsegv-f", [], []),
        ("other", [], []),
    ]


def test_another_machines_refusal_of_a_targets_file_follows_in_the_targets_cell() -> None:
    def end(cell: str) -> Finding:
        witness = msgspec.structs.replace(START.witnesses[0], cells=[cell])
        return msgspec.structs.replace(START, targets=["native"], witnesses=[witness])

    assert [cause.followers for cause in causes_of([UNIT, end("sparc64/persistence")])] == [["exit-start"]]
    assert [cause.followers for cause in causes_of([UNIT, end("native/persistence")])] == [[], []]


def test_the_title_of_a_tcl_test_is_its_description(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    message = "==== a-1.2 APPEND to a long string keeps it FAILED\nmore"
    stored.test("armv5", "bitops", "bitops/a.testsuite::a-1.2", outcome="failed", message=message)
    (found,) = judged(stored)[0]
    assert (found.id, found.title) == ("wrong-result-bitops_a.testsuite_a_1.2", "APPEND to a long string keeps it")


def test_no_wrong_value_follows_from_a_misaligned_access() -> None:
    access = finding("alignment-f-load", kind="alignment", function="f")
    assert [cause.start for cause in causes_of([REFUSED, access])] == ["alignment-f-load", "reply"]


def test_a_fault_of_the_crash_handler_follows_from_the_fault_that_it_reports() -> None:
    fault = finding("alignment-f", kind="alignment", function="f")
    handler = finding("crash-handler-sigsegv-g", kind="crash-handler-sigsegv", function="g")
    (cause,) = causes_of([handler, fault])
    assert (cause.start, cause.followers) == ("alignment-f", ["crash-handler-sigsegv-g"])
    elsewhere = msgspec.structs.replace(fault, targets=["armv5"])
    assert len(causes_of([handler, elsewhere])) == 2, "no fault started the crash handler there"
    assert len(causes_of([handler, finding("reply", command="GET k")])) == 2, "a wrong reply starts no handler"


def test_faults_of_the_crash_handler_follow_together_or_not_at_all() -> None:
    fault = finding("alignment-f", kind="alignment", function="f")
    handler = finding("crash-handler-sigsegv-g", kind="crash-handler-sigsegv", function="g")
    other = finding("crash-handler-sigbus-g", kind="crash-handler-sigbus", function="g")
    assert [cause.start for cause in causes_of([fault, handler, other])] == ["alignment-f"]
    elsewhere = finding("crash-handler-sigbus-g", kind="crash-handler-sigbus", function="g", targets=("armv5",))
    witness = msgspec.structs.replace(elsewhere.witnesses[0], cells=["armv5/bitops"])
    elsewhere = msgspec.structs.replace(elsewhere, witnesses=[witness])
    (first, second) = causes_of([fault, handler, elsewhere])
    assert (first.start, first.followers) == ("alignment-f", [])
    assert {second.start, *second.members} == {handler.id, elsewhere.id}


@pytest.mark.parametrize(
    ("test", "policy_event", "causes"),
    [("test_child", "fault", 1), ("test_other", "fault", 2), ("test_child", "access", 2)],
    ids=["same-test", "another-test", "repaired"],
)
def test_a_missing_save_follows_from_the_fault_that_killed_the_child(
    tmp_path: Path, test: str, policy_event: Literal["fault", "access"], causes: int
) -> None:
    """The rule applies only within a test. The finding remains, because the parent may have another fault."""
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    pc = stored.place("armv5", "rdbSaveRio", "src/rdb.c", 1)
    stored.fault("armv5", "bitops", "guest-1", fakes.fault(pid=101, pc=pc, event=policy_event))
    for name, faults in (("test_child", (0, 1)), ("test_other", (1, 1))):
        outcome: Literal["failed", "passed"] = "failed" if name == test else "passed"
        stored.test("armv5", "bitops", name, outcome=outcome, message="1 != 2", guest="guest-1", faults=faults)
    stored.guest("armv5", "bitops", "guest-1", end="stopped")
    findings, _ = judged(stored)
    assert {one.kind for one in findings} == {"alignment", "wrong-result"}
    assert len(causes_of(findings, MACHINES)) == causes


def test_loads_and_stores_of_one_function_and_the_record_that_it_writes_share_a_cause() -> None:
    load = finding("alignment-rdbSaveLen-load", kind="alignment", function="rdbSaveLen")
    store = finding("alignment-rdbSaveLen-store", kind="alignment", function="rdbSaveLen")
    file = finding("file", difference=difference("length in list 'k'", "rdbSaveLen"))
    (cause,) = causes_of([file, store, load])
    assert (cause.start, cause.members) == (load.id, [store.id, "file"])
    assert cause.shared == "the function rdbSaveLen"


@pytest.mark.parametrize("offset", [0, 8])
def test_wrong_values_in_one_part_of_a_format_share_a_cause_wherever_it_is(offset: int) -> None:
    parts = [msgspec.structs.replace(difference(f"magic of file {name}"), offset=offset) for name in "12"]
    (cause,) = causes_of([finding("one", difference=parts[0]), finding("two", difference=parts[1])])
    assert (cause.start, cause.members, cause.shared) == ("one", ["two"], "the part 'magic of file' of a format")


def test_wrong_replies_to_one_command_on_the_same_targets_share_a_cause() -> None:
    (cause,) = causes_of([finding("one", difference=REPLY), finding("two", command="SET other x; SET k v")])
    assert (cause.start, cause.members, cause.shared) == ("one", ["two"], "the command SET on the same targets")
    elsewhere = finding("two", command="SET k v", targets=("armv5",))
    assert len(causes_of([finding("one", difference=REPLY), elsewhere])) == 2
    overlapping = finding("two", command="SET k v", targets=("armv5", "sparc64"))
    assert len(causes_of([finding("one", difference=REPLY), overlapping])) == 2


def test_a_wrong_reply_on_some_targets_shares_its_cause_on_all_targets() -> None:
    """On the other targets a crash kept its test from running."""
    some = finding("some", command="SET k v", targets=("s390x",))
    crash = finding("assertion-f", kind="assertion", function="f", targets=("s390x",))
    causes = causes_of([crash, some, finding("all", difference=REPLY)])
    assert [(cause.start, cause.members) for cause in causes] == [("assertion-f", []), ("all", ["some"])]


def test_a_finding_that_shares_evidence_with_two_others_joins_them() -> None:
    one = finding("one", difference=difference("length in list 'k'"))
    two = finding("two", difference=difference("double", "rdbSaveLen"))
    both = finding("x", difference=difference("length in list 'other'", "rdbSaveLen"))
    (cause,) = causes_of([one, two, both])
    assert {cause.start, *cause.members} == {"one", "two", "x"}
    (cause,) = causes_of([msgspec.structs.replace(one, known="why"), two, both])
    assert not cause.known, "a part of it is new"


def test_a_known_cause_does_not_hide_a_new_finding() -> None:
    known = msgspec.structs.replace(UNIT, known="why")
    causes = causes_of([known, REFUSED])
    assert [(cause.start, cause.known, cause.followers) for cause in causes] == [
        ("reply", False, []),
        ("unit", True, []),
    ]
    (cause,) = causes_of([UNIT, msgspec.structs.replace(REFUSED, known="why")])
    assert cause.followers == ["reply"]


def test_new_findings_come_before_known_ones_and_direct_evidence_before_indirect() -> None:
    fault = finding("sigsegv-f", kind="sigsegv", known="why")
    order = [one.id for one in ordered([START, REFUSED, fault, UNIT])]
    assert order == ["unit", "reply", "exit-start", "sigsegv-f"]


def test_every_finding_is_in_exactly_one_place() -> None:
    findings = [START, REFUSED, CHECKSUM, UNIT, finding("alignment-f-load", kind="alignment", function="f")]
    placed = [name for cause in causes_of(findings) for name in (cause.start, *cause.members, *cause.followers)]
    assert sorted(placed) == sorted(one.id for one in findings)


@pytest.mark.parametrize(
    "stored",
    [[], [SHOWN], [SHOWN, msgspec.structs.replace(SHOWN, members=["nowhere"])]],
    ids=["none", "one left out", "one that is not there"],
)
def test_reports_show_every_finding_whatever_causes_a_document_claims(stored: list[Cause]) -> None:
    whole = msgspec.structs.replace(judgement(), findings=[UNIT, finding("other", unit="crc16")], causes=stored)
    assert [cause.start for cause, _ in whole.findings_by_cause()] == ["other", "unit"]


def test_parameters_of_one_test_are_one_finding_whose_old_ids_may_be_in_known_lists(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    stored.test("armv5", "bitops", "bitops/test_b.py::test_that_passes")
    for size in ("1", "2"):
        stored.test("armv5", "bitops", f"bitops/test_b.py::test_c[{size}]", outcome="failed", message="1 != 2")
    (found,) = judged(stored)[0]
    assert found.id == "wrong-result-bitops_test_b.py_test_c"
    entry = 'id = "wrong-result-bitops_test_b.py_test_c_{}"\nserver = "*"\nreason = "why"\nexpires = 2099-01-01'
    one, code = concluded(tmp_path, stored, entry.format("1"))
    assert (one.findings[0].known, int(code)) == ("", 1), "an entry for one parameter excuses no other"
    both, code = concluded(tmp_path, stored, entry.format("1"), entry.format("2"))
    assert (both.findings[0].known, int(code)) == ("why", 0)


def test_failed_tests_name_their_last_answered_request_and_those_of_one_command_share_a_cause(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    for number, key in enumerate((b"a", b"b")):
        stored.test(
            "armv5",
            "bitops",
            f"protocol/strings.testsuite::strings-1.{number}",
            outcome="failed",
            message="==== FAILED",
            guest="guest-1",
            transcript=b"*2\r\n$3\r\nGET\r\n$1\r\n" + key + b"\r\n",
            reply=b"$-1\r\n",
        )
    findings, _ = judged(stored)
    assert {one.command for one in findings} == {"GET a", "GET b"}
    (cause,) = causes_of(findings, MACHINES)
    assert cause.shared == "the command GET on the same targets"


def test_units_and_tests_of_the_release_are_separate_findings(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    for unit in ("crc16", "crc64"):
        name = f"units/test_units.py::test_unit[{unit}]"
        stored.test("armv5", "bitops", name, outcome="failed", message="wrong", unit=unit, wrong_line="1")
    assert {one.unit for one in judged(stored)[0]} == {"crc16", "crc64"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    table = '{"SET": {"function": "setCommand"}, "GET": {"function": "setCommand"}, "SAVE": {"function": "setCommand"}}'
    fakes.write(folder / "src" / "commands" / "set.json", table)
    for container, name in (("MEMORY", "DOCTOR"), ("CONFIG", "GET"), ("CONFIG", "SET")):
        subcommand = f'{{"{name}": {{"container": "{container}", "function": "memoryDoctor"}}}}'
        fakes.write(folder / "src" / "commands" / f"{container}-{name}.json", subcommand)
    fakes.write(folder / "src" / "a.c", "void setCommand(client *c);\nint x;\nvoid setCommand(client *c) {\n}\n")
    two = "static void\nf(void);\nvoid memoryDoctor(client *c)\n{\n}\nint crc64(int a) {\n"
    fakes.write(folder / "src" / "b.c", two)
    return folder


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (finding("a", command="SET k v"), ("setCommand", "src/a.c", 3)),
        (finding("a", command="SET k v; memory doctor"), ("memoryDoctor", "src/b.c", 3)),
        (finding("a", command="GET k", unit="crc64"), ("crc64", "src/b.c", 6)),
        (finding("a", command="GET k", difference=difference("x", "setCommand")), ("setCommand", "src/a.c", 3)),
        (finding("a", difference=REPLY), ("setCommand", "src/a.c", 3)),
        (finding("a", command="LPOS k v"), None),
        (finding("a", command="GET k"), None),
        (finding("a", command="SET k v; SAVE"), None),
        (finding("a", command="CONFIG GET port"), None),
        (finding("a", command="CONFIG SET port 1"), ("memoryDoctor", "src/b.c", 3)),
        (finding("a", kind="exit", command="SET k v"), None),
    ],
)
def test_a_wrong_result_points_to_the_function_that_its_evidence_names(
    tmp_path: Path, tree: Path, wrong: Finding, place: tuple[str, str, int] | None
) -> None:
    (found,) = implicated_code.collect(tmp_path, [wrong], tree)
    where = found.implicated
    assert (where and (where.function, where.file, where.line)) == place
    (later,) = implicated_code.collect(tmp_path, [wrong], None)
    assert later.implicated == where, "the place is kept with the run"


def test_the_command_table_in_c_of_old_releases_is_read(tmp_path: Path) -> None:
    fakes.write(tmp_path / "src" / "server.c", '    {"set",setCommand,-3,"wm",0},\n')
    fakes.write(tmp_path / "src" / "t_string.c", "\nvoid setCommand(client *c) {\n")
    (found,) = implicated_code.collect(tmp_path, [finding("a", command="SET k v")], tmp_path)
    assert found.implicated is not None
    assert (found.implicated.file, found.implicated.line) == ("src/t_string.c", 2)


def race(ours: str, theirs: str) -> Finding:
    """A data race between two stacks of functions, innermost first; `loop` is a function of the event loop."""

    def stack(words: str) -> list[Frame]:
        files = {"loop": "src/ae.c"}
        return [
            Frame(function=name, file=files.get(name, "src/server.c"), line=1, origin="server", pc=0)
            for name in words.split()
        ]

    name = ours.partition(" ")[0]
    plain = finding(f"tsan-{name}", kind="tsan-data-race", targets=("native",), function=name)
    witness = msgspec.structs.replace(plain.witnesses[0], target="native", backtrace=stack(ours), against=stack(theirs))
    return msgspec.structs.replace(plain, witnesses=[witness])


def test_races_of_one_hand_over_that_lost_its_order_share_a_cause() -> None:
    """All that a thread has read from a client is then a race with the thread that executes the command."""
    (cause,) = causes_of(
        [
            race("makeString parse read loop thread", "length execute answerAll loop main"),
            race("setFlag read loop thread", "getFlag answerAll loop main"),
            # Which thread made the store is a matter of chance.
            race("resetArguments answerAll loop main", "parse read loop thread"),
        ]
    )
    assert (cause.start, len(cause.members), cause.shared) == (
        "tsan-makeString",
        2,
        "the threads in answerAll and in read",
    )


def test_races_that_share_only_how_threads_wait_are_separate_causes() -> None:
    causes = causes_of(
        [
            race("setFlag sleep loop main", "poll thread"),
            race("push loop main", "pop loop thread"),
            race("count", "sum loop main"),
            race("allocate pop loop thread", "sum loop main"),
        ]
    )
    assert sorted(one.start for one in causes) == ["tsan-allocate", "tsan-count", "tsan-push", "tsan-setFlag"]
