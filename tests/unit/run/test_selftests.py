"""Self-tests: which ones a tree has, their output, and its judgement. The programs are fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis.crash_reports.assertion_log import asserting_frames
from harness.analysis.symbols import Symbols
from harness.build import googletest, unit_drivers
from harness.build.sources.source_tree import open_tree
from harness.core.finding import Frame, Verdict
from harness.core.strict_toml import ROOT
from harness.judge.conclusion import conclude
from harness.judge.findings import judge
from harness.plan.catalog import Catalog
from harness.record import cell_events, stored_run
from harness.run import selftests, unit_runner
from harness.run.cell_spec import PeerServer
from tests.support import cells, fakes
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement

# Which there are

BY_ARGUMENT = """
#ifdef REDIS_TEST
    if (argc == 3 && !strcasecmp(argv[1], "test")) {
        if (!strcasecmp(argv[2], "ziplist")) {
        } else if (!strcasecmp(argv[2], "sha1test")) {
"""
IN_A_TABLE = """
#ifdef REDIS_TEST
struct redisTest {
    char *name;
} redisTests[] = {
    {"ziplist", ziplistTest},
    {"dict", dictTest}
};
#endif
struct command commands[] = {
    {"get", getCommand},
};
#ifdef REDIS_TEST
        if (!strcasecmp(argv[2], "all")) {
#endif
"""


def style(tmp_path: Path, name: str, text: str, *, macro: str = "REDIS_VERSION") -> selftests.Style | str:
    path = fakes.server_tree(tmp_path / "tree", macro=macro)
    fakes.write(path / "src" / name, text)
    return selftests.style_of(open_tree(path))


@pytest.mark.parametrize(
    ("text", "names"), [(BY_ARGUMENT + "#endif\n", ("sha1test", "ziplist")), (IN_A_TABLE, ("dict", "ziplist"))]
)
def test_redis_has_the_self_tests_that_its_main_file_names(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    found = style(tmp_path, "server.c", text)
    assert isinstance(found, selftests.Style)
    assert (found.goal, found.flags, found.names) == ("redis-server", ("-DREDIS_TEST",), names)


def test_valkey_8_has_a_program_with_a_file_of_tests_each(tmp_path: Path) -> None:
    text = 'unitTest __test_sds_c[] = {{"test_sds", f}};\n    {"test_sds.c", __test_sds_c},\n    {"test_util.c", x},\n'
    found = style(tmp_path, "unit/test_files.h", text, macro="VALKEY_VERSION")
    assert isinstance(found, selftests.Style)
    assert (found.goal, found.names) == ("valkey-unit-tests", ("test_sds.c", "test_util.c"))
    made = unit_drivers.Units(program=None, absent={}, broken={}, arguments=found.arguments)
    assert made.call("test_sds.c") == ["--single", "test_sds.c"]


def test_a_tree_without_self_tests_that_can_be_built_says_why(tmp_path: Path) -> None:
    assert style(tmp_path / "a", "server.c", "int main(void);\n") == (
        "redis 7.0.15 has no self-tests: neither REDIS_TEST in src/server.c, nor src/unit"
    )
    reason = style(tmp_path / "b", "unit/main.cpp", "int main() {}\n", macro="VALKEY_VERSION")
    assert reason == "valkey 7.0.15 has no self-tests: neither REDIS_TEST in src/server.c, nor src/unit"


IN_GOOGLETEST = """
TEST_F(SdsTest, TestGrow) {
}
TEST(SdsTest,
     DISABLED_TestLong) {
}
TEST_P(SdsTest, TestLengths) {
    // TEST_F(SdsTest, TestOld) was here.
}
TEST_F(SdsDeathTest, TestDies) {
}
TEST_F(SdsTest, DISABLED_TestGrowBenchmark) {
}
"""


def test_valkey_9_has_the_tests_that_its_sources_define_but_for_those_that_tell_nothing_of_a_target(
    tmp_path: Path,
) -> None:
    found = style(tmp_path, "unit/test_sds.cpp", IN_GOOGLETEST, macro="VALKEY_VERSION")
    assert isinstance(found, selftests.Style)
    assert (found.goal, found.googletest) == ("valkey-unit-gtests", True)
    assert found.names == ("SdsTest.DISABLED_TestLong", "SdsTest.TestGrow", "SdsTest.TestLengths")
    made = unit_drivers.Units(program=None, absent={}, broken={}, arguments=found.arguments)
    assert made.call("SdsTest.TestGrow")[-1] == "--gtest_filter=SdsTest.TestGrow:*/SdsTest.TestGrow/*"


def test_without_googletest_or_a_compiler_for_the_target_the_reason_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Catalog().toolchains["gcc-s390x-linux-gnu"]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(googletest, "FOLDER", tmp_path / "googletest")
    place = tmp_path / "googletest"
    installed = "apt-get install --yes --no-install-recommends"
    assert googletest.absence(tools) == f"GoogleTest is not in {place}: {installed} googletest"
    fakes.write(place / "CMakeLists.txt", "")
    assert googletest.absence(tools) == f"there is no compiler s390x-linux-gnu-g++: {installed} g++-s390x-linux-gnu"
    fakes.write(tmp_path / "bin" / "s390x-linux-gnu-g++", "", mode=0o755)
    assert googletest.absence(tools) == ""


def test_what_does_not_compile_natively_either_is_not_run_and_says_so() -> None:
    """It was absent, and the cell was skipped. With other suites, a run passed that had not checked the target."""
    broken = {"sds": "/w/1/sds.c:7: error: a", "dict": "error: b", "util": "util.c:9: error: a"}
    here = unit_drivers.Units(program=None, absent={}, broken=broken, kind="selftests")
    broken = {"sds": "/w/2/sds.c:7: error: a", "util": "util.c:9: error: another"}
    native = unit_drivers.Units(program=None, absent={}, broken=broken, kind="selftests")
    left = selftests.with_native_faults(here, native)
    assert left.absent == {}
    assert left.broken == {
        "sds": "it does not compile natively either: /w/1/sds.c:7: error: a",
        "dict": "error: b",
        "util": "util.c:9: error: a",
    }
    assert selftests.why_none(left) == ""


@pytest.mark.parametrize(
    ("names", "absent", "broken", "why"),
    [
        ((), {"all": "it has none"}, {}, "it has none"),
        (("sds",), {"sds": "it does not compile"}, {}, "it does not compile"),
        (("dict", "sds"), {"sds": "it does not compile"}, {}, ""),
        (("dict",), {}, {"dict": "error"}, ""),
    ],
)
def test_a_cell_is_left_out_only_if_there_is_nothing_that_could_run(
    names: tuple[str, ...], absent: dict[str, str], broken: dict[str, str], why: str
) -> None:
    made = unit_drivers.Units(program=None, absent=absent, broken=broken, kind="selftests", names=names)
    assert selftests.why_none(made) == why


def test_our_own_units_are_never_left_out() -> None:
    made = unit_drivers.Units(program=None, absent={"rax": "not in 3.2"}, broken={})
    assert selftests.why_none(made) == ""


# What one says


def ran(output: bytes, code: int = 0, *, expired: bool = False) -> unit_runner.UnitRun:
    return unit_runner.UnitRun(code=code, expired=expired, output=output)


@pytest.mark.parametrize(
    ("run", "complaints"),
    [
        (ran(b"1 - grows: PASSED\n69 tests, 69 passed, 0 failed\nALL TESTS PASSED!\n"), []),
        (ran(b"12 - grows: FAILED\n=== WARNING ===\n", 1), ["- grows: FAILED", "exit status 1"]),
        (ran(b"[\x1b[31mfail\x1b[0m] - test_sds.c:test_sds\n"), ["[fail] - test_sds.c:test_sds"]),
        (
            ran(b"[\x1b[31mserverAssert - sds.c:9\x1b[0m] - len\n", 1),
            ["[serverAssert - sds.c:9] - len", "exit status 1"],
        ),
        (
            ran(b"[\x1b[31mtest_sds.c\x1b[0m] Memory leak detected of 8 bytes\n"),
            ["[test_sds.c] Memory leak detected of 8 bytes"],
        ),
        # Valkey 8's assertions print and return 1. Not every caller considers this a failure.
        (ran(b"[f - unit/t.c:43] Failed assertion: 1\n[ok] - t.c:f\n"), ["[f - unit/t.c:43] Failed assertion: 1"]),
        (ran(b"size=5 M/sec matches=0\n"), ["size=5 M/sec matches=0"]),
        (
            ran(
                b"[==========] Running 1 test from 1 test suite.\n[ RUN      ] S.t\ntest_s.cpp:50: Failure\n"
                b"Expected equality of these values:\n  a\n    Which is: 3\n[  FAILED  ] S.t (3 ms)\n"
                b"[  FAILED  ] 1 test, listed below:\n",
                1,
            ),
            ["test_s.cpp:50: Failure Expected equality of these values: a Which is: 3", "exit status 1"],
        ),
        (ran(b"[==========] Running 1 test from 1 test suite.\nstress test FAILED as it should\n"), []),
        (ran(b"", -7), ["killed by SIGBUS"]),
        (ran(b"", expired=True), ["it hung"]),
    ],
    ids=[
        "passed",
        "a check",
        "a test",
        "an assertion",
        "a leak",
        "an assertion that nobody heeds",
        "a comparison",
        "an expectation",
        "words of a test that passes",
        "a signal",
        "a hang",
    ],
)
def test_a_self_test_complains_by_what_it_prints_and_how_it_ends(
    run: unit_runner.UnitRun, complaints: list[str]
) -> None:
    assert selftests.complaints(run) == complaints


ASSERTED = b"server: t.c:%d: f: Assertion `a' failed.\n"


@pytest.mark.parametrize(
    ("here", "native", "alike"),
    [
        (ran(b"4 - both: FAILED\n", 1), ran(b"3 - both: FAILED\n", 1), True),
        (ran(b"1 - both: FAILED\n", 1), ran(b"1 - both: FAILED\n2 - more: FAILED\n", 1), False),
        (ran(b"1 - a: FAILED\n2 - a: FAILED\n", 1), ran(b"1 - a: FAILED\n", 1), False),
        (ran(b"1 - a: FAILED\n", 1), ran(b"1 - a: FAILED\n"), False),
        (ran(b"[f - t.c:4] Failed assertion: 1\n"), ran(b"[f - t.c:5] Failed assertion: 1\n"), False),
        (ran(b"1 - a: FAILED\n", -7), ran(b"1 - a: FAILED\n", -7), False),
        (ran(b"1 - a: FAILED\n", -11), ran(b"1 - a: FAILED\n", -11), False),
        (ran(b"1 - a: FAILED\n", expired=True), ran(b"1 - a: FAILED\n", expired=True), False),
        (ran(b"", 1), ran(b"", 1), True),
        (ran(b"", 1), ran(b"", 2), False),
        (ran(b""), ran(b""), False),
        (ran(b"", -6), ran(b"", -6), False),
        (ran(ASSERTED % 4, -6), ran(ASSERTED % 4, -6), True),
        (ran(ASSERTED % 4, -6), ran(ASSERTED % 5, -6), False),
    ],
    ids=[
        "the same check",
        "the target gets less far",
        "more often",
        "another exit status",
        "another line",
        "SIGBUS",
        "SIGSEGV",
        "a hang",
        "no word",
        "another exit status without a word",
        "no failure",
        "no word of an assertion",
        "the same assertion",
        "another assertion",
    ],
)
def test_a_failure_is_the_native_builds_only_if_the_same_checks_fail_with_the_same_end(
    here: unit_runner.UnitRun, native: unit_runner.UnitRun, *, alike: bool
) -> None:
    assert alike == selftests.failed_alike(here, native)


def test_an_assertion_is_reported_with_its_place() -> None:
    assert selftests.complaints(ran(ASSERTED % 4, -6)) == ["t.c:4: an assertion failed", "killed by SIGABRT"]


@pytest.mark.parametrize(
    ("here", "lost"),
    [(b"a\nb\na\n", None), (b"a\nreport\nb\na\n", None), (b"a\nb\n", "a"), (b"b\na\na\n", "b"), (b"", "a")],
)
def test_the_native_builds_lines_are_expected_in_the_same_order_and_number(here: bytes, lost: str | None) -> None:
    assert selftests.missing(ran(here), ran(b"a\nb\na\n")) == lost


RUNNING = b"[==========] Running 1 test from 1 test suite.\n"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (b"[==========] Running 0 tests from 0 test suites.\n", "the release does not compile it for this target"),
        (
            RUNNING + b"[ RUN      ] S.t\ntest_s.cpp:9: Skipped\nneeds jemalloc\n\n[  SKIPPED ] S.t (0 ms)\n",
            "it skips itself: needs jemalloc",
        ),
        (RUNNING + b"[ RUN      ] S.t\n[  SKIPPED ] S.t (0 ms)\n", "it skips itself"),
        (RUNNING + b"[ RUN      ] S.t\n[       OK ] S.t (0 ms)\n", ""),
        (b"1 - grows: PASSED\n", ""),
        (b"", ""),
    ],
)
def test_a_test_that_was_called_and_did_not_run_has_a_reason(output: bytes, why: str) -> None:
    assert selftests.why_not_run(ran(output)) == why


@pytest.mark.parametrize(
    ("arguments", "output", "finished"),
    [
        (googletest.ARGUMENTS, RUNNING + b"[       OK ] S.t (0 ms)\n[  PASSED  ] 1 test.\n", True),
        (googletest.ARGUMENTS, RUNNING + b"[ RUN      ] S.t\n", False),
        (googletest.ARGUMENTS, b"", False),
        (selftests.SINGLE_FILE, b"[\x1b[34mEND\x1b[0m] - test_sds.c: 7 tests, 7 passed, 0 failed\n", True),
        (selftests.SINGLE_FILE, b"[ok] - test_sds.c:test_sds\n", False),
        (selftests.SINGLE_FILE, b"[END] - test_sds.c: 0 tests, 0 passed, 0 failed\n", False),
        (selftests.SINGLE_FILE, b"0 test suites executed, 0 passed, 0 failed\n", False),
        (("test", "{unit}"), b"1 - grows: PASSED\n", True),
    ],
)
def test_a_program_that_reports_the_end_of_its_tests_must_do_so(
    arguments: tuple[str, ...], output: bytes, *, finished: bool
) -> None:
    """A program that left early, with status 0, passed."""
    made = unit_drivers.Units(program=None, absent={}, broken={}, kind="selftests", arguments=arguments)
    assert (selftests.why_unfinished(ran(output), made, "test_sds.c") == "") is finished


def test_lines_that_tell_of_time_are_not_compared() -> None:
    run = ran(b"[calcula]: 1 == 1\ncrcspeed 155 M/sec\nin 8000 nsec\n5 items in 3 ms\n")
    assert selftests.printed(run) == ["[calcula]: 1 == 1"]


# A cell that is run

THERE = """#!/bin/sh
case $2 in
bad) echo '3 - both: FAILED'; exit 1 ;;
crc64) echo 'right' ;;
dies) kill -BUS $$ ;;
fewer) echo '1 - one: FAILED'; echo '2 - two: FAILED'; exit 1 ;;
everywhere) printf '[==========] Running 1 test from 1 test suite.\\n[  SKIPPED ] S.t (0 ms)\\n' ;;
zipmap) kill -BUS $$ ;;
*) echo ok ;;
esac
"""
HERE = """#!/bin/sh
case $2 in
bad) echo '4 - both: FAILED'; exit 1 ;;
worse) echo '3 - mine: FAILED'; exit 1 ;;
dies) kill -BUS $$ ;;
crc64) echo 'wrong' ;;
fewer) echo '1 - one: FAILED'; exit 1 ;;
partly)
    printf '[==========] Running 2 tests from 1 test suite.\\n[  SKIPPED ] p/S.t/0 (0 ms)\\n'
    printf 't.cpp:9: Failure\\nwrong\\n'
    exit 1
    ;;
