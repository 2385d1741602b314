"""However a guest or the harness ends, the report is right, and no process of Plumbline remains."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.support import machines
from tests.end_to_end.support.changed_checkouts import edit
from tests.end_to_end.support.plumb_runs import (
    GONE_SECONDS,
    PLUMB,
    RUN_SECONDS,
    document,
    emulated_guest,
    processes_of,
    run,
    running,
    wait_for,
)

pytestmark = pytest.mark.end_to_end
WHOLE = ("check", "--target", "armv5", "--suite", "bitops", "--seed", "1", "--json")
# A few tests are enough for what happens to a server during one of them.
CHECK = (*WHOLE, "--test", "bitpos", "--run")


def test_a_run_of_selected_tests_is_marked_as_incomplete(tmp_path: Path) -> None:
    """Selects by a part of a name and by a glob, in Python and in Tcl. A suite without such a test is omitted."""
    words = ["--target", "native", "--suite", "bitops", "--suite", "protocol", "--suite", "sds"]
    finished = run("check", *words, "--test", "bitpos", "--test", "*::framing-1.1", "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.PASS, "PASS")
    (part,) = read["remarks"]
    assert part == "only the tests that match were run: --test bitpos '*::framing-1.1'"
    cells = {cell["suite"]: cell for cell in read["cells"]}
    assert cells["canary"]["passed"] > 5
    assert 0 < cells["bitops"]["passed"] < 20
    assert (cells["protocol"]["verdict"], cells["protocol"]["passed"]) == ("PASS", 1)
    assert (cells["sds"]["verdict"], cells["sds"]["reason"]) == (
        "SKIP",
        "none of its tests match --test bitpos *::framing-1.1",
    )
    assert (
        run("check", *words, "--test", "no such test", "--run", tmp_path / "none").returncode == ExitCode.INCONCLUSIVE
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [
        machines.beyond(signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.INTERRUPTED),
        (signal.SIGKILL, -9),
    ],
)
def test_ending_plumb_during_a_run_leaves_no_process_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    folder = tmp_path / "run"
    with running(*CHECK, folder) as plumb:
        emulated_guest(folder)
        plumb.send_signal(number)
        assert code == plumb.wait(GONE_SECONDS)
        left = wait_for(lambda: not processes_of(folder), seconds=GONE_SECONDS) or processes_of(folder)
        assert left is True, f"left behind: {left}"


@pytest.mark.parametrize("number", [machines.beyond(signal.SIGINT), signal.SIGKILL])
def test_cells_that_have_ended_are_judged_although_plumb_was_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"

    def ended() -> list[str]:
        return [cell["suite"] for cell in json.loads((folder / "run.json").read_text("utf-8"))["cells"]]

    with running(*WHOLE, "--run", folder) as plumb:
        emulated_guest(folder)
        assert wait_for(ended, seconds=RUN_SECONDS) == ["canary"]
        plumb.send_signal(number)
        plumb.wait(GONE_SECONDS)
    judged = run("judge", folder, "--json")
    read = document(judged)
    assert (judged.returncode, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert {cell["suite"]: cell["verdict"] for cell in read["cells"]} == {"canary": "PASS", "bitops": "UNKNOWN"}
    assert read["unchecked"] == ["the run did not end: only the cells that had ended were judged"]


def socket_of_guest(folder: Path) -> Path:
    """The socket of a run's emulated server, once it is there."""
    words = emulated_guest(folder).cmdline()
    path = Path(words[words.index("--unixsocket") + 1])
    assert wait_for(path.exists, seconds=RUN_SECONDS)
    return path


def test_a_guest_that_hangs_is_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(*CHECK, folder) as plumb:
        path = socket_of_guest(folder)
        with socket.socket(socket.AF_UNIX) as connected:
            # The socket is there before the server listens.
            assert wait_for(lambda: connected.connect_ex(str(path)) == 0, seconds=RUN_SECONDS)
            connected.sendall(b"DEBUG SLEEP 10000\r\n")
            out, _ = plumb.communicate(timeout=RUN_SECONDS)
    read = json.loads(out)
    assert (plumb.returncode, [finding["kind"] for finding in read["findings"]]) == (ExitCode.FINDINGS, ["hang"])


