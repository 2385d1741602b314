"""No process survives a command, even if it called setsid, was orphaned twice, or emptied its environment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from harness.core.errors import ExitCode, InfrastructureError
from harness.core.processes import leftovers, process, process_tree
from harness.core.processes.supervisor import AGAIN_SECONDS, INTERRUPTED, STOPPED, tell_begun
from harness.core.strict_toml import ROOT
from tests.support import fakes
from tests.support.survivors import SLEEP, WAIT_SECONDS, eventually, lives, pids_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.costly

WAYS = {
    "setsid": "setsid sh -c 'echo $$ >>pids; exec sleep {sleep}' &",
    "forked twice": "setsid sh -c 'sleep {sleep} & echo $! >>pids' &",
    "without environment": "env -i setsid sh -c 'sleep {sleep} & echo $! >>pids' &",
    "a daemon's": "setsid sh -c 'env -i setsid sh -c \"sleep {sleep} & echo \\$! >>pids; sleep {sleep}\" &' &",
}
"""Ways in which a helper of a makefile or a server may escape. Each writes one process number into the file `pids`."""


def daemons(*ways: str) -> str:
    """A shell script that leaves these processes behind, and ends when they have started."""
    lines = [WAYS[way].format(sleep=SLEEP) for way in ways or WAYS]
    count = len(lines)
    return "\n".join([*lines, f'until [ "$(wc -l <pids)" -ge {count} ]; do sleep 0.02; done'])


def all_gone(pids: list[int]) -> bool:
    return eventually(lambda: not any(lives(pid) for pid in pids))


@pytest.mark.parametrize("way", sorted(WAYS))
def test_processes_that_a_command_left_behind_are_killed_when_it_ends(tmp_path: Path, way: str) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    assert process.run(["sh", "-c", daemons(way)], deadline_seconds=WAIT_SECONDS, folder=tmp_path).code == 0
    (pid,) = pids_in(pids, 1)
    assert not lives(pid), "the process outlived the command that started it"


@pytest.mark.parametrize("way", sorted(WAYS))
def test_processes_that_a_server_left_behind_are_killed_with_it(tmp_path: Path, way: str) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    started = process.start(["sh", "-c", f"{daemons(way)}; exec sleep {SLEEP}"], folder=tmp_path)
    (pid,) = pids_in(pids, 1)
    assert lives(pid)
    process.kill_group(started, grace_seconds=1)
    assert not lives(pid), "the process outlived the server that started it"


def test_the_end_of_one_command_does_not_end_another_ones_daemon(tmp_path: Path) -> None:
    """A compiler's cache may be a daemon that another make still uses."""
    pids = tmp_path / "pids"
    pids.touch()
    waits = "until [ -e go ]; do sleep 0.02; done"
    goes_on = process.start(["sh", "-c", f"{waits}; {daemons('forked twice')}; exec sleep {SLEEP}"], folder=tmp_path)
    # The command is older than the daemon, so according to process numbers the daemon could be its child.
    goes = "touch go; until [ -s pids ]; do sleep 0.02; done"
    process.run(["sh", "-c", goes], deadline_seconds=WAIT_SECONDS, folder=tmp_path)
    (pid,) = pids_in(pids, 1)
    assert lives(pid)
    process.kill_group(goes_on)
    assert not lives(pid)


def test_no_command_waits_for_an_orphan_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command run by `sudo` may leave such a process if we are not root."""
    pids = tmp_path / "pids"
    pids.touch()
    kill = os.kill

    def refused(pid: int, number: int) -> None:
        if str(pid) in pids.read_text("utf-8").split():
            raise PermissionError
        kill(pid, number)

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refused)
        patched.setattr(process_tree, "KILL_SECONDS", 600.0)
        process.run(["sh", "-c", daemons("setsid")], deadline_seconds=WAIT_SECONDS, folder=tmp_path)
    (pid,) = pids_in(pids, 1)
    assert lives(pid)
    process.run(["true"], deadline_seconds=WAIT_SECONDS)
    kill(pid, signal.SIGKILL)


SUPERVISED = """
import os, sys, time
from harness.core.processes import process, supervisor
def command():
    process.stop_on_signals()
    try:
        process.start(["sh", "-c", {script!r} + "; exec sleep {sleep}"])
        while not os.path.exists({go!r}):
            time.sleep(0.02)
        sys.exit(5)
    except KeyboardInterrupt:
        sys.exit(2)
