"""A process from a fork server is like any other in its parent, session, token, words, outputs, status and end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import process, process_tree
from harness.core.processes.fork_server import ForkServer
from tests.support.survivors import SLEEP, WAIT_SECONDS, eventually, lives, pids_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import sys
from harness.core.processes.fork_server import serve
words = serve()
if words is not None:
    exec(words[1])
"""
"""A server whose forked processes execute their second word as code."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    with ForkServer(
        [sys.executable, "-I", "-B", "-c", PROGRAM], folder=tmp_path, environment=process.PLAIN_ENVIRONMENT
    ) as made:
        yield made


def test_outputs_go_to_the_log_and_the_status_is_returned(server: ForkServer, tmp_path: Path) -> None:
    code = "import os, sys; print('out'); sys.stdout.flush(); os.write(2, b'err'); print(sys.stdin.read()); sys.exit(7)"
    for _ in range(2):
        result = process.run(["p", code], deadline_seconds=WAIT_SECONDS, spawn=server.spawn, folder=tmp_path)
        assert (result.code, result.text) == (7, "out\nerr\n")


def test_it_is_our_child_with_its_own_session_token_and_words(server: ForkServer, tmp_path: Path) -> None:
    code = f"import time; time.sleep({SLEEP})"
    with (tmp_path / "log").open("wb") as log:
        pair = [process.start(["one", code, "last"], output=log, spawn=server.spawn) for _ in range(2)]
    try:
        tokens = {process_tree.token_of(each.pid) for each in pair}
        assert len(tokens) == 2
        assert "" not in tokens
        for each in pair:
            seen = process_tree.look_at(each.pid)
            assert seen is not None
            assert (seen.parent, seen.session) == (os.getpid(), each.pid)
            with open(f"/proc/{each.pid}/cmdline", "rb") as file:  # noqa: PTH123 - as the kernel shows it
                assert file.read().rstrip(b"\0").split(b"\0") == [b"one", code.encode(), b"last"]
    finally:
        for each in pair:
            process.kill_group(each)
    assert [each.returncode for each in pair] == [-9, -9]
    assert not any(lives(each.pid) for each in pair)


def test_words_longer_than_its_servers_are_cut_and_damage_no_environment(server: ForkServer, tmp_path: Path) -> None:
    words = ["one", f"import time; time.sleep({SLEEP})", "x" * 10_000]
    with (tmp_path / "log").open("wb") as log:
        started = process.start(words, output=log, spawn=server.spawn)
    try:
        with open(f"/proc/{started.pid}/cmdline", "rb") as file:  # noqa: PTH123 - as the kernel shows it
            shown = file.read().rstrip(b"\0")
        assert shown.startswith(b"one\0")
        assert "\0".join(words).encode().startswith(shown)
        with open(f"/proc/{started.pid}/environ", "rb") as file:  # noqa: PTH123
            assert f"{process_tree.MARK}={process_tree.token_of(started.pid)}".encode() in file.read().split(b"\0")
        assert process_tree.token_of(started.pid)
    finally:
        process.kill_group(started)


def test_the_environment_that_its_children_inherit_names_it(server: ForkServer, tmp_path: Path) -> None:
    code = "import os; print(os.environ['PLUMBLINE_PROCESS'] in open('/proc/self/environ').read())"
    result = process.run(["p", code], deadline_seconds=WAIT_SECONDS, spawn=server.spawn, folder=tmp_path)
    assert result.text == "True\n"


@pytest.mark.parametrize("ways", ["setsid", "setsid, unmarked"])
def test_processes_that_it_left_behind_are_killed_when_it_ends(server: ForkServer, tmp_path: Path, ways: str) -> None:
    pids = tmp_path / "pids"
    clean = "env -i" if "unmarked" in ways else ""
    script = f"{clean} setsid sh -c 'echo $$ >>pids; exec sleep {SLEEP}' & until [ -s pids ]; do sleep 0.02; done"
    code = f"import subprocess; subprocess.run(['sh', '-c', {script!r}])"
    result = process.run(["p", code], deadline_seconds=WAIT_SECONDS, spawn=server.spawn, folder=tmp_path)
    assert result.code == 0, result.text
    (pid,) = pids_in(pids, 1)
    assert not lives(pid), "it outlived the process that started it"


def test_processes_that_it_starts_with_the_harness_have_their_own_tokens(server: ForkServer, tmp_path: Path) -> None:
    code = "from harness.core.processes import process; print(process.run(['env'], deadline_seconds=9).text)"
    result = process.run(["p", code], deadline_seconds=WAIT_SECONDS, spawn=server.spawn, folder=tmp_path)
    own = process.run(["env"], deadline_seconds=WAIT_SECONDS)
    marks = [
        line.partition("=")[2].rpartition(".")[0]
        for text in (result.text, own.text)
        for line in text.splitlines()
        if line.startswith(process_tree.MARK)
    ]
    assert len(set(marks)) == 2, marks


def test_a_process_that_takes_too_long_is_killed(server: ForkServer, tmp_path: Path) -> None:
    code = f"import time; time.sleep({SLEEP})"
    result = process.run(["p", code], deadline_seconds=0.3, spawn=server.spawn, folder=tmp_path)
    assert result.expired


def test_without_its_server_a_process_is_started_normally(server: ForkServer, tmp_path: Path) -> None:
    assert server._server is not None  # noqa: SLF001 - it is killed as the kernel would kill it
    server._server.kill()  # noqa: SLF001
    for _ in range(2):
        result = process.run(["echo", "new"], deadline_seconds=WAIT_SECONDS, spawn=server.spawn, folder=tmp_path)
        assert (result.code, result.text) == (0, "new\n")


@pytest.mark.parametrize(("deadline_seconds", "spawned"), [(0.2, False), (60.0, True)])
def test_a_server_that_exceeds_its_deadline_while_importing_is_abandoned(
    tmp_path: Path, deadline_seconds: float, *, spawned: bool
) -> None:
    command = [sys.executable, "-I", "-B", "-c", f"import time; time.sleep(1)\n{PROGRAM}"]
    environment = process.PLAIN_ENVIRONMENT
    with (
        ForkServer(command, folder=tmp_path, environment=environment, deadline_seconds=deadline_seconds) as slow,
        (tmp_path / "log").open("wb") as log,
    ):
        made = slow.spawn(["p", "pass"], log.fileno(), "token")
        assert (made is not None) == spawned
        if made is not None:
            process.kill_group(made)


def test_the_server_ends_when_it_is_closed_and_its_processes_continue(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-B", "-c", PROGRAM]
    with (
        (tmp_path / "log").open("wb") as log,
        ForkServer(command, folder=tmp_path, environment=process.PLAIN_ENVIRONMENT) as server,
    ):
        started = process.start(["p", f"import time; time.sleep({SLEEP})"], output=log, spawn=server.spawn)
    assert server._server is not None  # noqa: SLF001
    gone = server._server.pid  # noqa: SLF001
    try:
        assert eventually(lambda: not lives(gone))
        assert started.poll() is None
    finally:
        process.kill_group(started)