# SIGABRT, SIGSEGV and SIGBUS look like crashes, and after SIGTERM and SIGINT a server ends as when it is told to.
QUICK = {("guest", "SIGKILL"), ("oracle", "SIGSTOP")}
SENT = [
    (server, number) if (server, number) in QUICK else machines.beyond(server, number)
    for server in ("guest", "oracle")
    for number in ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGTERM", "SIGBUS", "SIGABRT", "SIGINT")
]


@pytest.mark.parametrize(("server", "number"), SENT)
def test_a_server_killed_or_stopped_from_outside_makes_the_run_unknown(
    tmp_path: Path, server: str, number: str
) -> None:
    """Whether it is the server under test or the native build with which its replies are compared."""
    folder = tmp_path / "run"
    with running(*CHECK, folder) as plumb:
        guest = emulated_guest(folder)
        oracle = wait_for(lambda: processes_of(folder / "armv5" / "bitops" / "peers"), seconds=GONE_SECONDS)
        assert oracle, "no oracle was started"
        (guest if server == "guest" else oracle[0]).send_signal(signal.Signals[number])
        out, _ = plumb.communicate(timeout=RUN_SECONDS)
    read = json.loads(out)
    assert (plumb.returncode, read["verdict"], read["findings"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN", [])
    (reason,) = [cell["reason"] for cell in read["cells"] if cell["suite"] == "bitops"]
    assert ("a guest was" in reason, "the native build was" in reason) == (server == "guest", server == "oracle")


@pytest.mark.slow(instead="tests/unit/judge/test_second_opinion.py")
def test_a_signal_to_an_oracle_of_an_old_release_is_unknown(tmp_path: Path) -> None:
    """Releases before 6.2 do not say that another process sent it. More runs of the test do not show it."""
    folder = tmp_path / "run"
    # Its BITPOS has a real finding.
    with running(*WHOLE, "--test", "getbit", "--server", "redis-3.2.6", "--run", folder) as plumb:
        emulated_guest(folder)
        oracle = wait_for(lambda: processes_of(folder / "armv5" / "bitops" / "peers"), seconds=GONE_SECONDS)
        assert oracle, "no oracle was started"
        oracle[0].send_signal(signal.SIGSEGV)
        out, _ = plumb.communicate(timeout=RUN_SECONDS)
    read = json.loads(out)
    assert (plumb.returncode, read["verdict"], read["findings"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN", [])
    assert any("which another process may have caused" in cell["reason"] for cell in read["cells"])


def test_a_cell_whose_sockets_are_deleted_is_unknown(tmp_path: Path) -> None:
    """As by a cleaner of the folder for temporary files."""
    folder = tmp_path / "run"
    with running(*CHECK, folder) as plumb:
        path = socket_of_guest(folder)
        events = folder / "armv5" / "bitops" / "events.jsonl"
        # A server that is still starting has no socket to lose.
        assert wait_for(lambda: events.is_file() and b'"test"' in events.read_bytes(), seconds=RUN_SECONDS)
        shutil.rmtree(path.parent)
        out, _ = plumb.communicate(timeout=RUN_SECONDS)
    read = json.loads(out)
    assert (plumb.returncode, read["findings"]) == (ExitCode.INCONCLUSIVE, [])


def test_an_oracle_that_crashes_is_one_finding_and_explains_its_test(tmp_path: Path) -> None:
    """Otherwise the next test would count the end as its own, and the failed test would be a wrong reply."""
    folder = tmp_path / "run"
    with running(*CHECK, folder) as plumb:
        emulated_guest(folder)
        oracle = wait_for(lambda: processes_of(folder / "armv5" / "bitops" / "peers"), seconds=GONE_SECONDS)
        assert oracle, "no oracle was started"
        # Its title names the socket, since a server that is not emulated overwrites its command line.
        title = wait_for(lambda: re.search(r"unixsocket:(\S+)", " ".join(oracle[0].cmdline())), seconds=GONE_SECONDS)
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(title[1])
            connected.sendall(b"DEBUG SEGFAULT\r\n")
            out, _ = plumb.communicate(timeout=RUN_SECONDS)
    read = json.loads(out)
    assert plumb.returncode == ExitCode.FINDINGS
    (finding,) = read["findings"]
    assert (finding["kind"], finding["targets"]) == ("crash", ["native"])
    assert finding["id"].startswith("crash-bitops_")


IGNORING = """
import os, signal, sys
if sys.argv[1] == "ignored":
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize("state", [machines.beyond("ignored"), "blocked"])
def test_signals_that_the_caller_ignores_or_blocks_change_nothing(tmp_path: Path, state: str) -> None:
    """Daemons and CI launchers ignore SIGCHLD; a blocked SIGBUS would keep a misaligned access from being noticed."""
    words = ["check", "--target", "armv5", "--suite", "bitops", "--test", "getbit", "--seed", "1", "--json"]
    finished = run(*words, "--run", tmp_path / "run", program=[sys.executable, "-c", IGNORING, state, *PLUMB])
    assert finished.returncode == ExitCode.PASS, finished.stderr[-2000:]
    assert document(finished)["verdict"] == "PASS"


@pytest.mark.slow(instead="tests/unit/run/test_waits.py")
def test_a_server_that_hangs_at_one_command_is_waited_for_in_one_test(tmp_path: Path) -> None:
    """A tree whose BITCOUNT hangs on 32 bits kept one target for twenty minutes, with idle processors."""
    tree = tmp_path / "my-redis"
    shutil.copytree(machines.release("redis-7.0.15"), tree)
    count = "        addReplyLongLong(c,count);"
    edit(tree / "src" / "bitops.c", count, f"        while (sizeof(long) == 4 && count == 3) sleep(1);\n{count}")
    words = ("--server", tree, "--suite", "bitops", "--test", "bitcount", "--target", "armv5")
    finished = run("check", *words, "--json", "--run", tmp_path / "run")
    assert finished.returncode == ExitCode.FINDINGS, finished.stderr
    (hang,) = document(finished)["findings"]
    assert (hang["kind"], sum(witness["count"] for witness in hang["witnesses"])) == ("hang", 1)
    (cell,) = (cell for cell in document(finished)["cells"] if cell["suite"] == "bitops")
    # The test sends it before, and the server answers both at once.
    assert "4 blocked tests: timed out waiting for a reply to SET, for which" in cell["reason"]


@pytest.mark.slow(instead="tests/unit/run/test_waits.py")
def test_a_command_that_hung_in_two_cells_is_hardly_waited_for_in_a_third(tmp_path: Path) -> None:
    """Of a tree whose SETs hang, each cell of a target waited to the time limit. `persistence` has servers for single
    tests, of which four without a reply in a row leave the others none.
    """
    tree = tmp_path / "my-redis"
    shutil.copytree(machines.release("redis-7.0.15"), tree)
    opening = "void setCommand(client *c) {\n"
    edit(tree / "src" / "t_string.c", opening, f"{opening}    while (sizeof(long) == 4) {{}}\n")
    suites = ("bitops", "hashing", "persistence")
    words = [word for suite in suites for word in ("--suite", suite)]
    tests = ["--test", "bitcount", "--test", "test_tables", "--test", "test_forks"]
    finished = run(
        "check", "--server", tree, "--target", "armv5", "--jobs", "1", *words, *tests, "--json", "--run", tmp_path / "r"
    )
    assert finished.returncode == ExitCode.FINDINGS, finished.stderr
    cells = {cell["suite"]: cell for cell in document(finished)["cells"]}
    hanging = [finding for finding in document(finished)["findings"] if finding["kind"] == "hang"]
    seen = {witness["suite"] for finding in hanging for witness in finding["witnesses"]}
    (last,) = set(suites) - seen
    assert "timed out waiting for a reply to SET, for which" in cells[last]["reason"]
    for suite in seen:
        assert f"{suite}/" in cells[last]["reason"]
    assert cells[last]["seconds"] < min(cells[suite]["seconds"] for suite in seen)
