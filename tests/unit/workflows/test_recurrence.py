"""Outcomes of a replay: the finding recurred in the same way, it could have recurred but did not, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.build.unit_drivers import Units
from harness.core.digests import sha256_of
from harness.core.model import StorePair
from harness.core.target_model import ORACLE
from harness.run import selftests
from harness.workflows.replay.recurrence import (
    PLAIN,
    Observation,
    ObservedFault,
    ObservedUnit,
    Recurrence,
    of_failed_build,
    recurrence,
    unless_blind,
)
from harness.workflows.replay.replay import on_host
from harness.workflows.replay.reruns.replayed_run import replaying
from harness.workflows.replay.reruns.unit import run_unit
from tests.support import fakes
from tests.support.fakes import chunk
from tests.support.reproducers import reproducer

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.reproducer import Reproducer

LIVES = Observation(end="it answered every request and is still running")
LOAD = ObservedFault(
    misaligned=True, signal="sigbus", direction="load", functions=frozenset({"memcpy", "bitopCommand"})
)
BAD_CONFIG = "exit status 1; 71:M 22 Nov 2026 02:00:00.000 # Bad directive or wrong number of arguments"


def ended(**how: Any) -> Observation:
    return Observation(**{"end": how.get("detail", "…"), **how})


ALIGNMENT = reproducer()
AT_START = reproducer(
    finding="exit-start", kind="exit", function="", detector="process", detail=BAD_CONFIG, starting=True
)
CRASH = reproducer(finding="crash-test_a", kind="crash", function="", detector="process", detail="killed by SIGABRT")
EXIT = reproducer(finding="exit-test_a", kind="exit", function="", detector="process", detail="exit status 3")
HANG = reproducer(finding="hang-test_a", kind="hang", function="", detector="process", detail="no reply within 5 s")
HANG_AT_START = reproducer(finding="hang-start", kind="hang", function="", detector="process", starting=True)
WRONG = reproducer(finding="wrong-result-test_a", kind="wrong-result", function="", detector="suite")
ASKED = reproducer(
    finding="wrong-result-fuzz",
    kind="wrong-result",
    function="",
    detector="suite",
    command="GETRANGE k 0 1",
    chunks=[chunk("request", b"GETRANGE k 0 1\r\n")],
)
ASSERTION = reproducer(finding="assertion-lpGet", kind="assertion", function="lpGet", detector="process")
NAMELESS = reproducer(finding="assertion-x.c", kind="assertion", function="??", detector="process", file="x.c")
UBSAN = reproducer(finding="undefined-shift-f", kind="undefined-shift", function="f", detector="ubsan")
HANDLER = reproducer(finding="crash-handler-sigsegv-f", kind="crash-handler-sigsegv", function="f")
UNIT = reproducer(
    finding="wrong-result-u", kind="wrong-result", function="", detector="suite", unit="u", wrong_line="k: 1"
)
ENDED_UNIT = reproducer(
    kind="wrong-result", function="", detector="suite", unit="u", detail="u did not get to its end: killed by SIGABRT"
)
SELFTEST = reproducer(
    kind="wrong-result", function="", detector="suite", unit="u", program="selftests", detail="u: FAILED x == 1"
)


def segv(*functions: str) -> ObservedFault:
    return ObservedFault(misaligned=False, signal="sigsegv", direction="", functions=frozenset(functions))


def unit(*complaints: str, lines: tuple[str, ...] = ()) -> Observation:
    return ended(unit=ObservedUnit(complete=not complaints, lines=lines, complaints=complaints))


@pytest.mark.parametrize(
    ("finding", "observation"),
    [
        (ALIGNMENT, ended(detail="killed by SIGBUS", faults=(LOAD,))),
        (ALIGNMENT, ended(started=False, detail="killed by SIGBUS; ", faults=(LOAD,))),
        (ALIGNMENT, ended(detail="killed by SIGKILL", faults=(LOAD,), cut="it was killed from outside")),
        (HANDLER, ended(detail="killed by SIGSEGV", faults=(segv("g"), segv("f")))),
        (AT_START, ended(started=False, detail=BAD_CONFIG.replace("71", "9").replace("02:00", "11:59"))),
        (CRASH, ended(detail="killed by SIGABRT")),
        (EXIT, ended(detail="exit status 3")),
        (HANG, ended(hung=True)),
        (HANG_AT_START, ended(started=False, hung=True)),
        (WRONG, ended(difference="GET: guest 1, native 2", differing="GET")),
        (ASKED, ended(difference="GETRANGE: guest 1, native 2", differing="GETRANGE")),
        (WRONG, ended(came=True)),
        (ASKED, ended(as_recorded="now")),
        (ASKED, ended(as_recorded="now", free=("TIME",))),
        (WRONG, ended(as_recorded="now")),
        (ASSERTION, ended(detail="killed by SIGABRT", asserted=frozenset({"lpGet"}))),
        (NAMELESS, ended(detail="killed by SIGABRT", asserted=frozenset({"x.c"}))),
        (UBSAN, ended(reports=frozenset({("ubsan", "undefined-shift", "f")}))),
        (UNIT, unit(lines=("k: 1", "end u"))),
        (ENDED_UNIT, unit("killed by SIGABRT")),
        (SELFTEST, unit("FAILED x == 1")),
    ],
)
def test_a_finding_that_recurs_in_the_same_way_is_reproduced(finding: Reproducer, observation: Observation) -> None:
    assert recurrence(finding, observation) == Recurrence(outcome="reproduced")


@pytest.mark.parametrize(
    "finding", [ALIGNMENT, HANDLER, AT_START, CRASH, EXIT, HANG, HANG_AT_START, WRONG, ASKED, ASSERTION, UBSAN]
)
def test_a_finding_that_could_recur_and_did_not_is_gone(finding: Reproducer) -> None:
    assert recurrence(finding, LIVES) == Recurrence(outcome="gone")


def test_a_finding_of_a_request_without_a_record_is_not_gone() -> None:
    lost = msgspec.structs.replace(ALIGNMENT, command="BITOP NOT k a", chunks=[chunk("reply", b"+OK")])
    assert recurrence(lost, LIVES) == Recurrence(outcome="unknown", reason="the reproducer has no requests")
    assert recurrence(lost, ended(faults=(LOAD,))).outcome == "reproduced"
    for whole in (
        msgspec.structs.replace(lost, chunks=[chunk("request", b"*4\r\n$5\r\nbi"), chunk("request", b"top\r\n$3\r\n")]),
        msgspec.structs.replace(lost, command="", after_tests=True, chunks=[chunk("request", b"PING\r\n")]),
        msgspec.structs.replace(lost, command="(while starting)"),
        msgspec.structs.replace(lost, upstream="unit/bitops::BITOP"),
    ):
        assert recurrence(whole, LIVES).outcome == "gone"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"chunks": [chunk("request", b"*")]}, "the reproducer does not send BITOP"),
        ({"chunks": [chunk("request", b"PING\r\n")]}, "the reproducer does not send BITOP"),
        (
            {"chunks": [chunk("request", b"PI")], "command": "", "after_tests": True},
            "the reproducer has no whole request",
        ),
    ],
)
def test_a_finding_whose_request_is_not_sent_is_not_gone(changed: dict[str, Any], reason: str) -> None:
    """Regression: a stranger's reproducer of one incomplete byte proved that a bug was fixed."""
    cut = msgspec.structs.replace(ALIGNMENT, **{"command": "BITOP NOT k a", **changed})
    assert recurrence(cut, LIVES) == Recurrence(outcome="unknown", reason=reason)
    assert recurrence(cut, ended(faults=(LOAD,))).outcome == "reproduced"


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (msgspec.structs.replace(UBSAN, command="(while starting)"), "gone"),
        (msgspec.structs.replace(UBSAN, command="(while stopping)"), "gone"),
        (msgspec.structs.replace(UBSAN, command="(between tests)"), "unknown"),
        (msgspec.structs.replace(CRASH, finding="crash-child_SIGABRT"), "unknown"),
        (msgspec.structs.replace(ALIGNMENT, after_tests=True), "unknown"),
        (msgspec.structs.replace(CRASH, starting=True, after_tests=True), "unknown"),
    ],
)
def test_a_server_that_is_only_started_and_stopped_does_not_do_what_it_did_between_tests_or_in_a_child(
    finding: Reproducer, outcome: str
) -> None:
    assert recurrence(finding, LIVES).outcome == outcome
    sent = msgspec.structs.replace(finding, chunks=[chunk("request", b"BGSAVE\r\n")])
    assert recurrence(sent, LIVES).outcome == "gone"


