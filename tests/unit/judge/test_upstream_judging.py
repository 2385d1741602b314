"""Judging stored evidence of upstream's own tests: which test a fault belongs to, findings, and intended crashes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.judge.upstream_tests.tally import tallies
from harness.judge.verdict import EVERYWHERE
from harness.record import cell_events, fault_log, run_folder
from harness.report.formats import upstream_tests
from tests.support import fakes
from tests.support.fakes import fault
from tests.support.stored import StoredRun, concluded, judged, reproducer

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.record.fault_log import Fault

pytestmark = pytest.mark.usefixtures("fake_symbols")
SUITE = "bitops"
SEGMENTATION = int(signal.SIGSEGV)


class UpstreamRun(StoredRun):
    """A stored run of upstream's own tests."""

    def passed(self, name: str, **more: Any) -> None:
        """Record a test that passed, unless `more` says otherwise."""
        event = cell_events.TestEvent(name=f"item[{name}]", outcome="passed", seconds=0.1, upstream=name)
        self.add("armv5", SUITE, msgspec.structs.replace(event, **more))

    def failed(self, name: str, message: str, **more: Any) -> None:
        """Record a test that failed."""
        self.passed(name, outcome="failed", message=message, **more)

    def started(
        self,
        name: str,
        *,
        record: Fault | None = None,
        ended_by: str = "",
        test: str = "",
        announced: tuple[str, ...] = (),
    ) -> None:
        """Record a server that a test started, with at most one fault, and how it ended."""
        note = "\0".join([str(fakes.PID), "1", "/t", "/t/out", "0", "/t/err", "0", "src/redis-server", ""])
        fakes.write(self.cell("armv5", SUITE) / name / "launch", note)
        if record is not None:
            self.fault("armv5", SUITE, name, record)
        if ended_by:
            number = int(signal.Signals[ended_by])
            end = json_codec.encode(fault_log.ProcessEnd(event="end", pid=fakes.PID, signal=number, status=0))
            with (self.cell("armv5", SUITE) / name / fault_log.NAME).open("ab") as log:
                log.write(end + b"\n")
        event = cell_events.GuestEvent(
            name=name,
            end="signal" if ended_by else "stopped",
            detail=f"killed by {ended_by}" if ended_by else "",
            test=f"item[{test}]" if test else "",
            pid=fakes.PID,
            upstream=True,
            announced=announced,
        )
        self.add("armv5", SUITE, event)


@pytest.fixture
def stored(tmp_path: Path) -> UpstreamRun:
    run = UpstreamRun(tmp_path / "run")
    run.canary("armv5")
    return run


def found(stored: UpstreamRun) -> dict[str, Finding]:
    return {finding.id: finding for finding in judged(stored)[0]}


def test_a_fault_belongs_to_the_test_that_added_it_to_one_of_several_servers(stored: UpstreamRun) -> None:
    pc = stored.place("armv5", "bitopCommand")
    stored.started("guest-1", record=fault(pc=pc), ended_by="SIGBUS", test="unit/bitops::BITOP")
    stored.started("guest-2")
    stored.passed("unit/bitops::SETBIT")
    stored.failed(
        "unit/bitops::BITOP", "I/O error reading reply", guests={"guest-1": (0, 1)}, unanswered=("BITOP AND c a",)
    )
    (finding,) = found(stored).values()
    assert finding.id == "alignment-bitopCommand-load"
    assert finding.witnesses[0].test == "unit/bitops::BITOP"
    assert finding.command == "BITOP AND c a"
    assert reproducer(finding).upstream == "unit/bitops::BITOP"


def test_a_fault_is_a_finding_even_where_the_test_passed(stored: UpstreamRun) -> None:
    pc = stored.place("armv5", "bitopCommand")
    stored.started("guest-1", record=fault(pc=pc), ended_by="SIGBUS", test="unit/bitops::BITOP")
    stored.passed("unit/bitops::BITOP", guests={"guest-1": (0, 1)})
    assert set(found(stored)) == {"alignment-bitopCommand-load"}


