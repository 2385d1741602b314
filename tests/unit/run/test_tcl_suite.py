"""tcltest exits with 0 when tests fail. Only its printed summary counts, and a missing summary is a failure."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.record.proxy.recorder import Recorder
from harness.run.cell_spec import LARGEST_SEED, CellSpec
from harness.run.tcl.client import compile_client
from harness.run.tcl.suite import RUNNER, Interpreter, TclFailedError, TclFile, verdict
from tests.support import cells, fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.core.model import Tier
    from harness.core.processes.line_process import Answer
    from harness.record.transcript import Chunk

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
    verdict(PASSED, end="complete")


def test_a_failed_test_has_the_message_of_tcltest() -> None:
    with pytest.raises(TclFailedError) as caught:
        verdict(FAILED, end="complete")
    assert str(caught.value).startswith("==== protocol-1.3 inline command FAILED")
    assert "+PANG" in str(caught.value)


def test_a_reply_that_looks_like_a_summary_is_not_a_verdict() -> None:
    with pytest.raises(TclFailedError):
        verdict(f"---- Result was:\n{PASSED}{FAILED}", end="complete")


def test_a_test_whose_constraint_is_not_met_is_skipped_with_its_name() -> None:
    with pytest.raises(pytest.skip.Exception, match="resp3"):
        verdict(SKIPPED, end="complete")


@pytest.mark.parametrize("output", ["", "ok\n", PASSED.split("Passed", maxsplit=1)[0], "couldn't open file\n"])
def test_a_missing_summary_is_a_failure(output: str) -> None:
    with pytest.raises(TclFailedError, match="no summary"):
        verdict(output, end="complete")


def test_no_test_at_all_is_a_failure() -> None:
    with pytest.raises(TclFailedError, match="no test ran"):
        verdict("x:\tTotal\t0\tPassed\t0\tSkipped\t0\tFailed\t0\n", end="complete")


def test_more_tests_than_the_requested_one_are_a_failure() -> None:
    with pytest.raises(TclFailedError):
        verdict("x:\tTotal\t41\tPassed\t2\tSkipped\t39\tFailed\t0\n", end="complete")


def test_an_exceeded_deadline_is_a_failure_whatever_was_printed() -> None:
    with pytest.raises(TclFailedError, match="timed out"):
        verdict(PASSED, end="expired")


@pytest.mark.parametrize("seed", [0, 1, LARGEST_SEED])
def test_the_runner_accepts_every_seed_that_a_run_may_have(seed: int) -> None:
    file = ROOT / "suites" / "protocol" / "framing.testsuite"
    options = ["--client", str(client()), "--endpoint", "127.0.0.1:1", "--deadline-seconds", "1"]
    options += ["--match", "none", "--seed", str(seed)]
    result = process.run(["tclsh", str(RUNNER), *options, str(file)], deadline_seconds=30)
    assert f"seed {seed}\n" in result.text
    assert "no test of framing.testsuite matches none" in result.text


def test_the_runner_refuses_a_larger_seed() -> None:
    file = ROOT / "suites" / "protocol" / "framing.testsuite"
    options = ["--endpoint", "127.0.0.1:1", "--deadline-seconds", "1", "--seed", str(LARGEST_SEED + 1)]
    result = process.run(["tclsh", str(RUNNER), *options, str(file)], deadline_seconds=30)
    assert (result.code, "a seed is a whole number" in result.text) == (4, True)


@pytest.mark.parametrize("endpoint", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", ":1", "relative/path"])
def test_the_runner_refuses_an_invalid_endpoint(endpoint: str) -> None:
    file = ROOT / "suites" / "protocol" / "framing.testsuite"
    options = ["--endpoint", endpoint, "--deadline-seconds", "1"]
    result = process.run(["tclsh", str(RUNNER), *options, str(file)], deadline_seconds=30)
    assert (result.code, f"not {endpoint} (--endpoint)" in result.text) == (4, True)


def test_a_client_that_is_not_compiled_is_named_with_the_command_that_compiles_it(tmp_path: Path) -> None:
    file = ROOT / "suites" / "protocol" / "framing.testsuite"
    runner = shutil.copytree(RUNNER.parent, tmp_path / "it's a folder") / RUNNER.name
    missing = tmp_path / "a client" / "resp.so"
    missing.parent.mkdir()
    result = process.run(["tclsh", str(runner), "--list", "--client", str(missing), str(file)], deadline_seconds=30)
    assert (result.code, "the client cannot be loaded: " in result.text, f"({missing})" in result.text) == (
        4,
        True,
        True,
    )
    command = next(line for line in result.text.splitlines() if line.startswith("try")).split("   ")[1]
    process.run_successfully(shlex.split(command), problem="the command does not compile it", deadline_seconds=60)
    listed = process.run(["tclsh", str(RUNNER), "--list", "--client", str(missing), str(file)], deadline_seconds=30)
    assert "framing-1.1\t" in listed.text


SUITE = """
test planted-1.1 {a test that passes} -body { set leaked 1 } -result 1
test planted-1.2 {a test that sees nothing of the one before} -body { info exists leaked } -result 0
test planted-1.3 {a test that fails} -body { ask SET a b } -result y
test planted-1.4 {a test that kills its interpreter} -body { exit 7 }
test planted-1.6 {a test after which nothing is answered} -body { ask ECHO x }
test planted-1.5 {a test that is told the tier} -body { forTier quick full thorough } -result full
"""


FULL_DISK = Path("/dev/full")
"""Writing to it fails as on a full disk (full(4))."""


class Pong:
    """A server that answers each request with PONG, which is enough for the runner's own requests. After an ECHO it no
    longer replies. After a GETSET it is about to die: it still accepts connections, and closes each without a reply.

    It may lack one command. It has the attributes of a guest that an interpreter needs.
    """

    deadline_seconds = 1.0
    evidence = SimpleNamespace(log="oracle/log")

    def __init__(self, recorded_path: Path, *, lacks: bytes = b"-") -> None:
        self.access = SimpleNamespace(path=recorded_path, client_endpoint=(recorded_path, None))
        self._silent = threading.Event()
        self._dying = threading.Event()
        self._lacks = lacks
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(recorded_path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while request := client.recv(65536):
                if b"GETSET" in request:
                    self._dying.set()
                if self._dying.is_set():
                    client.close()
                    return
                if b"ECHO" in request:
                    self._silent.set()
                if self._silent.is_set():
                    continue
                reply = b"-ERR unknown command\r\n" if self._lacks in request else b"+PONG\r\n"
                client.sendall(b"*0\r\n" if b"KEYS" in request else reply)

    def close(self) -> None:
        self._listener.close()


def client() -> Path:
    """The compiled client of Tcl suites."""
    return compile_client(Cache.default(), Catalog().toolchains["gcc"])


def cell_in(folder: Path, *, tier: Tier = "full") -> CellSpec:
    """A cell whose tests are written in Tcl."""
    spec = cells.spec_of("protocol", folder, fakes.unemulated(fakes.target()))
    return msgspec.structs.replace(spec, tier=tier, tcl_client=client())


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Callable[[str], Answer]]:
    """A function that runs planted tests, by number, in one interpreter."""
    file = tmp_path / "planted.testsuite"
    file.write_text(SUITE, "utf-8")
    server = Pong(tmp_path / "s")
    interpreter = Interpreter([file], cell_in(tmp_path))
    yield lambda number: interpreter.run(f"planted-1.{number}", server)  # type: ignore[arg-type]
    interpreter.close()
    server.close()


def test_tests_of_one_file_run_in_one_interpreter_and_share_no_variables(
    planted: Callable[[str], Answer],
) -> None:
    for number in ("1", "2", "5"):
        answer = planted(number)
        assert answer.end == "complete"
        verdict(answer.text, end="complete")


def test_a_failed_test_does_not_affect_others(planted: Callable[[str], Answer]) -> None:
    with pytest.raises(TclFailedError, match=r"planted-1\.3 a test that fails FAILED"):
        verdict(planted("3").text, end="complete")
    verdict(planted("1").text, end="complete")


def test_an_interpreter_that_ends_has_no_verdict_and_is_replaced(planted: Callable[[str], Answer]) -> None:
    answer = planted("4")
    assert answer.end == "ended"
    with pytest.raises(TclFailedError, match="tclsh ended before the test did"):
        verdict(answer.text + PASSED, end=answer.end)
    verdict(planted("1").text, end="complete")


def test_an_endpoint_that_no_longer_answers_is_distinguished_from_one_that_owes_a_reply(
    planted: Callable[[str], Answer],
) -> None:
    with pytest.raises(TclFailedError, match="the endpoint has timed out on a PING"):
        verdict(planted("6").text, end="complete")
    with pytest.raises(TclFailedError, match="the endpoint has timed out on a PING"):
        verdict(planted("1").text, end="complete")


NEEDS = """
constraint knowsObjects { accepted OBJECT HELP }
test planted-2.1 {a test that needs something} -constraints knowsObjects -body { set x 1 } -result 1
test planted-2.2 {another} -constraints {fullTier knowsObjects} -body { set x 1 } -result 1
constraint -data hasObjects { accepted OBJECT HELP }
test planted-2.3 {a test that needs some data} -constraints hasObjects -body { set x 1 } -result 1
"""


@pytest.fixture
def needing(tmp_path: Path) -> Iterator[Callable[[str, bytes, bytes], str]]:
    """A function that runs a planted test whose guest and oracle each lack a command. It returns tcltest's output."""
    file = fakes.write(tmp_path / "planted.testsuite", NEEDS)
    servers: list[Pong] = []
    interpreters: list[Interpreter] = []

    def run(number: str, guest: bytes, oracle: bytes) -> str:
        paths = [tmp_path / f"{len(servers)}{which}" for which in ("here", "there")]
        here, there = Pong(paths[0], lacks=guest), Pong(paths[1], lacks=oracle)
        servers.extend([here, there])
        interpreters.append(Interpreter([file], cell_in(tmp_path)))
        return interpreters[-1].run(f"planted-2.{number}", here, there).text  # type: ignore[arg-type]

    yield run
    for interpreter in interpreters:
        interpreter.close()
    for server in servers:
        server.close()