os._exit(supervisor.supervise(command))
"""


@pytest.mark.parametrize(
    ("killed", "death", "code"),
    [
        ("nobody", None, 5),
        ("both", signal.SIGINT, 2),
        ("supervisor", signal.SIGTERM, 2),
        ("supervisor", signal.SIGKILL, -signal.SIGKILL),
        ("command", signal.SIGTERM, 2),
        ("command", signal.SIGKILL, 7),
        ("command", signal.SIGSEGV, 3),
    ],
)
def test_however_a_command_ends_nothing_survives(
    tmp_path: Path, killed: str, death: signal.Signals | None, code: int
) -> None:
    pids, go = tmp_path / "pids", tmp_path / "go"
    pids.touch()
    text = SUPERVISED.format(script=daemons(), sleep=SLEEP, go=str(go))
    with subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path, stderr=subprocess.DEVNULL) as supervisor:
        try:
            ours = pids_in(pids, len(WAYS))
            (command,) = psutil.Process(supervisor.pid).children()
            below = [one.pid for one in command.children(recursive=True)]
            if killed == "nobody":
                go.touch()
            if killed in {"both", "supervisor"}:
                supervisor.send_signal(death or 0)
            if killed in {"both", "command"}:
                command.send_signal(death)
            assert supervisor.wait(3 * WAIT_SECONDS) == code
            if death != signal.SIGKILL or killed == "command":
                left = [pid for pid in [*ours, *below, command.pid] if lives(pid)]
                assert left == [], "processes survived the command"
            assert all_gone([*ours, *below, command.pid])
        finally:
            supervisor.kill()


def test_killing_supervisor_and_command_together_leaves_no_marked_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    marked = ("setsid", "forked twice")
    text = SUPERVISED.format(script=daemons(*marked), sleep=SLEEP, go=str(tmp_path / "go"))
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as supervisor:
        ours = pids_in(pids, len(marked))
        os.killpg(supervisor.pid, signal.SIGKILL)
        assert all_gone(ours)


def test_a_killed_watchdog_is_replaced_and_its_successor_knows_all_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    text = f"""
import os, signal, time
from harness.core.processes import process
first = process.start(["sh", "-c", "echo $$ >>pids; exec sleep {SLEEP}"])
watchdog = process._REGISTRY._watchdog
os.kill(watchdog.pid, signal.SIGKILL)
watchdog.wait()
second = process.start(["sh", "-c", "echo $$ >>pids; exec sleep {SLEEP}"])
watchdog = process._REGISTRY._watchdog
os.kill(watchdog.pid, signal.SIGKILL)
os.waitid(os.P_PID, watchdog.pid, os.WEXITED | os.WNOWAIT)
while open("pids").read().count("\\n") < 2:
    time.sleep(0.01)
process.kill_group(second)
open("pids.told", "w").close()
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path, stderr=subprocess.PIPE) as harness:
        try:
            ours = pids_in(pids, 2)
            assert eventually((tmp_path / "pids.told").exists), "writing to a killed watchdog ended the harness"
            harness.kill()
            assert all_gone(ours)
        finally:
            harness.kill()