CHILD = reproducer(
    finding="crash-child_SIGABRT",
    kind="crash",
    function="",
    detector="process",
    chunks=[chunk("request", b"BGSAVE\r\n")],
)


def test_the_death_of_a_child_comes_again_while_the_server_lives_on() -> None:
    """Nothing looked at the ends of children: each such finding was "not reproduced"."""
    assert recurrence(CHILD, ended(children=frozenset({"SIGABRT"}))) == Recurrence(outcome="reproduced")
    killed = "a child process of the server was killed by SIGTRAP"
    assert recurrence(CHILD, ended(children=frozenset({"SIGTRAP"}))) == Recurrence(outcome="unknown", reason=killed)
    assert recurrence(CHILD, LIVES) == Recurrence(outcome="gone")
    blind = unless_blind(Recurrence(outcome="gone"), CHILD, lambda: "this emulator, or machine, records no faults")
    assert blind.outcome == "unknown"
    assert recurrence(ALIGNMENT, ended(children=frozenset({"SIGABRT"}))).outcome == "unknown"
    stream = msgspec.structs.replace(WRONG, detector="stream")
    assert recurrence(stream, ended(children=frozenset({"SIGABRT"}))).outcome == "reproduced"


def test_a_fault_in_another_function_of_a_child_is_not_nothing() -> None:
    """The compiler of another tree may have moved the access, and a child's death leaves the server alive."""
    elsewhere = msgspec.structs.replace(LOAD, functions=frozenset({"rdbSaveObject"}))
    why = "a fault of this kind is in another function: rdbSaveObject"
    assert recurrence(ALIGNMENT, ended(faults=(elsewhere,))) == Recurrence(outcome="unknown", reason=why)
    # Under an audit there are always others.
    passed = msgspec.structs.replace(elsewhere, signal="")
    assert recurrence(ALIGNMENT, ended(faults=(passed,))).outcome == "gone"