@pytest.mark.parametrize("number", ["1", "2"])
def test_a_command_of_guest_and_oracle_is_tested_and_one_that_both_lack_is_skipped(
    needing: Callable[[str, bytes, bytes], str], number: str
) -> None:
    verdict(needing(number, b"-", b"-"), end="complete")
    with pytest.raises(pytest.skip.Exception, match="knowsObjects"):
        verdict(needing(number, b"OBJECT", b"OBJECT"), end="complete")


@pytest.mark.parametrize(
    ("guest", "oracle", "message"),
    [(b"OBJECT", b"-", "is not met here,? and met by the native"), (b"-", b"OBJECT", "is met here,? and not met by")],
    ids=["guest", "oracle"],
)
@pytest.mark.parametrize("number", ["1", "2"])
def test_a_command_that_only_one_of_them_lacks_is_a_failure_and_not_skipped(
    needing: Callable[[str, bytes, bytes], str], number: str, guest: bytes, oracle: bytes, message: str
) -> None:
    with pytest.raises(TclFailedError, match=f"the constraint knowsObjects {message}"):
        verdict(needing(number, guest, oracle), end="complete")


def test_the_oracle_is_not_asked_about_the_data_of_a_guest(needing: Callable[[str, bytes, bytes], str]) -> None:
    """Regression: a test that an earlier one's keys kept from running failed, since the native build had no keys."""
    with pytest.raises(pytest.skip.Exception, match="hasObjects"):
        verdict(needing("3", b"OBJECT", b"-"), end="complete")
    verdict(needing("3", b"-", b"OBJECT"), end="complete")