@pytest.mark.parametrize(
    "signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGQUIT], [signal.SIGINT] * 6]
)
def test_a_signal_during_start_and_every_later_one_is_a_silent_exit_2(
    signals: list[signal.Signals],
) -> None:
    command = [sys.executable, "-m", "harness.cli", "list", "servers"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as plumb:
        try:
            # The command has begun its imports.
            assert eventually(lambda: bool(psutil.Process(plumb.pid).children()))
            for number in signals:
                with contextlib.suppress(psutil.NoSuchProcess):
                    # Ctrl-C in a terminal sends the signal to both.
                    for one in (psutil.Process(plumb.pid), *psutil.Process(plumb.pid).children()):
                        one.send_signal(number)
            _, errors = plumb.communicate(timeout=3 * WAIT_SECONDS)
        finally:
            plumb.kill()
    assert (plumb.returncode, errors) == (ExitCode.INTERRUPTED, f"{INTERRUPTED}\n")


INTERRUPTED_COMMANDS = {
    "inside eval, as imports are by namedtuple": """
import os, signal, time
from harness.cli import console_script
from harness.core.processes import process
def command(words):
    process.stop_on_signals()
    eval("os.kill(os.getpid(), signal.SIGINT) or time.sleep(9)")
console_script._command = command
console_script.main()
""",
    "inside the creation of a class, whose errors Python 3.11 wraps": """
import os, signal, time
from harness.cli import commands, console_script
class Interrupted:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
commands.import_module = lambda name: type("Module", (), {"inventory": Interrupted()})
console_script.main()
""",
    "where Python ignores exceptions": """
import os, signal, time
from harness.cli import commands, console_script
class Collected:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
import_module = commands.import_module
def imported(name):
    Collected()
    return import_module(name)
commands.import_module = imported
console_script.main()
""",
    "while click looks a command up": """
import os, signal, time
from harness.cli import commands, console_script
def interrupted(name):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)
commands.import_module = interrupted
console_script.main()
""",
}


@pytest.mark.parametrize("text", INTERRUPTED_COMMANDS.values(), ids=INTERRUPTED_COMMANDS)
def test_a_signal_anywhere_in_a_command_is_reported_once(tmp_path: Path, text: str) -> None:
    fakes.write(tmp_path / "interrupted.py", text)
    words = [sys.executable, "-m", "interrupted", "list", "servers"]
    # With the user's cache, the command might print a message about the cache's limit.
    where = {**os.environ, "PYTHONPATH": str(ROOT), "PLUMBLINE_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run(
        words, cwd=tmp_path, env=where, capture_output=True, encoding="utf-8", timeout=WAIT_SECONDS * 3, check=False
    )
    assert (ended.returncode, ended.stderr) == (ExitCode.INTERRUPTED, f"{INTERRUPTED}\n")


HANGS = """
import os, signal, time
from harness.core.processes import process, process_tree, supervisor
def command():
    {first}
    try:
        # Within: the signal may come at once.
        open({there!r}, "w").close()
        time.sleep(600)
    except KeyboardInterrupt:
        time.sleep(600)
supervisor.GRACE_SECONDS = {grace}
supervisor.AGAIN_SECONDS = {again}
os._exit(supervisor.supervise(command))
"""


@contextlib.contextmanager
def hanging(
    there: Path, first: str, *, grace: float = 600, again: float = AGAIN_SECONDS
) -> Iterator[subprocess.Popen[str]]:
    text = HANGS.format(first=first, there=str(there), grace=grace, again=again)
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stderr=subprocess.PIPE, encoding="utf-8") as plumb:
        try:
            assert eventually(there.exists)
            yield plumb
        finally:
            plumb.kill()


def still_runs(plumb: subprocess.Popen[str]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        plumb.wait(1)
    return plumb.poll() is None


def test_a_second_signal_does_not_wait_for_a_hanging_command(tmp_path: Path) -> None:
    with hanging(tmp_path / "there", "process.stop_on_signals()") as plumb:
        plumb.send_signal(signal.SIGINT)
        assert still_runs(plumb)

        def ended_when_asked_again() -> bool:
            plumb.send_signal(signal.SIGINT)
            return plumb.poll() is not None

        assert eventually(ended_when_asked_again)
        _, errors = plumb.communicate(timeout=3 * WAIT_SECONDS)
    assert (plumb.returncode, errors) == (ExitCode.INTERRUPTED, f"{INTERRUPTED}\n")


def test_a_second_signal_soon_after_the_first_is_the_same_request(tmp_path: Path) -> None:
    with hanging(tmp_path / "there", "process.stop_on_signals()", again=600) as plumb:
        for _ in range(2):
            plumb.send_signal(signal.SIGTERM)
            assert still_runs(plumb)


def test_a_command_without_a_supervisor_tells_nobody_that_it_stops() -> None:
    tell_begun()


def test_a_command_that_blocks_signals_is_killed_after_a_grace_period(tmp_path: Path) -> None:
    deaf = "signal.pthread_sigmask(signal.SIG_BLOCK, process_tree.STOPPING)"
    with hanging(tmp_path / "there", deaf, grace=0.5) as plumb:
        plumb.send_signal(signal.SIGTERM)
        _, errors = plumb.communicate(timeout=3 * WAIT_SECONDS)
    assert (plumb.returncode, errors) == (ExitCode.INTERRUPTED, f"{INTERRUPTED}\n")


@pytest.mark.parametrize(
    ("number", "ended"),
    [
        (signal.SIGUSR2, (ExitCode.INTERRUPTED, f"SIGUSR2 ended plumb; {STOPPED}\n")),
        (signal.SIGRTMIN + 3, (ExitCode.INTERRUPTED, f"signal {signal.SIGRTMIN + 3} ended plumb; {STOPPED}\n")),
        (
            signal.SIGXCPU,
            (ExitCode.INFRASTRUCTURE, "error: plumb reached a limit on processor time\n  try: ulimit -t unlimited\n"),
        ),
        (signal.SIGSEGV, (ExitCode.HARNESS_BUG, "error: a bug in Plumbline: SIGSEGV ended it\n")),
    ],
)
def test_a_signal_from_outside_is_not_a_bug(tmp_path: Path, number: int, ended: tuple[ExitCode, str]) -> None:
    with hanging(tmp_path / "there", "process.stop_on_signals()") as plumb:
        (command,) = psutil.Process(plumb.pid).children()
        command.send_signal(number)
        _, errors = plumb.communicate(timeout=3 * WAIT_SECONDS)
    assert (plumb.returncode, errors) == ended


FAILING = {
    "without memory for its error": ("console_script._command", "MemoryError()", ExitCode.INFRASTRUCTURE),
    "with a bug in its last steps": ("console_script._command", "RuntimeError()", ExitCode.HARNESS_BUG),
    "without a process": ("os.fork", "BlockingIOError(11, 'unavailable')", ExitCode.INFRASTRUCTURE),
}


@pytest.mark.parametrize(("place", "error", "code"), FAILING.values(), ids=FAILING)
def test_a_command_that_cannot_report_its_error_has_not_the_status_of_findings(
    tmp_path: Path, place: str, error: str, code: ExitCode
) -> None:
    """Regression: under limits on memory and processes the status was Python's own, 1."""
    text = f"""
import os
from harness.cli import console_script
def fails(*words):
    raise {error}
{place} = fails
console_script.main()
"""
    fakes.write(tmp_path / "failing.py", text)
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "failing", "list", "servers"]
    ended = subprocess.run(words, cwd=tmp_path, env=where, capture_output=True, timeout=WAIT_SECONDS * 3, check=False)
    assert ended.returncode == code, ended.stderr