def test_a_detectors_report_belongs_to_the_test_during_which_its_server_ended(stored: UpstreamRun) -> None:
    """A replay of the finding runs that test's file. Without a test, it would start a server and send nothing."""
    stored.detectors["armv5"] = "ubsan"
    stored.started("guest-1", test="unit/bitops::BITOP")
    fakes.write(
        stored.cell("armv5", SUITE) / "guest-1" / "log", "bitops.c:7:3: runtime error: shift exponent 32 is too large\n"
    )
    stored.passed("unit/bitops::BITOP")
    (finding,) = found(stored).values()
    assert (finding.witnesses[0].test, finding.command) == ("unit/bitops::BITOP", "")
    assert reproducer(finding).upstream == "unit/bitops::BITOP"


def test_a_failure_is_a_finding_unless_a_crash_caused_it(stored: UpstreamRun) -> None:
    pc = stored.place("armv5", "bitopCommand")
    stored.started("guest-1", record=fault(pc=pc), ended_by="SIGBUS", test="unit/bitops::BITOP")
    stored.passed("unit/bitops::BITOP", guests={"guest-1": (0, 1)})
    stored.failed("unit/bitops::BITPOS", "I/O error", blocked=True, blocked_by="guest-1")
    stored.failed("unit/bitops::BITFIELD", "Expected '1' to be equal to '2'\nat tests/unit/bitops.tcl:7")
    assert set(found(stored)) == {"alignment-bitopCommand-load", "wrong-result-unit_bitops_BITFIELD"}
    assert found(stored)["wrong-result-unit_bitops_BITFIELD"].title == (
        "unit/bitops::BITFIELD: Expected '1' to be equal to '2'"
    )


KNOWN = """
id = "alignment-bitopCommand-load"
targets = ["*"]
reason = "we know"
expires = 2999-01-01
"""


@pytest.mark.parametrize(("hindered", "said"), [(0, ""), (1, "; 1 test could"), (2, "; 2 tests could")])
def test_a_known_crash_says_how_many_tests_it_kept_from_running(
    tmp_path: Path, stored: UpstreamRun, hindered: int, said: str
) -> None:
    """They may have bugs of their own, which the entry does not know."""
    pc = stored.place("armv5", "bitopCommand")
    stored.started("guest-1", record=fault(pc=pc), ended_by="SIGBUS", test="unit/bitops::BITOP")
    stored.passed("unit/bitops::BITOP", guests={"guest-1": (0, 1)})
    for number in range(hindered):
        stored.failed(f"unit/bitops::BITPOS {number}", "I/O error", blocked=True, blocked_by="guest-1")
    judgement, _ = concluded(tmp_path, stored, KNOWN)
    (cell,) = [cell for cell in judgement.cells if cell.suite == SUITE]
    assert cell.verdict == "XFAIL"
    assert cell.reason == "known: we know" + (f"{said} not run because of it" if said else "")


@pytest.mark.parametrize(
    ("announced", "deliberate"),
    [
        (("command: debug segfault",), True),
        (("command: DEBUG PANIC",), True),
        ((), False),
        ((f"command: kill -SIGABRT {fakes.PID}",), False),
        (("log: *ASSERTION FAILED*",), False),
    ],
)
def test_a_crash_is_intended_only_if_the_test_announced_it(
    stored: UpstreamRun, announced: tuple[str, ...], *, deliberate: bool
) -> None:
    pc = stored.place("armv5", "debugCommand", "src/debug.c", 500)
    crash = fault(pc=pc, number=SEGMENTATION, code=2, access="", handled=True)
    stored.started("guest-1", record=crash, ended_by="SIGSEGV", test="integration/logging::Crash", announced=announced)
    stored.passed("integration/logging::Crash", guests={"guest-1": (0, 1)}, announced=announced)
    assert set(found(stored)) == (set() if deliberate else {"sigsegv-debugCommand"})


def test_a_fault_of_the_crash_handler_after_an_intended_crash_is_a_finding(stored: UpstreamRun) -> None:
    announced = ("command: debug segfault",)
    pc = stored.place("armv5", "debugCommand", "src/debug.c", 500)
    crash = fault(pc=pc, number=SEGMENTATION, code=2, access="", handled=True)
    stored.started("guest-1", record=crash, ended_by="SIGSEGV", test="integration/logging::Crash", announced=announced)
    stored.fault("armv5", SUITE, "guest-1", fault(pc=stored.place("armv5", "bitopCommand")))
    stored.passed("integration/logging::Crash", guests={"guest-1": (0, 2)}, announced=announced)
    assert set(found(stored)) == {"crash-handler-sigbus-bitopCommand-load"}