def joined(chunks: list[Chunk]) -> dict[str, bytes]:
    """The bytes sent on all connections in order, and the bytes received."""
    return {
        direction: b"".join(chunk.content for chunk in chunks if chunk.direction == direction)
        for direction in ("request", "reply")
    }


def test_a_client_with_its_own_record_records_the_same_as_the_proxy(
    planted: Callable[[str], Answer], tmp_path: Path
) -> None:
    server = Pong(tmp_path / "behind")
    recorder = Recorder(server.access.path, tmp_path / "r")
    recorded = []
    interpreter = Interpreter([tmp_path / "planted.testsuite"], cell_in(tmp_path))
    for endpoint in ((recorder.path, None), (server.access.path, recorder.file)):
        server.access.client_endpoint = endpoint
        recorder.begin()
        assert recorder.chunks() == []
        verdict(interpreter.run("planted-1.1", server).text, end="complete")  # type: ignore[arg-type]
        recorded.append(recorder.chunks())
    by_proxy, by_itself = recorded
    assert joined(by_itself) == joined(by_proxy)
    assert b"PING" in joined(by_itself)["request"]
    # Each test opens its own connections.
    numbers = [{chunk.connection for chunk in chunks} for chunks in recorded]
    assert len(numbers[0]) == len(numbers[1]) == 2
    recorder.close()
    assert joined(recorder.chunks()) == joined(by_itself)
    assert not recorder.file.exists()
    interpreter.close()
    server.close()


def test_a_client_with_its_own_record_reports_a_dead_server_as_through_the_proxy(tmp_path: Path) -> None:
    server = Pong(tmp_path / "behind")
    recorder = Recorder(server.access.path, tmp_path / "r")
    server.access.path.unlink()
    interpreter = Interpreter([fakes.write(tmp_path / "planted.testsuite", SUITE)], cell_in(tmp_path))
    for endpoint in ((recorder.path, None), (server.access.path, recorder.file)):
        server.access.client_endpoint = endpoint
        with pytest.raises(TclFailedError, match="connection closed by server"):
            verdict(interpreter.run("planted-1.1", server).text, end="complete")  # type: ignore[arg-type]
        assert recorder.chunks() == []
    interpreter.close()
    recorder.close()
    server.close()


