"""A machine that ssh reaches runs the suites: OpenSSH's server on loopback is the machine, and the emulator under which
its programs run is its processor.

The machine has a first process of its own, which adopts orphans. Otherwise the harness of the test would adopt the
programs of a cut connection, and end them before they have cleaned up.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from harness.build.host_packages import SSH_SERVER
from harness.core.errors import ExitCode, InfrastructureError
from harness.core.processes import process
from harness.core.sockets import held_port
from harness.plan.board import PORT_HERE, PORT_THERE
from harness.run.boards import reached_machine
from tests.end_to_end.support import machines
from tests.end_to_end.support.board_guests import guest_on
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.end_to_end

SSHD = shutil.which("sshd") or SSH_SERVER
"""Debian's package openssh-server; `plumb doctor --for-tests` names it."""
SECONDS = 30.0
SEPARATION = Path("/run/sshd")
"""The empty folder that sshd needs as root (sshd(8)); the package's service makes it."""
FIRST_PROCESS = """\
import contextlib, os, subprocess, sys, time
from harness.core.processes import process_tree
process_tree.adopt_orphans()
daemon = subprocess.Popen(sys.argv[1:])
while True:
    # Once the daemon and its children have ended, there is no child to wait for.
    with contextlib.suppress(ChildProcessError):
        os.wait()
    time.sleep(0.01)
"""


@dataclass(frozen=True)
class SshMachine:
    """OpenSSH's server on a port of loopback, with keys of its own."""

    folder: Path
    first: subprocess.Popen[bytes]
    """The machine's first process, whose child is the daemon."""

    @property
    def login(self) -> list[str]:
        return ["ssh", "-F", str(self.folder / "config"), "machine"]

    def write(self, path: Path, *, under: list[str], target: str = "armv5") -> Path:
        """The file of a board of this machine, whose programs run under an emulator, if any."""
        reach = [*self.login[:-1], "-N", "-L", "{here}:{there}", self.login[-1]]
        folder = self.folder / "there"
        folder.mkdir(exist_ok=True)
        keys = {"start": self.login, "reach": reach, "under": under, "folder": str(folder), "target": target}
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()), "utf-8")
        return path

    def left(self) -> list[str]:
        """What runs have left there: files, and processes that run from there."""
        there = str(self.folder / "there")
        found = [str(path) for path in (self.folder / "there").iterdir()]
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                found += [" ".join(each.cmdline())] if there in " ".join(each.cmdline()) else []
        return found

    def left_at_last(self) -> list[str]:
        """What runs have left there, once nothing is left or the time is over."""
        with contextlib.suppress(AssertionError):
            until(lambda: not self.left())
        return self.left()

    def cut(self) -> None:
        """Kill the daemon, and with it every connection. The programs that it has started learn that by themselves."""
        with contextlib.suppress(psutil.Error):
            for each in psutil.Process(self.first.pid).children(recursive=True):
                if each.name().startswith("sshd"):
                    each.send_signal(signal.SIGKILL)


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    assert Path(SSHD).is_file(), "apt-get install openssh-server"
    if os.geteuid() == 0:
        SEPARATION.mkdir(exist_ok=True)
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with held_port("127.0.0.1") as holder:
        port = holder.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nMaxStartups 100\n",
        "utf-8",
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text('utf-8')}", "utf-8")
    (folder / "config").write_text(
        f"Host machine\nHostName 127.0.0.1\nPort {port}\nIdentityFile {folder}/user\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {folder}/known\nGlobalKnownHostsFile none\nBatchMode yes\nExitOnForwardFailure yes\n",
        "utf-8",
    )
    with (folder / "sshd.log").open("wb") as log:
        daemon = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
        first = process.start([sys.executable, "-c", FIRST_PROCESS, *daemon], output=log)
    made = SshMachine(folder, first)
    try:
        until(lambda: subprocess.run([*made.login, "true"], check=False, capture_output=True).returncode == 0)
        yield made
    finally:
        made.cut()
        process.kill_group(first)


def has_ended(server: psutil.Process) -> bool:
    try:
        return not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def emulator() -> list[str]:
    """The words before a program for ARMv5 on the machine."""
    runner = machines.runner("armv5")
    return [str(runner.program), *runner.options]


def test_each_step_of_a_sound_board_works_and_a_wrong_host_key_is_named(machine: SshMachine, tmp_path: Path) -> None:
    board = machine.write(tmp_path / "board.toml", under=emulator())
    finished = run("board", board)
    assert finished.returncode == ExitCode.PASS, finished.stdout
    steps = ["login", "words", "folder", "start", "signal", "end", "files", "probe", "reach"]
    assert [line.split()[:2] for line in finished.stdout.splitlines()] == [["works", step] for step in steps]
    assert machine.left() == []
    (machine.folder / "known").write_text("", "utf-8")
    finished = run("board", board, "--json")
    assert finished.returncode == ExitCode.INFRASTRUCTURE
    (login,) = json.loads(finished.stdout)
    assert (login["name"], login["works"]) == ("login", False)
    assert "Host key verification failed" in login["detail"]


def test_a_cut_connection_says_nothing_about_the_server_and_leaves_nothing_there(
    machine: SshMachine, tmp_path: Path
) -> None:
    board = machine.write(tmp_path / "board.toml", under=emulator())
    with guest_on(board, tmp_path) as guest:
        with guest.client() as client:
            assert client.command("SET", "a", "b") == b"OK"
            assert client.command("SAVE") == b"OK"
        assert guest.read("dump.rdb").startswith(b"REDIS")
        server = psutil.Process(guest.pid)
        machine.cut()
        with pytest.raises(InfrastructureError, match=r"was lost|has ended"):
            until(lambda: not guest.alive())
        with pytest.raises(InfrastructureError):
            guest.refuse_silence()
        until(lambda: has_ended(server))
    assert machine.left_at_last() == []