def test_the_end_of_a_child_in_a_releases_own_test_is_not_looked_for() -> None:
    """The test passes even if the child crashes again."""
    crash = msgspec.structs.replace(CRASH, finding="crash-child_SIGSEGV", detail="", upstream="integration/rdb::saves")
    assert recurrence(crash, LIVES).outcome == "unknown"
    assert recurrence(msgspec.structs.replace(crash, finding="crash-save"), LIVES).outcome == "gone"


@pytest.mark.parametrize("finding", [UNIT, ENDED_UNIT, SELFTEST])
def test_a_units_finding_is_gone_if_the_unit_completes(finding: Reproducer) -> None:
    assert recurrence(finding, unit(lines=("k: 2", "end u"))) == Recurrence(outcome="gone")


def test_findings_over_tls_are_never_gone_because_nothing_is_sent_again() -> None:
    assert recurrence(reproducer(tls=True), LIVES) == Recurrence(outcome="unknown", reason=PLAIN)
    again = ended(detail="killed by SIGBUS", faults=(LOAD,))
    assert recurrence(reproducer(tls=True), again) == Recurrence(outcome="reproduced")
    at_start = msgspec.structs.replace(AT_START, tls=True)
    assert recurrence(at_start, LIVES) == Recurrence(outcome="gone")


EVERY = [ALIGNMENT, HANDLER, CRASH, EXIT, HANG, WRONG, ASKED, ASSERTION, UBSAN]


@pytest.mark.parametrize("finding", [*EVERY, AT_START, HANG_AT_START])
@pytest.mark.parametrize(
    "observation",
    [
        ended(started=False, detail="exit status 1; Can't open the log file"),
        ended(detail="exit status 7"),
        ended(undelivered="it closed a connection, 1 of 2 requests had been sent"),
    ],
)
def test_a_different_end_or_start_decides_nothing(finding: Reproducer, observation: Observation) -> None:
    answer = recurrence(finding, observation)
    assert (answer.outcome, answer.machine) == ("unknown", False)
    assert answer.reason


@pytest.mark.parametrize("finding", [*EVERY, AT_START, HANG_AT_START])
@pytest.mark.parametrize("lived", [True, False])
def test_a_truncated_record_or_a_kill_from_outside_is_blamed_on_the_machine(finding: Reproducer, lived: bool) -> None:
    observation = ended(cut="the emulator's fault log was cut short", detail="" if lived else "killed by SIGKILL")
    assert recurrence(finding, observation) == Recurrence(outcome="unknown", reason=observation.cut, machine=True)