skipped | everywhere) printf '[==========] Running 1 test from 1 test suite.\\n[  SKIPPED ] S.t (0 ms)\\n' ;;
small) printf '[==========] Running 1 test from 1 test suite.\\nfor 64 bits\\n[  SKIPPED ] S.t (0 ms)\\n' ;;
*) echo ok ;;
esac
"""
NAMES = (
    "bad",
    "crc64",
    "dies",
    "everywhere",
    "fewer",
    "good",
    "partly",
    "sha1test",
    "skipped",
    "small",
    "worse",
    "zipmap",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, cell_events.TestEvent]:
    """Self-test -> its record, in a cell whose target and native programs differ as above."""
    folder = tmp_path_factory.mktemp("cell")

    def made(name: str, text: str) -> unit_drivers.Units:
        program = fakes.write(folder / name, text, mode=0o755)
        return unit_drivers.Units(
            program=program, absent={}, broken={}, kind="selftests", names=NAMES, arguments=("test", "{unit}")
        )

    native = PeerServer(
        runner=fakes.unemulated(fakes.target("native")),
        build=fakes.build(folder, target="native", binary="there"),
        selftests=made("there", THERE),
    )
    spec = cells.spec_of("selftests", folder, fakes.unemulated(fakes.target()))
    spec = msgspec.structs.replace(spec, tier="full", units=made("here", HERE), peers={"native": native})
    return cells.recorded(spec)[1]


@pytest.mark.parametrize(
    ("name", "outcome", "message"),
    [
        ("good", "passed", ""),
        ("sha1test", "passed", ""),
        ("bad", "unknown", "it fails in the same way on the native build, too: - both: FAILED; exit status 1"),
        ("worse", "failed", "worse: - mine: FAILED; exit status 1"),
        ("dies", "failed", "dies: killed by SIGBUS (the native build: killed by SIGBUS)"),
        ("fewer", "failed", "fewer: - one: FAILED; exit status 1 (the native build: - one: FAILED; "),
        ("partly", "failed", "partly: t.cpp:9: Failure wrong; exit status 1"),
        ("skipped", "unknown", "it skips itself, and natively it runs"),
        ("everywhere", "skipped", "it skips itself"),
        ("small", "skipped", "it skips itself: for 64 bits"),
        ("zipmap", "unknown", "the native build, with which it is compared, fails: killed by SIGBUS"),
        ("crc64", "failed", "crc64, wrong: the native build prints 'right'"),
    ],
)
def test_a_failure_that_also_occurs_natively_is_not_blamed_on_the_target(
    recorded: dict[str, cell_events.TestEvent], name: str, outcome: str, message: str
) -> None:
    test = recorded[name]
    assert ("unknown" if test.doubt else test.outcome) == outcome
    assert test.doubt in test.message
    assert message in test.message
    assert (test.unit, test.program, test.guest) == (name, "selftests", f"guest-unit-{name}")
    place = "selftests/test_selftests.py:" if test.outcome == "failed" else ""
    assert (test.asserted.startswith(place), bool(test.asserted)) == (True, bool(place))


def test_a_program_that_leaves_early_fails_unless_it_does_so_natively(tmp_path: Path) -> None:
    def made(name: str, text: str) -> unit_drivers.Units:
        return unit_drivers.Units(
            program=fakes.write(tmp_path / name, f"#!/bin/sh\n{text}\n", mode=0o755),
            absent={},
            broken={},
            kind="selftests",
            names=("early.c", "nowhere.c", "whole.c"),
            arguments=selftests.SINGLE_FILE,
        )

    report = 'echo "[END] - $2: 1 tests, 1 passed, 0 failed"'
    native = PeerServer(
        runner=fakes.unemulated(fakes.target("native")),
        build=fakes.build(tmp_path, target="native", binary="there"),
        selftests=made("there", f"test $2 = nowhere.c || {report}"),
    )
    spec = cells.spec_of("selftests", tmp_path, fakes.unemulated(fakes.target()))
    here = made("here", f"test $2 != whole.c || {report}")
    spec = msgspec.structs.replace(spec, tier="full", units=here, peers={"native": native})
    _, found = cells.recorded(spec)
    assert {name: (test.outcome, bool(test.doubt)) for name, test in found.items()} == {
        "early.c": ("failed", False),
        "nowhere.c": ("failed", True),
        "whole.c": ("passed", False),
    }
    assert "it ended without the report" in found["early.c"].message


# What is judged


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    """A run of self-tests on one target whose canaries behaved."""
    stored = StoredRun(tmp_path / "run", suites=("canary", "bitops", "selftests"))
    stored.canary("armv5")
    return stored


def judged(stored: StoredRun) -> tuple[Judgement, str, str]:
    judgement, _ = conclude(stored_run.read(stored.finish()), ROOT / "ci" / "known.toml", fakes.quiet())
    cell = next(cell for cell in judgement.cells if cell.suite == "selftests")
    return judgement, cell.verdict, cell.reason


def test_a_cell_of_a_release_without_self_tests_is_skipped_with_the_reason(run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop")
    run.problem("armv5", "selftests", "it has none", "absent")
    judgement, verdict, reason = judged(run)
    assert (judgement.verdict, verdict, reason) == (Verdict.PASS, Verdict.SKIP, "it has none")


def test_a_run_in_which_every_suite_was_skipped_is_not_a_pass(run: StoredRun) -> None:
    run.problem("armv5", "bitops", "nothing here", "absent")
    run.problem("armv5", "selftests", "it has none", "absent")
    assert judged(run)[0].verdict == Verdict.UNKNOWN


def test_an_assertion_of_a_self_test_is_placed_where_it_asserts_and_not_where_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frame(function: str) -> Frame:
        return Frame(function=function, file="src/intset.c", line=384, origin="server", pc=0)

    stack = [frame(name) for name in ("serverLogRaw", "_serverAssert", "checkConsistency", "intsetTest", "main")]
    own = asserting_frames(stack, dies_there=False)
    assert [one.function for one in own] == ["checkConsistency", "intsetTest", "main"]
    assert asserting_frames(stack[2:], dies_there=False) == []
    assert asserting_frames(stack, dies_there=True) == [], (
        "a fault in the crash report that follows is a separate finding"
    )
    with_client = [frame("_serverAssert"), frame("_serverAssertWithInfo"), *stack[2:]]
    assert asserting_frames(with_client, dies_there=True) == stack[2:]
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(Symbols, "backtrace", lambda *_: stack)
    found = {}
    for program in ("units", "selftests"):
        stored = StoredRun(tmp_path / program, suites=("canary", "selftests"))
        stored.canary("armv5")
        stored.fault("armv5", "selftests", "guest-unit-intset", fakes.fault(number=fakes.SIGSEGV, code=1))
        event = cell_events.TestEvent(
            name="t",
            outcome="failed",
            seconds=0,
            guest="guest-unit-intset",
            fault_to=1,
            unit="intset",
            program="selftests" if program == "selftests" else "units",
        )
        stored.add("armv5", "selftests", event)
        (finding,), _, _ = judge(stored_run.read(stored.finish()))
        found[program] = (finding.id, finding.title, finding.command)
    assert found["selftests"] == (
        "assertion-checkConsistency",
        "assertion failed in checkConsistency",
        "(self-test intset)",
    )
    assert found["units"][0] == "sigsegv-serverLogRaw"
