"""What the native build does as well is no fault of a machine, unless it does it differently or only at times."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness.core.errors import ExitCode
from harness.core.finding import Difference
from harness.judge.conclusion import conclude, of_ended_cell
from harness.judge.verdict import EVERYWHERE
from harness.record import event_log, run_folder, stored_run
from harness.workflows.cells.cell_results import failed_tests, preceded_tests, unlike_host
from tests.support import fakes
from tests.support.fakes import fault
from tests.support.stored import StoredRun, concluded, known_file

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement

pytestmark = pytest.mark.usefixtures("fake_symbols")

NAME = "bitops/test_bitops.py::test_count[3]"
PLACE = "bitops/test_bitops.py:61"


@dataclasses.dataclass
class Outcomes:
    """A test that failed on a target, and what each of its runs on the host did."""

    run: StoredRun
    tmp_path: Path

    def on_target(self, message: str, *, asserted: str = PLACE, **told: Any) -> None:
        self.run.test("armv5", "bitops", NAME, outcome="failed", message=message, asserted=asserted, **told)
        self.run.test("armv5", "bitops", "bitops/test_bitops.py::test_other")

    def on_host(self, *messages: str, asserted: str = PLACE, **told: Any) -> None:
        for number, message in enumerate(messages, start=1):
            how = "failed" if message else "passed"
            place = asserted if message else ""
            self.run.host_test("armv5", "bitops", number, NAME, outcome=how, message=message, asserted=place, **told)

    def judged(self) -> tuple[Judgement, ExitCode]:
        return concluded(self.tmp_path, self.run)

    def judged_as_it_is(self, folder: Path) -> tuple[Judgement, ExitCode]:
        """The judgement of a folder that was changed after it was written."""
        return conclude(stored_run.read(folder), known_file(self.tmp_path), fakes.quiet())

    def scopes(self) -> list[str]:
        return [one.scope for one in self.judged()[0].findings]


def difference(record: str) -> Difference:
    """The first wrong byte of a file, in this record."""
    return Difference(where="dump.rdb", offset=1, record=record, actual="00", expected="01", writer="", reader="")


@pytest.fixture
def outcomes(run: StoredRun, tmp_path: Path) -> Outcomes:
    return Outcomes(run, tmp_path)


def test_what_the_host_does_each_time_is_noted_and_fails_nothing(outcomes: Outcomes) -> None:
    outcomes.on_target("GETRANGE k -2 -2: got b, the model says nothing")
    outcomes.on_host(*["GETRANGE k -2 -2: got b, the model says nothing"] * 3)
    judgement, code = outcomes.judged()
    assert code == ExitCode.PASS
    assert [(one.scope, one.known) for one in judgement.findings] == [("everywhere", EVERYWHERE)]
    assert [cell.verdict for cell in judgement.cells] == ["PASS", "XFAIL"]


def test_a_run_may_ask_that_it_fails(outcomes: Outcomes) -> None:
    outcomes.on_target("wrong reply to all")
    outcomes.on_host(*["wrong reply to all"] * 3)
    outcomes.run.everywhere = "fail"
    judgement, code = outcomes.judged()
    assert (code, [one.scope for one in judgement.findings]) == (ExitCode.FINDINGS, ["everywhere"])


@pytest.mark.parametrize(("everywhere", "scope"), [("note", "everywhere"), ("off", "machine")])
def test_what_the_native_build_did_beside_the_target_is_on_every_machine(
    outcomes: Outcomes, everywhere: Literal["note", "off"], scope: str
) -> None:
    outcomes.run.everywhere = everywhere
    outcomes.on_target("SET: the model says OK; the native build answers as the guest does", fails_natively=True)
    judgement, code = outcomes.judged()
    assert [one.scope for one in judgement.findings] == [scope]
    assert code == (ExitCode.PASS if everywhere == "note" else ExitCode.FINDINGS)


@pytest.mark.parametrize(
    ("messages", "asserted"),
    [
        (["", "", ""], PLACE),
        (["got 9, not 3"] * 3, "bitops/test_bitops.py:70"),
        (["got 2, not 3"] * 3, PLACE),
    ],
    ids=["it passes", "another assertion fails", "each of its values is another one"],
)
def test_what_the_host_does_differently_is_the_machines(outcomes: Outcomes, messages: list[str], asserted: str) -> None:
    outcomes.on_target("got 9, not 3")
    outcomes.on_host(*messages, asserted=asserted)
    judgement, code = outcomes.judged()
    assert (code, [one.scope for one in judgement.findings]) == (ExitCode.FINDINGS, ["machine"])


def test_values_that_differ_among_the_hosts_own_runs_count_for_nothing(outcomes: Outcomes) -> None:
    outcomes.on_target("keys k7, k9 were evicted and port 1200 closed")
    outcomes.on_host(
        "keys k1, k9 were evicted and port 1300 closed",
        "keys k3, k9 were evicted and port 1301 closed",
        "keys k5, k9 were evicted and port 1302 closed",
    )
    assert outcomes.scopes() == ["everywhere"]


def test_a_first_difference_that_depends_on_chance_on_the_host_is_everywhere(outcomes: Outcomes) -> None:
    """Regression: the order of keys decides which value of a file is read first, and it differs from start to start."""
    outcomes.on_target("before 655", difference=difference("compressed listpack in sequence 'b'"))
    of_host = ("listpack in sequence 'a'", "compressed listpack in sequence 'c'", "text")
    for number, record in enumerate(of_host, start=1):
        told = {"message": f"at {record}", "asserted": PLACE, "difference": difference(record)}
        outcomes.run.host_test("armv5", "bitops", number, NAME, outcome="failed", **told)
    assert outcomes.scopes() == ["everywhere"]


def test_a_first_difference_that_each_run_on_the_host_has_elsewhere_is_the_machines(outcomes: Outcomes) -> None:
    outcomes.on_target("before 655", difference=difference("text"))
    outcomes.on_host(*["before 655"] * 3, difference=difference("listpack in sequence 'a'"))
    assert outcomes.scopes() == ["machine"]


def test_a_time_limit_that_expires_everywhere_is_no_value(outcomes: Outcomes) -> None:
    """Regression: a slow machine waits longer than the host, and a hang of both failed the check."""
    outcomes.on_target("the server did not finish its reply within 75 seconds")
    outcomes.on_host(*["the server did not finish its reply within 5 seconds"] * 3)
    assert outcomes.scopes() == ["everywhere"]


def test_a_hang_of_both_is_everywhere_whatever_their_time_limits(outcomes: Outcomes) -> None:
    outcomes.on_target("no reply", guest="guest-1")
    outcomes.run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply within 75 s", test=NAME)
    for number in (1, 2, 3):
        outcomes.run.host_test("armv5", "bitops", number, NAME, outcome="failed", message="no reply", guest="guest-1")
        name = f"bitops/{run_folder.HOST}-{number}"
        outcomes.run.guest("armv5", name, "guest-1", end="hang", detail="no reply within 5 s", test=NAME)
    assert outcomes.scopes() == ["everywhere"]


@pytest.mark.parametrize(
    ("alone", "preceded", "scopes"),
    [
        ("", ["got 9, not 3"] * 2, ["everywhere"]),
        ("", ["got 9, not 3", ""], []),
        ("", ["got 2, not 3"] * 2, ["machine"]),
        ("", ["", ""], ["machine"]),
        ("got 2, not 3", ["got 9, not 3"] * 2, ["everywhere"]),
        ("got 2, not 3", ["got 2, not 3"] * 2, ["machine"]),
    ],
    ids=["always", "at times", "with another value", "never", "alone with another value", "never with this value"],
)
def test_a_failure_that_needs_the_tests_before_it_is_asked_behind_them(
    outcomes: Outcomes, alone: str, preceded: list[str], scopes: list[str]
) -> None:
    """Regression: the state that earlier tests left made a test fail on each machine, and alone it passed."""
    outcomes.on_target("got 9, not 3")
    outcomes.on_host(*[alone] * 3, *preceded)
    assert outcomes.scopes() == scopes


def test_runs_behind_the_tests_before_it_excuse_nothing_if_one_of_them_is_in_doubt(outcomes: Outcomes) -> None:
    outcomes.on_target("got 9, not 3")
    outcomes.on_host(*[""] * 3, *["got 9, not 3"] * 2)
    # Nothing records how this server ended.
    (outcomes.run.cell("armv5", f"bitops/{run_folder.HOST}-4") / "guest-1").mkdir()
    judgement, code = outcomes.judged()
    assert (code, [one.scope for one in judgement.findings]) == (ExitCode.FINDINGS, ["machine"])


def test_only_the_tests_on_the_server_of_a_failed_one_precede_it(run: StoredRun) -> None:
    ran: list[tuple[str, str, Literal["passed", "failed", "skipped"]]] = [
        ("first", "guest-1", "passed"),
        ("shown", "guest-1", "failed"),
        ("left out", "guest-1", "skipped"),
        ("hidden", "guest-1", "failed"),
        ("behind", "guest-1", "passed"),
        ("elsewhere", "guest-2", "passed"),
        ("alone", "guest-3", "failed"),
    ]
    for name, guest, outcome in ran:
        message = "within 75 s" if outcome == "failed" else ""
        run.test("armv5", "bitops", name, outcome=outcome, guest=guest, message=message)
    for number in (1, 2, 3):
        run.host_test("armv5", "bitops", number, "shown", outcome="failed", message="within 5 s")
        run.host_test("armv5", "bitops", number, "hidden")
        run.host_test("armv5", "bitops", number, "alone")
    cell = run.finish() / "armv5" / "bitops"
    logs = [run_folder.host_folder(cell, number) / event_log.NAME for number in (1, 2, 3)]
    others = unlike_host(cell, "armv5", logs)
    assert others == {"hidden", "alone"}
    assert preceded_tests(cell, others) == ["first", "shown", "hidden"]


def test_a_failure_that_the_host_shows_at_times_is_a_remark(outcomes: Outcomes) -> None:
    outcomes.on_target("no reply within 2 s")
    outcomes.on_host("no reply within 2 s", "", "")
    judgement, code = outcomes.judged()
    assert (code, judgement.findings) == (ExitCode.PASS, [])
    assert f"{NAME} failed on armv5, and at times on the host too" in judgement.remarks
    assert judgement.cells[1].reason == "1 failed test also fails at times on the host"


def test_a_test_that_passes_on_another_target_differs_between_machines(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in run.targets:
        run.canary(name)
    outcomes = Outcomes(run, tmp_path)
    outcomes.on_target("got 9, not 3")
    outcomes.on_host(*["got 9, not 3"] * 3)
    run.test("sparc64", "bitops", NAME)
    judgement, code = outcomes.judged()
    assert (code, [one.scope for one in judgement.findings]) == (ExitCode.FINDINGS, ["machine"])


@pytest.mark.parametrize(("message", "scope"), [("got 9, not 3", "everywhere"), ("got 8, not 3", "machine")])
def test_a_failure_of_the_audit_is_everywhere_if_the_host_shares_it(
    outcomes: Outcomes, message: str, scope: str
) -> None:
    """A server that cannot start otherwise runs its tests only in the audit."""
    run = outcomes.run
    run.canary("armv5")
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_other")
    run.audited.add(("armv5", "bitops"))
    audit = f"bitops/{run_folder.AUDIT}"
    run.test("armv5", audit, NAME, outcome="failed", message=message, asserted=PLACE)
    outcomes.on_host(*["got 9, not 3"] * 3)
    assert failed_tests(run.finish() / "armv5" / "bitops") == [NAME]
    assert outcomes.scopes() == [scope]


@pytest.mark.parametrize(("in_cell", "number"), [("failed", 1), ("passed", 0)])
def test_an_unsteady_failure_of_the_audit_is_a_remark_and_no_failed_test_of_the_cell(
    outcomes: Outcomes, in_cell: Literal["passed", "failed"], number: int
) -> None:
    """Regression: it was counted twice, for another failed test of the cell, and the remark named the target twice."""
    run = outcomes.run
    run.canary("armv5")
    run.test("armv5", "bitops", NAME, outcome=in_cell, message="got 9, not 3" * number, asserted=PLACE * number)
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_other")
    run.audited.add(("armv5", "bitops"))
    run.test("armv5", f"bitops/{run_folder.AUDIT}", NAME, outcome="failed", message="got 9, not 3", asserted=PLACE)
    outcomes.on_host("got 9, not 3", "", "got 9, not 3")
    judgement, code = outcomes.judged()
    assert (code, judgement.findings) == (ExitCode.PASS, [])
    assert [cell.unsteady for cell in judgement.cells if cell.suite == "bitops"] == [number]
    assert f"{NAME} failed on armv5, and at times on the host too" in judgement.remarks


@pytest.mark.parametrize(("outcome", "scope"), [("passed", "machine"), ("failed", "everywhere")])
def test_a_pass_in_the_audit_of_another_target_contradicts_the_host(
    tmp_path: Path, outcome: Literal["passed", "failed"], scope: str
) -> None:
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    both = Outcomes(run, tmp_path)
    run.canary("armv5")
    both.on_target("got 9, not 3")
    both.on_host(*["got 9, not 3"] * 3)
    run.canary("sparc64")
    run.test("sparc64", "bitops", NAME, outcome="failed", message="the server did not start", blocked=True)
    run.audited.add(("sparc64", "bitops"))
    run.test("sparc64", f"bitops/{run_folder.AUDIT}", NAME, outcome=outcome, message="got 9, not 3", asserted=PLACE)
    for number in (1, 2, 3):
        run.host_test("sparc64", "bitops", number, NAME, outcome="failed", message="got 9, not 3", asserted=PLACE)
    assert [one.scope for one in both.judged()[0].findings if one.kind == "wrong-result"] == [scope]


def test_a_misaligned_access_is_the_machines_whatever_the_host_does(outcomes: Outcomes) -> None:
    run = outcomes.run
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "bitopCommand")))
    outcomes.on_target("ServerGoneError: closed", guest="guest-1", faults=(0, 1), command="BITOP AND c a b")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="SIGBUS", test=NAME)
    outcomes.on_host(*["ServerGoneError: closed"] * 3)
    judgement, code = outcomes.judged()
    assert (code, [(one.kind, one.scope) for one in judgement.findings]) == (
        ExitCode.FINDINGS,
        [("alignment", "machine")],
    )


@pytest.mark.parametrize(("detail", "scope"), [("SIGSEGV", "everywhere"), ("SIGABRT", "machine")])
def test_an_end_by_the_same_signal_in_the_same_test_is_everywhere(outcomes: Outcomes, detail: str, scope: str) -> None:
    run = outcomes.run
    outcomes.on_target("ServerGoneError: closed", guest="guest-1")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="SIGSEGV", test=NAME)
    outcomes.on_host(*["ServerGoneError: closed"] * 3, guest="guest-1")
    for number in (1, 2, 3):
        run.guest("armv5", f"bitops/{run_folder.HOST}-{number}", "guest-1", end="signal", detail=detail, test=NAME)
    assert outcomes.scopes() == [scope]


REPORT = "1: 01 Jan 2026 00:00:00.000 # Redis 6.2.0 crashed by signal: 11, si_code: 1\n"


@pytest.mark.parametrize(
    ("again", "log", "code", "scopes"),
    [
        # Regression: releases before 6.2 do not say who sent a signal, and such an end of the native build was FAIL.
        (["", "", ""], "", ExitCode.INCONCLUSIVE, []),
        ([], "", ExitCode.INCONCLUSIVE, []),
        (["SIGBUS"] * 3, "", ExitCode.INCONCLUSIVE, []),
        (["SIGSEGV"] * 3, "", ExitCode.PASS, ["everywhere"]),
        (["", "", ""], REPORT.replace("1:", f"{fakes.PID}:M", 1), ExitCode.FINDINGS, ["machine"]),
        (["", "", ""], REPORT.replace("1:", f"{fakes.PID}:M", 1).replace("de: 1", "de: 0"), ExitCode.INCONCLUSIVE, []),
    ],
    ids=["never again", "not asked again", "another signal", "each time", "an instruction's", "a process sent it"],
)
def test_an_end_of_the_native_build_that_another_process_may_have_caused_is_in_doubt(
    outcomes: Outcomes, again: list[str], log: str, code: ExitCode, scopes: list[str]
) -> None:
    run = outcomes.run
    run.has_native = True
    outcomes.on_target("ServerGoneError: the native build closed the connection", guest="guest-1")
    run.own_guest("armv5", "bitops", "native", test=NAME, end="signal", detail="killed by SIGSEGV")
    run.log("armv5", "bitops", f"{run_folder.PEERS}/native/guest-9", log.encode())
    outcomes.on_host(*["ServerGoneError: closed" if one else "" for one in again], guest="guest-1")
    for number, one in enumerate(again, start=1):
        if one:
            suite = f"bitops/{run_folder.HOST}-{number}"
            run.guest("armv5", suite, "guest-1", end="signal", detail=f"killed by {one}", test=NAME)
    judgement, ended = outcomes.judged()
    assert (ended, [one.scope for one in judgement.findings]) == (code, scopes)


@pytest.mark.parametrize(
    ("log", "detail", "scope"),
    [
        ("1: redis-server(bitopCommand+0x9a)[0x55]", "SIGSEGV", "everywhere"),
        ("1: redis-server(bitopCommand+0x9a)[0x55]", "SIGBUS", "machine"),
        ("1: redis-server(getCommand+0x9a)[0x55]", "SIGSEGV", "machine"),
        ("EIP:\nredis-server *:0(+0x9000)[0x55]", "SIGSEGV", "everywhere"),
        ("Backtrace:\nredis-server *:0(+0x9001)[0x55]", "SIGSEGV", "everywhere"),
        ("Backtrace:\nredis-server *:0(+0x9000)[0x55]", "SIGSEGV", "machine"),
        ("EIP:\n/lib/libc.so(+0x9000)[0x55]", "SIGSEGV", "machine"),
        ("EIP:\n/lib/libc.so.6(+0x9000)[0x55]", "SIGSEGV", "machine"),
    ],
    ids=[
        *("the same function", "another signal", "another function"),
        *("static", "static caller", "another caller", "library", "library with a version"),
    ],
)
def test_a_located_fault_is_everywhere_if_the_hosts_report_names_its_function(
    outcomes: Outcomes, log: str, detail: str, scope: str
) -> None:
    run = outcomes.run
    record = fault(pc=run.place("armv5", "bitopCommand"), number=11, code=1, access="")
    fakes.write(run.binary("native"), "no real binary\n")
    fakes.write(run.binary("native").with_name("redis-server.lines"), "0x9000 bitopCommand /c/work/1/tree/a.c:9\n")
    run.fault("armv5", "bitops", "guest-1", record)
    outcomes.on_target("ServerGoneError: closed", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="SIGSEGV", test=NAME)
    outcomes.on_host(*["ServerGoneError: closed"] * 3, guest="guest-1")
    for number in (1, 2, 3):
        suite = f"bitops/{run_folder.HOST}-{number}"
        run.guest("armv5", suite, "guest-1", end="signal", detail=detail, test=NAME)
        run.log("armv5", suite, "guest-1", log.encode())
    assert [(one.kind, one.scope) for one in outcomes.judged()[0].findings] == [("sigsegv", scope)]


@pytest.mark.parametrize("why", ["problem", "cut", "changed", "skipped"])
def test_without_a_complete_second_opinion_a_failure_stays_the_machines(outcomes: Outcomes, why: str) -> None:
    outcomes.on_target("got 9, not 3")
    outcomes.on_host(*["got 9, not 3"] * 3)
    run = outcomes.run
    if why == "problem":
        run.host_problem = "it did not end within 9 s"
    if why == "skipped":
        run.events["armv5", "bitops/host-2"] = []
        run.host_test("armv5", "bitops", 2, NAME, outcome="skipped")
    folder = run.finish()
    log = run_folder.host_folder(folder / "armv5" / "bitops", 2) / "events.jsonl"
    if why == "cut":
        log.write_bytes(log.read_bytes()[:-9])
    if why == "changed":
        log.with_name("log").write_text("new\n", "utf-8")
    judgement, code = outcomes.judged_as_it_is(folder)
    assert (code, [one.scope for one in judgement.findings]) == (ExitCode.FINDINGS, ["machine"])
    told = any("have no result on the host" in remark for remark in judgement.remarks)
    assert told is (why != "skipped")


@pytest.mark.parametrize(
    ("ended", "scope"),
    [
        (("armv5", "sparc64", "native"), "everywhere"),
        (("armv5", "native"), "machine"),
        (("armv5", "sparc64"), "machine"),
    ],
    ids=["every server", "not on each target", "not natively"],
)
def test_an_end_of_every_server_and_of_the_native_build_is_everywhere(
    tmp_path: Path, ended: tuple[str, ...], scope: str
) -> None:
    """An open-ended suite sends other requests to each, so its tests are not asked again on the host."""
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in run.targets:
        run.canary(name)
        run.test(name, "bitops", NAME, outcome="failed" if name in ended else "passed", message="closed")
    run.has_native = True
    for name in ended:
        cell = "armv5" if name == "native" else name
        run.own_guest(cell, "bitops", name, test=NAME, end="exit", detail="exit status 3")
    judgement, _ = concluded(tmp_path, run)
    assert {one.scope for one in judgement.findings if one.kind.startswith("exit")} == {scope}


def test_an_end_in_an_example_of_a_test_is_that_of_the_same_example_on_the_target(
    run: StoredRun, tmp_path: Path
) -> None:
    """Regression: the host's server died in `test_restore`, and the target's in `test_restore[PFMERGE-end]`."""
    whole = "bitops/test_restore.py::test_restore"
    example = f"{whole}[PFMERGE-end]"
    run.has_native = True
    run.fault("armv5", "bitops", "guest-1", fault(pc=run.place("armv5", "bitopCommand"), number=11, code=1, access=""))
    run.test("armv5", "bitops", example, outcome="failed", message="closed", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="SIGSEGV", test=example)
    run.own_guest("armv5", "bitops", "native", test=whole, end="signal", detail="killed by SIGSEGV")
    run.log("armv5", "bitops", f"{run_folder.PEERS}/native/guest-9", b"1: redis-server(bitopCommand+0x9a)[0x55]")
    judgement, _ = concluded(tmp_path, run)
    assert {(one.kind, one.scope) for one in judgement.findings} == {("sigsegv", "everywhere"), ("crash", "everywhere")}


@pytest.mark.parametrize(
    ("log", "detail", "scopes"),
    [
        ("1: redis-server(bitopCommand+0x9a)[0x55]", "SIGSEGV", {"everywhere"}),
        ("1: redis-server(bitopCommand+0x9a)[0x55]", "SIGBUS", {"machine"}),
        ("1: redis-server(getCommand+0x9a)[0x55]", "SIGSEGV", {"machine"}),
    ],
    ids=["the same function", "another signal", "another function"],
)
@pytest.mark.parametrize("everywhere", ["note", "off"])
@pytest.mark.parametrize("suite", ["bitops", f"bitops/{run_folder.AUDIT}"])
def test_a_located_fault_is_everywhere_if_the_server_beside_it_ends_in_the_same_function(
    run: StoredRun,
    tmp_path: Path,
    suite: str,
    log: str,
    detail: str,
    scopes: set[str],
    everywhere: Literal["note", "off"],
) -> None:
    """Regression: the fuzzer's file killed both servers, and each end was the machine's; later, that in the audit."""
    run.everywhere = everywhere
    if suite != "bitops":
        run.canary("armv5")
        run.audited.add(("armv5", "bitops"))
        run.test("armv5", "bitops", "bitops/test_bitops.py::test_other")
    run.has_native = True
    record = fault(pc=run.place("armv5", "bitopCommand"), number=11, code=1, access="")
    run.fault("armv5", suite, "guest-1", record)
    run.test("armv5", suite, NAME, outcome="failed", message="closed", guest="guest-1", faults=(0, 1))
    run.guest("armv5", suite, "guest-1", end="signal", detail="SIGSEGV", test=NAME)
    run.own_guest("armv5", suite, "native", test=NAME, end="signal", detail=f"killed by {detail}")
    # Another example of this name passed.
    run.test("armv5", suite, NAME)
    run.log("armv5", suite, f"{run_folder.PEERS}/native/guest-9", log.encode())
    judgement, _ = concluded(tmp_path, run)
    assert {one.scope for one in judgement.findings} == (scopes if everywhere == "note" else {"machine"})


@pytest.mark.parametrize(
    ("said", "known"),
    [("got 9, not 3", {NAME}), ("got 2, not 3", set())],
    ids=["the listed message", "another message"],
)
def test_only_what_is_listed_needs_no_other_run_on_the_host(
    outcomes: Outcomes, tmp_path: Path, said: str, known: set[str]
) -> None:
    """Regression: in each check of a checkout, listed failures ran the cell again on the host, once for each target."""
    outcomes.on_target("got 9, not 3")
    outcomes.on_host("", "", "")
    folder = outcomes.run.finish()
    run = run_folder.read_run(folder)
    entry = f'id = "*"\nsaid = "{said}"\nreason = "it is old"\nexpires = 2999-01-01'
    (record,) = [one for one in run.cells if one.suite == "bitops"]
    ended = of_ended_cell(folder, run, record, known_file(tmp_path, entry))
    assert (ended.known, bool(ended.new)) == (known, not known)
    assert not (folder / "reproducers").exists()
