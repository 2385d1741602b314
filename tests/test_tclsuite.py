"""tcltest exits 0 when tests fail: only its printed summary counts, and a missing one is a failure."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from harness import process
from harness.cell import LARGEST_SEED
from harness.load import ROOT
from harness.tclsuite import RUNNER, Interpreter, TclFailedError, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.dialogue import Answer

PASSED = "runner.tcl:\tTotal\t41\tPassed\t1\tSkipped\t40\tFailed\t0\n"
FAILED = """

==== protocol-1.3 inline command FAILED
==== Contents of test case:
    ask PING
---- Result was:
+PANG
---- Result should have been (exact matching):
+PONG
==== protocol-1.3 FAILED

runner.tcl:\tTotal\t41\tPassed\t0\tSkipped\t40\tFailed\t1
"""
SKIPPED = "++++ protocol-1.4 SKIPPED: resp3\nrunner.tcl:\tTotal\t41\tPassed\t0\tSkipped\t41\tFailed\t0\n"


def test_a_passed_test_passes() -> None:
    verdict(PASSED, expired=False)


def test_a_failed_test_fails_with_tcls_own_words() -> None:
    with pytest.raises(TclFailedError) as caught:
        verdict(FAILED, expired=False)
    assert str(caught.value).startswith("==== protocol-1.3 inline command FAILED")
    assert "+PANG" in str(caught.value)


def test_a_test_whose_constraint_is_not_met_is_skipped_with_its_name() -> None:
    with pytest.raises(pytest.skip.Exception, match="resp3"):
        verdict(SKIPPED, expired=False)


@pytest.mark.parametrize("output", ["", "ok\n", PASSED.split("Passed", maxsplit=1)[0], "couldn't open file\n"])
def test_a_missing_summary_is_a_failure(output: str) -> None:
    with pytest.raises(TclFailedError, match="no summary"):
        verdict(output, expired=False)


def test_no_test_at_all_is_a_failure() -> None:
    with pytest.raises(TclFailedError, match="no test ran"):
        verdict("x:\tTotal\t0\tPassed\t0\tSkipped\t0\tFailed\t0\n", expired=False)


def test_more_tests_than_the_one_asked_for_are_a_failure() -> None:
    with pytest.raises(TclFailedError):
        verdict("x:\tTotal\t41\tPassed\t2\tSkipped\t39\tFailed\t0\n", expired=False)


def test_a_deadline_that_passed_is_a_failure_whatever_was_printed() -> None:
    with pytest.raises(TclFailedError, match="timed out"):
        verdict(PASSED, expired=True)


@pytest.mark.parametrize("seed", [0, 1, LARGEST_SEED])
def test_the_runner_takes_every_seed_that_a_run_may_have(seed: int) -> None:
    file = ROOT / "suites" / "protocol" / "framing.testsuite"
    options = ["--endpoint", "127.0.0.1:1", "--deadline-seconds", "1", "--match", "none", "--seed", str(seed)]
    result = process.run(["tclsh", str(RUNNER), *options, str(file)], deadline_seconds=30)
    assert f"seed {seed}\n" in result.text
    assert "no test of framing.testsuite matches none" in result.text


def test_the_runner_refuses_a_larger_seed() -> None:
    file = ROOT / "suites" / "protocol" / "framing.testsuite"
    options = ["--endpoint", "127.0.0.1:1", "--deadline-seconds", "1", "--seed", str(LARGEST_SEED + 1)]
    result = process.run(["tclsh", str(RUNNER), *options, str(file)], deadline_seconds=30)
    assert (result.code, "a seed is a whole number" in result.text) == (4, True)


SUITE = """
test planted-1.1 {a test that passes} -body { set leaked 1 } -result 1
test planted-1.2 {a test that sees nothing of the one before} -body { info exists leaked } -result 0
test planted-1.3 {a test that fails} -body { ask SET a b } -result y
test planted-1.4 {a test that kills its interpreter} -body { exit 7 }
test planted-1.6 {a test after which nothing is answered} -body { ask ECHO x }
test planted-1.5 {a test that is told the tier} -body { forTier quick full thorough } -result full
"""


class Pong:
    """A server that answers everything with PONG, as far as the runner's own questions go; nothing after an ECHO."""

    def __init__(self) -> None:
        self._silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while request := client.recv(65536):
                if b"ECHO" in request:
                    self._silent.set()
                if self._silent.is_set():
                    continue
                client.sendall(b"*0\r\n" if b"KEYS" in request else b"+PONG\r\n")

    def close(self) -> None:
        self._listener.close()


@dataclasses.dataclass
class Endpoint:
    """What an interpreter needs of a guest."""

    endpoint: tuple[str, int]
    deadline_seconds: float = 1.0


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Callable[[str], Answer]]:
    """Runs planted tests, by number, in one interpreter."""
    file = tmp_path / "planted.testsuite"
    file.write_text(SUITE, "utf-8")
    server = Pong()
    interpreter = Interpreter(file, seed=1, tier="full")
    yield lambda number: interpreter.run(f"planted-1.{number}", Endpoint(("127.0.0.1", server.port)))  # type: ignore[arg-type]
    interpreter.close()
    server.close()


def test_tests_of_one_file_run_in_one_interpreter_and_share_no_variables(
    planted: Callable[[str], Answer],
) -> None:
    for number in ("1", "2", "5"):
        answer = planted(number)
        assert answer.end == "complete"
        verdict(answer.text, expired=False)


def test_a_failed_test_fails_alone(planted: Callable[[str], Answer]) -> None:
    with pytest.raises(TclFailedError, match=r"planted-1\.3 a test that fails FAILED"):
        verdict(planted("3").text, expired=False)
    verdict(planted("1").text, expired=False)


def test_an_interpreter_that_ends_has_no_verdict_and_is_replaced(planted: Callable[[str], Answer]) -> None:
    answer = planted("4")
    assert answer.end == "ended"
    with pytest.raises(TclFailedError, match="no summary"):
        verdict(answer.text, expired=False)
    verdict(planted("1").text, expired=False)


def test_an_endpoint_that_answers_nobody_any_more_is_told_from_one_that_owes_a_reply(
    planted: Callable[[str], Answer],
) -> None:
    with pytest.raises(TclFailedError, match="the endpoint has timed out on a PING"):
        verdict(planted("6").text, expired=False)
    with pytest.raises(TclFailedError, match="the endpoint has timed out on a PING"):
        verdict(planted("1").text, expired=False)