@pytest.mark.parametrize(
    ("finding", "observation"),
    [
        # A start that fails is neither a wrong result nor a different end.
        (WRONG, ended(started=False, detail=BAD_CONFIG)),
        (EXIT, ended(started=False, detail="exit status 3; ")),
        (CRASH, ended(started=False, detail="killed by SIGABRT; ")),
        (HANG, ended(started=False, hung=True)),
        # The same kind, but elsewhere or with another access.
        (ALIGNMENT, ended(detail="killed by SIGBUS", faults=(segv("bitopCommand"),))),
        (
            ALIGNMENT,
            ended(
                detail="killed by SIGBUS",
                faults=(ObservedFault(misaligned=True, signal="sigbus", direction="store", functions=LOAD.functions),),
            ),
        ),
        (HANDLER, ended(detail="killed by SIGSEGV", faults=(segv("g"),))),
        (CRASH, ended(detail="killed by SIGSEGV")),
        (EXIT, ended(detail="exit status 4")),
        (CRASH, ended(hung=True)),
        (ASSERTION, ended(detail="killed by SIGABRT", asserted=frozenset({"sdsnewlen"}))),
        (ASKED, ended(difference="INFO: guest 1, native 2", differing="INFO")),
        (WRONG, ended(uncompared="the native build does not start")),
        (WRONG, ended(free=("HRANDFIELD",))),
        (ASKED, ended(free=("GETRANGE",))),
        (ASKED, ended(free=("GETRANGE",), as_recorded="now")),
        (WRONG, ended(free=("GETRANGE",), as_recorded="now")),
        (ASKED, ended(as_recorded="once")),
        (reproducer(kind="crash", function="", detector="process"), ended(detail="killed by SIGABRT")),
        (reproducer(function="??"), ended(detail="killed by SIGBUS", faults=(LOAD,))),
        (UNIT, unit("killed by SIGSEGV")),
        (ENDED_UNIT, unit("killed by SIGSEGV")),
        (SELFTEST, unit("FAILED y == 2")),
    ],
)
def test_an_incomparable_observation_is_neither_reproduced_nor_gone(
    finding: Reproducer, observation: Observation
) -> None:
    answer = recurrence(finding, observation)
    assert (answer.outcome, answer.machine) == ("unknown", False)
    assert answer.reason


STREAMED = reproducer(finding="a.stream", kind="wrong-result", function="", detector="stream")


@pytest.mark.parametrize(
    ("observation", "outcome"),
    [
        (LIVES, "gone"),
        (ended(free=("TIME",)), "gone"),
        (ended(detail="killed by SIGBUS"), "reproduced"),
        (ended(faults=(LOAD,)), "reproduced"),
        (ended(hung=True), "reproduced"),
        (ended(difference="GET: guest 1, native 2", differing="GET"), "reproduced"),
        (ended(started=False, detail="exit status 1"), "unknown"),
        (ended(started=False, hung=True), "unknown"),
        (ended(detail="killed by SIGKILL", cut="it was killed from outside"), "unknown"),
        (ended(undelivered="it closed a connection"), "unknown"),
        (ended(uncompared="the native build does not start"), "unknown"),
    ],
)
def test_any_fault_of_a_stream_reproduces_it(observation: Observation, outcome: str) -> None:
    assert recurrence(STREAMED, observation).outcome == outcome


def test_a_compared_command_may_accompany_one_that_is_not_compared() -> None:
    assert recurrence(ASKED, ended(free=("TIME",))).outcome == "gone"


def test_a_file_that_is_now_refused_is_no_longer_misread() -> None:
    from harness.core.finding import Reproduction

    finding = reproducer(
        kind="wrong-result", function="", detector="suite", again=Reproduction(target="a", requests=(), wrong="")
    )
    refused = ended(started=False, detail="exit status 1; Bad file format", refuses_files=True)
    assert recurrence(finding, refused) == Recurrence(outcome="gone")
    assert recurrence(finding, ended(started=False, detail="exit status 1; Bad directive")).outcome == "unknown"


BUILD = reproducer(finding="build", kind="build", function="", detail="src/a.c:12:3: error: size of array 'x' is 8")


@pytest.mark.parametrize(
    ("finding", "because", "outcome"),
    [
        (BUILD, "src/a.c:14:3: error: size of array 'x' is 4", "reproduced"),
        (BUILD, "src/a.c:14:3: error: 'y' undeclared", "unknown"),
        (BUILD, "", "unknown"),
        (ALIGNMENT, BUILD.detail, "unknown"),
    ],
)
def test_a_tree_that_does_not_compile_reproduces_only_the_same_first_error(
    finding: Reproducer, because: str, outcome: str
) -> None:
    assert of_failed_build(finding, because).outcome == outcome