@pytest.mark.parametrize(
    ("function", "file", "deliberate"),
    [
        ("debugCommand", "debug.c", True),
        ("redisOutOfMemoryHandler", "server.c", True),
        ("listDelNode", "adlist.c", False),
        ("logStackTrace", "debug.c", False),
        ("", "debug.c", True),
        ("", "adlist.c", False),
    ],
)
def test_an_assertion_is_intended_only_if_the_announced_command_causes_it(
    stored: UpstreamRun, function: str, file: str, *, deliberate: bool
) -> None:
    """Regression: any assertion was, such as one that failed while the server reported its intended crash."""
    message = (
        f"redis-server: {file}:77: {function}: Assertion `x' failed." if function else f"==> {file}:77 'x' is not true"
    )
    stored.log("armv5", SUITE, "guest-1", f"=== ASSERTION FAILED ===\n{message}\n".encode())
    # It then looks for the report of that crash.
    announced = ("command: DEBUG PANIC", "log: *=== ASSERTION FAILED ===*")
    stored.started("guest-1", ended_by="SIGABRT", test="integration/logging::Panic", announced=announced)
    stored.passed("integration/logging::Panic", announced=announced)
    assert set(found(stored)) == (set() if deliberate else {f"assertion-{function or file}"})


@pytest.mark.parametrize(
    ("announced", "deliberate"),
    [
        ((f"command: kill -SIGABRT {fakes.PID}",), True),
        ((f"command: kill -6 {fakes.PID}",), True),
        (("command: kill -SIGABRT 1",), False),
        ((f"command: kill -SIGSEGV {fakes.PID}",), False),
        (("log: *ASSERTION FAILED*",), True),
        (("log: crashed by signal", "log: ASSERTION FAILED"), True),
        (("log: *crashed by signal*",), False),
        ((f"command: kill -SIGSEGV {fakes.PID}", "log: *ASSERTION FAILED*"), False),
        ((f"command: kill -SIGABRT {fakes.PID}", "log: *crashed by signal*"), True),
        ((), False),
    ],
)
def test_an_end_by_abort_is_intended_only_if_the_test_announced_it(
    stored: UpstreamRun, announced: tuple[str, ...], *, deliberate: bool
) -> None:
    stored.started("guest-1", ended_by="SIGABRT", test="integration/logging::Abort", announced=announced)
    stored.passed("integration/logging::Abort", announced=announced)
    assert set(found(stored)) == (set() if deliberate else {"crash-integration_logging_Abort"})


@pytest.mark.parametrize(
    ("announced", "in_module", "deliberate"),
    [
        (("log: *Crashed running the instruction at*",), True, True),
        (("log: *Crashed running the instruction at*",), False, False),
        (("log: Crashed running signal handler.",), True, True),
        (("log: *BUG REPORT START*",), True, False),
        ((), True, False),
    ],
)
def test_a_test_module_may_crash_twice_if_its_test_expects_it(
    stored: UpstreamRun, announced: tuple[str, ...], *, in_module: bool, deliberate: bool
) -> None:
    pc = stored.place("armv5", "crashing", "src/debug.c", 500)
    crash = fault(pc=pc, number=SEGMENTATION, code=2, access="", handled=True)
    stored.started("guest-1", record=crash, ended_by="SIGSEGV", test="unit/moduleapi/crash::Twice", announced=announced)
    if in_module:
        log = stored.cell("armv5", SUITE) / "guest-1" / "faults.jsonl"
        binary = json_codec.encode(str(stored.binary("armv5")))[1:-1]
        log.write_bytes(log.read_bytes().replace(binary, b"/t/tests/modules/crash.so"))
    stored.passed("unit/moduleapi/crash::Twice", guests={"guest-1": (0, 1)}, announced=announced)
    assert (found(stored) == {}) is deliberate