DYING = """
constraint dies { ask GETSET [key probe] x }
test planted-3.1 {a test that configures the server, which dies} -body { configure some 1; ask GETSET a b }
test planted-3.2 {a test whose constraint the server dies of} -constraints dies -body { ask GET a }
"""


@pytest.mark.parametrize("number", ["1", "2"])
def test_the_last_recorded_request_is_the_one_that_killed_the_server(tmp_path: Path, number: str) -> None:
    server = Pong(tmp_path / "behind")
    recorder = Recorder(server.access.path, tmp_path / "r")
    server.access.client_endpoint = (server.access.path, recorder.file)
    interpreter = Interpreter([fakes.write(tmp_path / "planted.testsuite", DYING)], cell_in(tmp_path))
    with pytest.raises(TclFailedError, match="connection closed by server"):
        verdict(interpreter.run(f"planted-3.{number}", server).text, end="complete")  # type: ignore[arg-type]
    assert b"GETSET" in recorder.chunks()[-1].content
    interpreter.close()
    recorder.close()
    server.close()


def test_a_record_that_cannot_be_written_is_blamed_on_the_machine(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = fakes.write(tmp_path / "planted.testsuite", SUITE)
    interpreter = Interpreter([path], cell_in(tmp_path))
    file = TclFile.from_parent(request.session, path=path, interpreter=interpreter)
    server = Pong(tmp_path / "s")
    server.access.client_endpoint = (server.access.path, FULL_DISK)
    with pytest.raises(InfrastructureError, match="the requests of a test cannot be recorded") as caught:
        file.run("planted-1.1", server, server)  # type: ignore[arg-type]
    assert caught.value.because == "No space left on device"
    interpreter.close()
    server.close()


TWO_FILES = {
    "one": """
        proc own {} {return one}
        constraint has { return 1 }
        test one-1.1 {a test of the first file} -constraints has -body own -result one
    """,
    "two": """
        proc own {} {return two}
        constraint has { return 0 }
        test two-1.1 {a test of the second file} -body own -result two
        test two-1.2 {a test that needs what the first file's do} -constraints has -body own -result two
    """,
}


def test_several_files_share_an_interpreter_but_neither_procedures_nor_constraints(tmp_path: Path) -> None:
    files = [fakes.write(tmp_path / f"{name}.testsuite", text) for name, text in TWO_FILES.items()]
    server = Pong(tmp_path / "s")
    interpreter = Interpreter(files, cell_in(tmp_path))
    assert [[name for name, _ in interpreter.tests(file)] for file in files] == [["one-1.1"], ["two-1.1", "two-1.2"]]
    for name in ("one-1.1", "two-1.1", "one-1.1"):
        answer = interpreter.run(name, server)  # type: ignore[arg-type]
        verdict(answer.text, end="complete")
        assert f"{name.partition('-')[0]}.testsuite:" in answer.text
    with pytest.raises(pytest.skip.Exception, match="has"):
        verdict(interpreter.run("two-1.2", server).text, end="complete")  # type: ignore[arg-type]
    verdict(interpreter.run("one-1.1", server).text, end="complete")  # type: ignore[arg-type]
    interpreter.close()
    server.close()


def test_an_invalid_suite_file_is_named(tmp_path: Path) -> None:
    files = [fakes.write(tmp_path / f"{name}.testsuite", text) for name, text in (*TWO_FILES.items(), ("bad", "x y"))]
    with pytest.raises(InfrastructureError, match="the Tcl suite cannot be listed") as caught:
        Interpreter(files, cell_in(tmp_path)).tests(files[0])
    assert "bad.testsuite" in caught.value.because


def test_an_oracle_that_does_not_answer_is_not_blamed_on_the_guest(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = fakes.write(tmp_path / "planted.testsuite", NEEDS)
    interpreter = Interpreter([path], cell_in(tmp_path))
    file = TclFile.from_parent(request.session, path=path, interpreter=interpreter)
    here, gone = Pong(tmp_path / "here"), Pong(tmp_path / "gone")
    gone.access.path.unlink()
    with pytest.raises(InfrastructureError, match="the native build does not answer"):
        file.run("planted-2.1", here, gone)  # type: ignore[arg-type]
    interpreter.close()
    here.close()
    gone.close()