def test_a_finding_is_not_gone_on_a_machine_whose_canary_fails() -> None:
    gone = recurrence(ALIGNMENT, LIVES)
    assert gone.outcome == "gone"
    assert unless_blind(gone, ALIGNMENT, lambda: "") == gone
    blind = unless_blind(gone, ALIGNMENT, lambda: "the canary did not fault")
    assert blind == Recurrence(outcome="unknown", reason="the canary did not fault", machine=True)


def test_a_finding_of_memory_order_is_not_gone_where_the_order_is_another() -> None:
    weak = msgspec.structs.replace(HANG, memory_order="weak")
    blind = unless_blind(recurrence(weak, LIVES), weak, lambda: "the outcome of its litmus test MP-32 was not seen")
    assert blind == Recurrence(
        outcome="unknown", reason="the outcome of its litmus test MP-32 was not seen", machine=True
    )


def test_a_replay_reorders_single_stores_only_of_the_same_program(tmp_path: Path) -> None:
    program = fakes.write(tmp_path / "queue", "code")
    pair = StorePair(early=8, late=4)
    finding = reproducer(memory_order="weak", seed=7, pair=pair, pair_program=sha256_of(program))
    runner = msgspec.structs.replace(fakes.unemulated(fakes.target("aarch64")), memory_order="seed=7")
    assert replaying(runner, finding, program, 2).memory_order == "seed=7,seed=9,pauses=1000,early=8,late=4,depth=64"
    fakes.write(program, "other code")
    assert replaying(runner, finding, program, 2) == runner
    assert replaying(runner, finding, tmp_path / "gone", 2) == runner


def test_a_canary_runs_only_if_a_recorded_access_is_gone() -> None:
    def no_canary() -> str:
        raise AssertionError

    again = recurrence(ALIGNMENT, ended(faults=(LOAD,)))
    assert unless_blind(again, ALIGNMENT, no_canary) == again
    assert again.outcome == "reproduced"
    # The absence of a wrong value is visible without the emulator's records.
    assert unless_blind(recurrence(HANG, LIVES), HANG, no_canary).outcome == "gone"


def test_another_request_that_is_answered_differently_is_named() -> None:
    other = ended(difference="INFO: guest 1, native 2", differing="INFO")
    assert recurrence(ASKED, other).differing == "INFO"
    its_own = ended(difference="GETRANGE: guest 1, native 2", differing="GETRANGE")
    assert recurrence(ASKED, its_own).differing == ""
    assert recurrence(ASKED, ended()).differing == ""


def test_a_self_test_that_leaves_early_again_recurs_and_one_that_reports_its_end_does_not(tmp_path: Path) -> None:
    """Its exit status is 0: the replay took it for a test that passes."""
    early = reproducer(
        kind="wrong-result",
        function="",
        detector="suite",
        unit="u.c",
        program="selftests",
        detail="u.c: it ended without the report of a test that ran to its end",
    )
    outcomes = []
    for name, words in (("early", ":"), ("whole", "echo '[END] - u.c: 1 tests, 1 passed, 0 failed'")):
        units = Units(
            program=fakes.write(tmp_path / name, f"#!/bin/sh\n{words}\n", mode=0o755),
            absent={},
            broken={},
            kind="selftests",
            arguments=selftests.SINGLE_FILE,
        )
        ran = run_unit(units, fakes.unemulated(fakes.target()), early, tmp_path / f"{name}-run", None)
        outcomes.append(recurrence(early, ran.observation).outcome)
    assert outcomes == ["reproduced", "gone"]


def test_the_native_build_is_asked_about_another_machines_ends_and_replies_and_not_about_faults_and_its_own() -> None:
    there = reproducer(detector="suite", optimisation="O3", allocator="jemalloc", memory_order="weak", policy="audit")
    here = on_host(there)
    assert here is not None
    assert (here.target, here.policy, here.allocator, here.memory_order) == (ORACLE, "signal", "libc", "usual")
    assert (here.server, here.optimisation, here.finding) == (there.server, "O3", there.finding)
    assert on_host(reproducer(detector="signal")) is None
    assert on_host(here) is None