@pytest.mark.parametrize("unemulated", [True, False])
def test_a_crash_without_an_emulators_record_is_blamed_on_the_emulator_only_if_there_is_one(
    stored: UpstreamRun, *, unemulated: bool
) -> None:
    if unemulated:
        stored.unemulated.add("armv5")
    stored.detectors["armv5"] = "asan"
    folder = stored.cell("armv5", SUITE) / "guest-1"
    fakes.write(fault_log.ledger_of(folder / fault_log.NAME), "\0" * 16)
    fakes.write(folder / "log", "7:M 28 Nov 2026 03:00:00.000 # Redis 7.0.15 crashed by signal: 11\n")
    end = cell_events.GuestEvent(
        name="guest-1",
        end="signal",
        detail="killed by SIGSEGV",
        test="item[unit/bitops::BITOP]",
        pid=7,
        upstream=True,
    )
    stored.add("armv5", SUITE, end)
    stored.failed("unit/bitops::BITOP", "I/O error reading reply")
    stored.passed("unit/bitops::BITPOS")
    findings, verdicts = judged(stored)
    ids = [finding.id for finding in findings]
    expected = (["crash-unit_bitops_BITOP"], "FAIL") if unemulated else ([], "UNKNOWN")
    assert (ids, verdicts["armv5/bitops"]) == expected


def test_a_server_of_which_nothing_records_the_end_is_missed(stored: UpstreamRun) -> None:
    """A test had started it outside of its file's folder, where nobody looked for it: its abort left no trace."""
    stored.passed("unit/a::one")
    fakes.write(stored.cell("armv5", SUITE) / "guest-1" / "launch", "7\0")
    assert judged(stored)[1]["armv5/bitops"] == "UNKNOWN"


SAVES = f"{fakes.PID}:M 28 Nov 2026 03:00:00.000 * Background saving started by pid 99\n"
CHILD = "99:C 28 Nov 2026 03:00:01.000 # Redis 7.0.15 crashed by signal: 11, si_code: 1\n"
PARENT = f"{fakes.PID}:M 28 Nov 2026 03:00:02.000 # Background saving terminated by signal 11\n"
FORK = f"{fakes.PID}:M 28 Nov 2026 03:00:02.000 * Module fork exited pid: 99, retcode: -1, bysignal: 6\n"


@pytest.mark.parametrize(
    ("log", "detector", "found"),
    [
        (SAVES, "", None),
        (SAVES + CHILD, "", "SIGSEGV"),
        (SAVES + PARENT, "", "SIGSEGV"),
        (SAVES + CHILD + PARENT, "asan", "SIGSEGV"),
        (SAVES + FORK, "", "SIGABRT"),
        ("99:C 28 Nov 2026 03:00:01.000 # === ASSERTION FAILED ===\n", "", "SIGABRT"),
        (PARENT.replace("signal 11", "signal 9"), "", None),
        (PARENT.replace("signal 11", "signal 10"), "", None),
        (PARENT.replace(str(fakes.PID), "98"), "", None),
        (f"{fakes.PID}:C 28 Nov 2026 03:00:00.000 # Redis 7.0.15 crashed by signal: 11, si_code: 1\n", "", None),
    ],
    ids=[
        "none",
        "its own report",
        "its server's word",
        "under a detector",
        "a module's",
        "an assertion",
        "killed from outside",
        "told to end",
        "another server's",
        "the server itself",
    ],
)
def test_a_child_that_crashes_is_a_finding_where_no_emulator_sees_it(
    stored: UpstreamRun, log: str, detector: str, found: str | None
) -> None:
    """Its server went on, no test failed, and the cell passed."""
    stored.unemulated.add("armv5")
    if detector:
        stored.detectors["armv5"] = detector
    stored.started("guest-1", test="integration/rdb::saves")
    fakes.write(stored.cell("armv5", SUITE) / "guest-1" / "log", log)
    stored.passed("integration/rdb::saves")
    findings, verdicts = judged(stored)
    assert [finding.id for finding in findings] == ([f"crash-child_{found}"] if found else [])
    assert verdicts["armv5/bitops"] == ("FAIL" if found else "PASS")