def test_a_check_passes_on_a_sound_machine_and_is_unknown_on_one_that_is_gone(
    machine: SshMachine, tmp_path: Path
) -> None:
    board = machine.write(tmp_path / "board.toml", under=emulator())
    words = ["check", "--board", board, "--suite", "bitops", "--test", "bitpos_finds", "--json"]
    found = document(run(*words, "--run", tmp_path / "sound"))
    assert {cell["verdict"] for cell in found["cells"]} == {"PASS"}
    assert machine.left() == []
    machine.cut()
    found = document(run(*words, "--run", tmp_path / "gone"))
    assert {cell["verdict"] for cell in found["cells"]} == {"UNKNOWN"}
    assert "the connection to the board was lost" in json.dumps(found["cells"])


LIKE_THE_HOST = pytest.mark.skipif(platform.machine() != "x86_64", reason="the machine is the host, the target x86-64")


@LIKE_THE_HOST
def test_every_access_of_a_machine_is_compared(machine: SshMachine, tmp_path: Path) -> None:
    board = machine.write(tmp_path / "board.toml", under=[], target="x86_64")
    finished = run("compare-tiers", "--board", board, "--json")
    rows = json.loads(finished.stdout)
    assert finished.returncode == ExitCode.PASS, rows
    assert {(row["target"], row["kernel"]) for row in rows} == {("x86_64", "done")}
    refused = run("compare-tiers", "--board", board, "--target", "armv5-kernel")
    assert refused.returncode == ExitCode.USAGE
    assert "--target has no effect with --board" in refused.stderr
    assert machine.left() == []


@LIKE_THE_HOST
@pytest.mark.slow(instead="nothing: the release's own tests first run natively, which takes most of the time")
def test_the_releases_own_tests_use_a_server_there(machine: SshMachine, tmp_path: Path) -> None:
    board = machine.write(tmp_path / "board.toml", under=[], target="x86_64")
    words = ["--suite", "upstream", "--test", "unit/bitops::BITCOUNT returns 0 against*", "--run", tmp_path / "run"]
    found = document(run("check", "--board", board, *words, "--json"))
    assert [(cell["verdict"], cell["passed"] > 0) for cell in found["cells"]] == [("PASS", True)] * 2
    # The connection to a server there is among its evidence.
    assert list((tmp_path / "run/x86_64/upstream").glob("guest-*/connection"))
    assert machine.left() == []


def test_a_server_whose_port_is_taken_there_starts_on_another(
    machine: SshMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the way to a board knows only ports, nobody knows which of them are free there."""
    board = machine.write(tmp_path / "board.toml", under=emulator())
    by_port = board.read_text("utf-8").replace("{here}:{there}", f"127.0.0.1:{PORT_HERE}:127.0.0.1:{PORT_THERE}")
    board.write_text(by_port, "utf-8")
    with held_port("127.0.0.1") as holder:
        free = holder.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(reached_machine, "random", SimpleNamespace(randint=lambda *_: next(ports)))
        with guest_on(board, tmp_path) as guest, guest.client() as client:
            assert client.command("CONFIG", "GET", "port") == [b"port", str(free).encode()]


def test_a_transport_that_swallows_the_status_hides_no_end(machine: SshMachine, tmp_path: Path) -> None:
    board = machine.write(tmp_path / "board.toml", under=emulator())
    login = json.dumps(machine.login)
    swallowing = json.dumps(["sh", "-c", f'{shlex.join(machine.login)} "$@"; exit 0', "sh"])
    text = board.read_text("utf-8")
    board.write_text(text.replace(f"start = {login}", f"start = {swallowing}"), "utf-8")
    assert board.read_text("utf-8") != text
    with guest_on(board, tmp_path) as guest:
        guest.send_signal(signal.SIGSEGV)
        until(lambda: not guest.alive())
        assert guest.poll() == -signal.SIGSEGV
    assert machine.left() == []


@pytest.mark.slow(instead="test_a_check_passes_on_a_sound_machine_and_is_unknown_on_one_that_is_gone")
def test_the_findings_are_those_of_the_emulated_target(machine: SshMachine, tmp_path: Path) -> None:
    board = machine.write(tmp_path / "board.toml", under=emulator())
    words = ["--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds", "--json"]
    finished = run("check", "--board", board, *words, "--run", tmp_path / "board")
    assert finished.returncode == ExitCode.FINDINGS
    assert machine.left() == []
    (one,) = [one for one in document(finished)["findings"] if one["id"] == "alignment-redisBitpos-load"]
    replayed = run(*one["replay"].split()[1:], "--board", board, "--json")
    assert json.loads(replayed.stdout)["outcome"] == "reproduced", replayed
    refused = run("audit", "--board", board, *words, "--run", tmp_path / "audit")
    assert refused.returncode == ExitCode.INFRASTRUCTURE
    assert "cannot read /proc/cpu/alignment" in refused.stderr
    assert machine.left() == []
    emulated = run("check", "--target", "armv5", *words, "--run", tmp_path / "emulated")
    found, expected = (
        {
            (one["id"], one["title"], one["file"], one["line"], one["instruction"])
            for one in document(each)["findings"]
            if one["kind"] == "alignment"
        }
        for each in (finished, emulated)
    )
    assert found == expected
    assert "alignment-redisBitpos-load" in {one[0] for one in found}