def test_a_kill_under_a_limit_on_processor_time_names_the_limit() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))"
    text = f"{limit}\nimport os\nfrom harness.core.processes import supervisor\ndef command():\n    while True: pass\n"
    words = [sys.executable, "-c", f"{text}os._exit(supervisor.supervise(command))"]
    ended = subprocess.run(
        words, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=WAIT_SECONDS * 3, check=False
    )
    assert ended.returncode == ExitCode.INFRASTRUCTURE
    assert "because: its processor time is limited, or the machine ran out of memory" in ended.stderr


def test_ctrl_c_does_not_end_a_command_that_handles_it(tmp_path: Path) -> None:
    """For example gdb in `plumb shell`, however often the user presses Ctrl-C."""
    own_use = "signal.signal(signal.SIGINT, lambda *_: None)"
    with hanging(tmp_path / "there", own_use, grace=0.5) as plumb:
        for _ in range(3):
            plumb.send_signal(signal.SIGINT)
            assert still_runs(plumb)


def test_too_low_a_limit_on_open_files_is_reported_before_a_server_is_blamed() -> None:
    text = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from harness.core.processes import process
process.run(["true"], deadline_seconds=10)
"""
    ended = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert f"the limit on open files is 200, but {leftovers.FILES_FLOOR} are needed" in ended.stderr


def test_a_watchdog_that_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(InfrastructureError, match="cannot start the process watchdog"):
        leftovers.ProcessRegistry().start(lambda _: pytest.fail("it was started without a watchdog"))


def test_a_new_watchdog_without_a_token_is_not_taken_for_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    watchdogs: list[subprocess.Popen[bytes]] = []

    def without_an_environment(self: leftovers.ProcessRegistry) -> None:
        watchdogs.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True, env={}, bufsize=0))
        self._watchdog = watchdogs[-1]

    monkeypatch.setattr(leftovers.ProcessRegistry, "_start_watchdog", without_an_environment)
    registry = leftovers.ProcessRegistry()
    ended = registry.start(lambda _: subprocess.Popen(["true"], start_new_session=True))
    ended.wait()
    watchdogs[0].kill()
    os.waitid(os.P_PID, watchdogs[0].pid, os.WEXITED | os.WNOWAIT)
    registry.release(ended.pid)
    try:
        assert watchdogs[1].poll() is None, "the harness killed its own watchdog"
    finally:
        watchdogs[1].communicate()


def test_the_processes_of_the_machine_are_listed_with_their_parents() -> None:
    with subprocess.Popen(["sh", "-c", f"sleep {SLEEP} & wait"], start_new_session=True) as parent:
        try:
            assert eventually(lambda: len(process_tree.below(parent.pid, process_tree.processes())) == 1)
            table = process_tree.processes(since=parent.pid)
            (child,) = process_tree.below(parent.pid, table)
            assert (table[parent.pid].parent, child.parent, child.session) == (os.getpid(), parent.pid, parent.pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