@pytest.mark.parametrize(("other", "found"), [("", 0), (CHILD.replace("99:C", "98:C"), 1)])
def test_a_child_whose_crash_its_detector_reports_is_one_finding(stored: UpstreamRun, other: str, found: int) -> None:
    stored.unemulated.add("armv5")
    stored.detectors["armv5"] = "asan"
    stored.started("guest-1", test="integration/rdb::saves")
    report = "==99==ERROR: AddressSanitizer: SEGV on unknown address 0x000000000000\n    #0 0x1 in rdbSave rdb.c:7\n"
    fakes.write(stored.cell("armv5", SUITE) / "guest-1" / "log", SAVES + report + PARENT + other)
    stored.passed("integration/rdb::saves")
    findings, _ = judged(stored)
    ids = [finding.id for finding in findings]
    assert ids.count("crash-child_SIGSEGV") == found
    assert len(ids) == found + 1


def test_a_misaligned_access_is_never_on_purpose(stored: UpstreamRun) -> None:
    pc = stored.place("armv5", "debugCommand", "src/debug.c", 500)
    announced = ("command: debug segfault",)
    stored.started("guest-1", record=fault(pc=pc), ended_by="SIGBUS", test="a::b", announced=announced)
    stored.passed("a::b", guests={"guest-1": (0, 1)}, announced=announced)
    assert set(found(stored)) == {"alignment-debugCommand-load"}


def test_an_intended_crash_explains_no_failure(stored: UpstreamRun) -> None:
    announced = (f"command: kill -SIGABRT {fakes.PID}",)
    stored.started("guest-1", ended_by="SIGABRT", test="integration/logging::Abort", announced=announced)
    stored.failed("integration/logging::Abort", "log message of '*STACK TRACE*' not found", announced=announced)
    assert set(found(stored)) == {"wrong-result-integration_logging_Abort"}


@pytest.mark.parametrize("whole", ["integration/logging::(the whole file)", "integration/logging::Later"])
def test_an_intended_crash_explains_no_test_without_a_result(stored: UpstreamRun, whole: str) -> None:
    announced = (f"command: kill -SIGABRT {fakes.PID}",)
    stored.started("guest-1", ended_by="SIGABRT", test="integration/logging::Abort", announced=announced)
    stored.passed("integration/logging::Abort", announced=announced)
    stored.failed(whole, "no result: the file ended before it", blocked=True, blocked_by="guest-1")
    findings, verdicts = judged(stored)
    assert (findings, verdicts["armv5/bitops"]) == ([], "UNKNOWN")


def test_a_test_without_a_result_makes_the_cell_unknown(stored: UpstreamRun) -> None:
    stored.passed("unit/a::one")
    stored.failed("unit/a::two", "no result", doubt="no result: the file ended before it")
    findings, verdicts = judged(stored)
    assert (findings, verdicts["armv5/bitops"]) == ([], "UNKNOWN")


def test_tests_without_a_result_for_one_reason_are_one_reason(tmp_path: Path, stored: UpstreamRun) -> None:
    """Regression: a file that hung gave forty lines that differed in nothing but the test."""
    for number in (2, 3):
        doubt = f"no result: the file ended before it\nat tests/unit/a.tcl:{number}"
        stored.failed(f"unit/a::{number}", "no result", doubt=doubt)
    judgement, _ = concluded(tmp_path, stored)
    (cell,) = (cell for cell in judgement.cells if cell.suite == SUITE)
    assert cell.reason == "2 tests, from item[unit/a::2] on: no result: the file ended before it"


def test_a_test_that_fails_natively_in_the_same_words_is_on_every_machine(tmp_path: Path) -> None:
    """Also if it passes on another target: upstream's tests ask the native build at the same time, and some fail by
    chance.
    """
    stored = UpstreamRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in stored.targets:
        stored.canary(name)
    stored.passed("unit/a::one")
    stored.failed("unit/a::two", "it fails natively in the same words", fails_natively=True)
    event = cell_events.TestEvent(name="item[unit/a::two]", outcome="passed", seconds=0.1, upstream="unit/a::two")
    stored.add("sparc64", SUITE, event)
    judgement, code = concluded(tmp_path, stored)
    assert [(one.scope, one.known) for one in judgement.findings] == [("everywhere", EVERYWHERE)]
    assert code == ExitCode.PASS


