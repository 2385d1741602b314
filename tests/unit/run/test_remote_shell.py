"""What is known of commands on a board comes from its `sh` alone, and nothing is known without it.

`env` stands for ssh: the machine is this one.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import InfrastructureError
from harness.plan.board import Board
from harness.run.boards.board_image import BoardImage
from harness.run.boards.remote_process import RemoteProcess
from harness.run.boards.remote_shell import RemoteShell, code_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 30.0


def shell_of(*start: str, put: list[str] | None = None, words: str = "exact") -> RemoteShell:
    board = Board(start=list(start), target="armv5", words=words, put=put or [])  # type: ignore[arg-type]
    return RemoteShell(BoardImage(board=board, file="my.toml", environment=dict(os.environ)))


HERE = shell_of("env")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def supervised(tmp_path: Path) -> Callable[[str], RemoteProcess]:
    def start(script: str, shell: RemoteShell = HERE) -> RemoteProcess:
        words = ["sh", "-c", script]
        return RemoteProcess(shell, words, folder=str(tmp_path), log=tmp_path / "log", said=tmp_path / "said")

    return start


@pytest.mark.parametrize(
    ("reported", "code"),
    [
        ("0 ", 0),
        ("1", 1),
        ("127 ", 127),
        ("135 ", -7),
        ("139 SEGV", -11),
        ("266", -10),
        ("255 ", 255),
        ("250", 250),
        ("138 BUS", -7),
        ("266 SIGBUS", -7),
        ("138 USR1", -10),
        ("138 a signal", -10),
        ("", None),
        ("x", None),
        ("-1", None),
        ("1" * 5000, None),
    ],
)
def test_a_status_above_128_is_a_signal_if_there_is_one_and_its_name_decides(reported: str, code: int | None) -> None:
    """SIGBUS is 10 on SPARC and MIPS, where 10 is SIGUSR1 here (signal(7))."""
    assert code_of(reported) == code


def test_a_command_is_known_by_its_status_and_output() -> None:
    ended = HERE.run("sh", "-c", "cat; exit 7", requests=b"to the board")
    assert (ended.code, ended.output) == (7, b"to the board")
    assert HERE.run("sh", "-c", "kill -s SEGV $$").code == -signal.SIGSEGV


def test_words_arrive_as_they_are_through_a_shell() -> None:
    # As ssh does: the words that follow, joined, are a command of the login shell.
    through = shell_of("sh", "-c", 'exec sh -c "$*"', "sh", words="shell")
    assert through.run("printf", "<%s>", "two  words", "$HOME", "a'b", "").output == b"<two  words><$HOME><a'b><>"


@pytest.mark.parametrize("start", [["false"], ["sh", "-c", "exit 255"], ["true"], ["sh", "-c", "kill -s BUS $$"]])
def test_nothing_is_known_of_a_command_whose_connection_ends_first(start: list[str]) -> None:
    with pytest.raises(InfrastructureError, match="the connection to the board was lost") as raised:
        shell_of(*start).run("true")
    assert "plumb board my.toml" in raised.value.remedy


@pytest.mark.parametrize(
    ("number", "code"), [("BUS", -signal.SIGBUS), ("SEGV", -signal.SIGSEGV), ("ILL", -signal.SIGILL)]
)
def test_the_signal_that_ends_a_server_is_seen(
    supervised: Callable[[str], RemoteProcess], number: str, code: int
) -> None:
    server = supervised(f"kill -s {number} $$")
    until(lambda: server.poll() is not None)
    assert server.poll() == code
    server.close()


@pytest.mark.parametrize(
    ("word", "rest", "ask"),
    [
        ("end", "x", RemoteProcess.poll),
        ("end", "9" * 5000, RemoteProcess.poll),
        ("pid", "0", RemoteProcess.pid),
        ("pid", "-1", RemoteProcess.pid),
        ("pid", "12 of them", RemoteProcess.pid),
    ],
)
def test_a_line_that_no_script_writes_is_named(
    word: str,
    rest: str,
    ask: Callable[[RemoteProcess], int | None],
    supervised: Callable[[str, RemoteShell], RemoteProcess],
) -> None:
    """A board, or its login shell, may write anything. Nothing that follows from it is a bug in Plumbline."""
    server = supervised("", shell_of("sh", "-c", f'echo "plumbline: {word} {rest}" >&2; exec cat'))
    try:
        until(lambda: server.said(word))
        with pytest.raises(InfrastructureError, match=f"answer to `{word}` cannot be read") as raised:
            ask(server)
    finally:
        server.close()
    assert raised.value.because == rest[:200]
    assert "plumb board my.toml" in raised.value.remedy


def test_a_server_can_be_stopped_asked_and_ended(supervised: Callable[[str], RemoteProcess]) -> None:
    server = supervised("while :; do sleep 0.05; done")
    # On a busy machine it may wait for a disk (D) while it starts.
    until(lambda: server.state() in {"S", "R"})
    server.send_signal(signal.SIGSTOP)
    until(lambda: server.state() == "T")
    server.send_signal(signal.SIGCONT)
    until(lambda: server.state() in {"S", "R"})
    server.send_signal(signal.SIGTERM)
    until(lambda: server.poll() is not None)
    assert server.poll() == -signal.SIGTERM
    assert server.state() == ""
    server.close()


def test_a_server_and_its_children_end_with_the_connection(
    supervised: Callable[[str], RemoteProcess], tmp_path: Path
) -> None:
    server = supervised("sleep 600 & echo $! > child; wait")
    pid = server.pid()
    until(lambda: (tmp_path / "child").is_file() and (tmp_path / "child").read_text("utf-8").strip())
    child = int((tmp_path / "child").read_text("utf-8"))
    server.close()
    until(lambda: not lives(pid) and not lives(child))
    # A server is closed once more with its cell.
    server.send_signal(signal.SIGKILL)
    server.close()
    assert server.poll() == -signal.SIGKILL


def test_a_server_that_has_no_session_yet_ends_with_the_connection(tmp_path: Path) -> None:
    slow = tmp_path / "setsid"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("setsid")} "$@"\n', "utf-8")
    slow.chmod(0o755)
    through = shell_of("env", f"PATH={tmp_path}:{os.environ['PATH']}")
    server = RemoteProcess(
        through, ["sleep", "600"], folder=str(tmp_path), log=tmp_path / "log", said=tmp_path / "said"
    )
    pid = server.pid()
    server.process.stdin.close()  # type: ignore[union-attr]
    until(lambda: not lives(pid))


def test_a_cut_connection_is_no_end_of_a_server(supervised: Callable[[str], RemoteProcess]) -> None:
    server = supervised("sleep 600")
    pid = server.pid()
    server.process.kill()
    server.process.wait()
    for ask in (server.poll, server.state):
        with pytest.raises(InfrastructureError, match="the connection to the board was lost"):
            ask()
    server.close()
    until(lambda: not lives(pid))


def test_a_folder_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    server = RemoteProcess(HERE, ["true"], folder=absent, log=tmp_path / "log", said=tmp_path / "said")
    with pytest.raises(InfrastructureError) as raised:
        server.pid()
    assert absent in raised.value.because
    server.close()


def test_a_file_arrives_whole_or_is_an_error(tmp_path: Path) -> None:
    content, place = bytes(range(256)) * 300, str(tmp_path / "there")
    HERE.put(content, place)
    assert HERE.get(place) == content
    with pytest.raises(FileNotFoundError):
        HERE.get(f"{place}-else")
    shortening = "import sys; open(sys.argv[2], 'wb').write(open(sys.argv[1], 'rb').read()[:-1])"
    short = shell_of("env", put=[sys.executable, "-c", shortening, "{from}", "{to}"])
    with pytest.raises(InfrastructureError, match="did not arrive whole") as raised:
        short.put(content, place)
    assert "76800 bytes here, and 76799 there" in raised.value.because
    with pytest.raises(InfrastructureError, match="cannot be written there"):
        HERE.put(content, "/dev/full")