def test_a_run_that_does_not_ask_the_host_cannot_judge_such_a_test(stored: UpstreamRun) -> None:
    stored.everywhere = "off"
    stored.failed("unit/a::two", "it fails natively in the same words", fails_natively=True)
    findings, verdicts = judged(stored)
    assert (findings, verdicts["armv5/bitops"]) == ([], "UNKNOWN")


def test_the_summary_counts_tests_and_not_files(stored: UpstreamRun) -> None:
    stored.passed("unit/a::one")
    stored.passed("unit/a::(the whole file)")
    stored.passed("cluster/b::(init) Restart killed instances")
    stored.passed("unit/a::two", outcome="skipped", message="Skipped: upstream passes over it: tag\nmore")
    stored.passed("unit/b::(the whole file)", outcome="skipped", message="Skipped: it takes long")
    folder = stored.finish()
    (tally,) = tallies(folder, run_folder.read_run(folder))
    assert tally.sentence == "2 of 3 tests pass on armv5 (1 file left out)"
    assert [(test.name, test.outcome, test.reason) for test in tally.others] == [
        ("unit/a::two", "skipped", "upstream passes over it: tag")
    ]


def test_the_page_counts_each_outcome_and_compares_the_cost_with_the_native_one(tmp_path: Path) -> None:
    stored = UpstreamRun(tmp_path / "run", targets=("native", "armv5"))
    for target in ("native", "armv5"):
        stored.add(
            target, SUITE, cell_events.TestEvent(name="a", outcome="passed", seconds=0.1, upstream="unit/a::one")
        )
    stored.processor_seconds = {"native": 20.0, "armv5": 90.0}
    stored.failed("unit/a::two", "it is 1|2, not *3*")
    stored.failed("unit/a::three", "no result", doubt="no result: the file ended before it")
    stored.passed("unit/a::four", outcome="skipped", message="Skipped: upstream passes over it: tag")
    stored.passed("unit/a::five", outcome="skipped", message="Skipped: upstream passes over it: bits")
    folder = stored.finish()
    page = upstream_tests.render(folder, run_folder.read_run(folder)).splitlines()
    assert "| armv5 | 5 | 1 | 1 | 1 | 2 | 0 | 90 s | 4.5 |" in page
    assert "- armv5: 2 × upstream passes over it" in page
    assert "| unit/a::two | failed | armv5 | it is 1\\|2, not \\*3\\* |" in page
    assert "| unit/a::three | UNKNOWN | armv5 | no result |" in page


def test_the_page_has_one_row_for_a_test_that_fails_everywhere(tmp_path: Path) -> None:
    stored = UpstreamRun(tmp_path / "run", targets=("sparc64", "armv5"))
    for target, message in (("sparc64", "expected 1"), ("armv5", "expected 1")):
        for name, text in (("one", message), ("two", f"{message} on {target}")):
            event = cell_events.TestEvent(
                name=name, outcome="failed", seconds=0.1, message=text, upstream=f"unit/a::{name}"
            )
            stored.add(target, SUITE, event)
    folder = stored.finish()
    page = upstream_tests.render(folder, run_folder.read_run(folder)).splitlines()
    assert "| unit/a::one | failed | all | expected 1 |" in page
    assert "| unit/a::two | failed | sparc64 | expected 1 on sparc64 |" in page


def test_the_page_shows_by_target_which_crash_reports_are_complete(tmp_path: Path) -> None:
    stored = UpstreamRun(tmp_path / "run", targets=("native", "armv5"))
    outcomes: dict[str, cell_events.Outcome] = {"native": "passed", "armv5": "failed"}
    for target, outcome in outcomes.items():
        names = {"integration/logging::Stack": (), "unit/a::Panic": ("command: debug panic",), "unit/a::one": ()}
        for name, announced in names.items():
            event = cell_events.TestEvent(name=name, outcome=outcome, seconds=0.1, upstream=name, announced=announced)
            stored.add(target, SUITE, event)
    folder = stored.finish()
    page = upstream_tests.render(folder, run_folder.read_run(folder))
    _, _, matrix = page.partition("## Crash reports, watchdog and log\n")
    assert matrix.strip().splitlines() == [
        "| test | native | armv5 |",
        "|---|---|---|",
        "| integration/logging::Stack | passed | failed |",
        "| unit/a::Panic | passed | failed |",
    ]
