"""Only one module starts processes. Each is killed with its whole group, at its deadline or when the harness ends."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.core.errors import InfrastructureError
from harness.core.processes import process, process_tree, scheduling
from harness.core.strict_toml import ROOT
from tests.support.survivors import SLEEP, WAIT_SECONDS, eventually, lives, pids_in

pytestmark = pytest.mark.costly


def test_output_of_both_streams_is_returned_with_the_exit_status() -> None:
    result = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], deadline_seconds=10)
    assert (result.code, result.text, result.expired) == (3, "out\nerr\n", False)


def test_a_long_wait_calls_its_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WATCH_SECONDS", 0.02)
    calls: list[int] = []
    result = process.run(["sleep", "0.5"], deadline_seconds=10, watch=lambda: calls.append(1))
    assert (result.code, result.expired) == (0, False)
    assert len(calls) > 2
    assert process.run(["sleep", SLEEP], deadline_seconds=0.1, watch=lambda: None).expired


def test_output_that_is_not_text_is_escaped_not_lost() -> None:
    result = process.run(["printf", "a\\377b"], deadline_seconds=10)
    assert (result.output, result.text) == (b"a\xffb", "a\\xffb")


def test_a_command_is_a_list_and_no_shell_reads_it() -> None:
    assert "$(id) ; *\n" == process.run(["echo", "$(id) ; *"], deadline_seconds=10).text  # noqa: SIM300


def test_a_program_ended_by_a_signal_has_its_negative_number() -> None:
    assert process.run(["sh", "-c", "kill -SEGV $$"], deadline_seconds=10).code == -signal.SIGSEGV


def test_the_log_is_headed_by_the_command_and_keeps_the_output_of_every_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = process.run(["echo", "two words"], deadline_seconds=10, log=log)
    second = process.run(["echo", "again"], deadline_seconds=10, log=log)
    process.run(["true", os.fsdecode(b"not UTF-8: \xe9")], deadline_seconds=10, log=log)
    headed = "$ echo 'two words'\ntwo words\n$ echo again\nagain\n"
    assert log.read_text("utf-8") == headed + "$ true 'not UTF-8: \\xe9'\n"
    assert (first.text, second.text) == ("two words\n", "again\n")


def test_a_program_under_test_does_not_see_the_callers_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    monkeypatch.setenv("REDIS_SECRET", "1")
    text = process.run(["env"], deadline_seconds=10).text
    assert "LC_ALL=C\n" in text
    assert "REDIS_SECRET" not in text


def test_only_a_program_that_asks_for_it_gets_fixed_addresses() -> None:
    permits = process.run(["setarch", "--addr-no-randomize", "true"], deadline_seconds=10).code == 0

    def personality(*, steady: bool = False) -> int:
        asked = process.run(["cat", "/proc/self/personality"], deadline_seconds=10, steady_addresses=steady)
        return int(asked.text, 16)

    before = personality()
    assert personality(steady=True) == before | (process_tree.ADDR_NO_RANDOMIZE if permits else 0)
    assert personality() == before
    with ThreadPoolExecutor(1) as other_thread:
        assert other_thread.submit(personality).result() == before
        with process_tree.steady_addresses():
            assert other_thread.submit(personality).result() == before


def test_a_missing_program_is_an_infrastructure_error_that_names_it() -> None:
    with pytest.raises(InfrastructureError) as caught:
        process.run(["plumbline-no-such-program"], deadline_seconds=1)
    assert "cannot start plumbline-no-such-program" in str(caught.value)
    assert "try: " in str(caught.value)


def test_a_command_that_has_to_succeed_raises_its_last_words_and_names_its_log(tmp_path: Path) -> None:
    noisy = ["sh", "-c", "seq 9; exit 3"]
    with pytest.raises(InfrastructureError) as caught:
        process.run_successfully(noisy, problem="it fails", deadline_seconds=WAIT_SECONDS, remedy="try more")
    assert caught.value.because == "\n".join("123456789")
    log = tmp_path / "log"
    with pytest.raises(InfrastructureError) as caught:
        process.run_successfully(noisy, problem="it fails", deadline_seconds=WAIT_SECONDS, log=log)
    assert (caught.value.what, caught.value.because) == ("it fails", "\n".join("56789"))
    assert caught.value.log == str(log)
    assert process.run_successfully(["true"], problem="", deadline_seconds=WAIT_SECONDS).code == 0


def test_a_command_that_has_to_succeed_has_a_deadline() -> None:
    with pytest.raises(InfrastructureError, match="it hangs") as caught:
        process.run_successfully(["sleep", SLEEP], problem="it hangs", deadline_seconds=0.2)
    assert "did not end within 0.2 s" in caught.value.because


def test_the_deadline_kills_the_whole_group_grandchildren_included(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"(sleep {SLEEP} & echo $! >>pids; exec sleep {SLEEP}) & echo $! >>pids; echo before; wait"
    started = time.monotonic()
    result = process.run(["sh", "-c", script], deadline_seconds=0.5, folder=tmp_path)
    assert (result.expired, result.text) == (True, "before\n")
    assert time.monotonic() - started < WAIT_SECONDS
    for pid in pids_in(pids, 2):
        assert eventually(lambda pid=pid: not lives(pid)), f"process {pid} outlived the deadline"  # type: ignore[misc]


def test_background_processes_of_a_command_are_killed_when_it_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process.run(["sh", "-c", f"sleep {SLEEP} & echo $! >pids"], deadline_seconds=10, folder=tmp_path)
    (pid,) = pids_in(pids, 1)
    assert eventually(lambda: not lives(pid)), f"process {pid} outlived its command"


def test_kill_group_lets_a_program_end_by_itself_within_the_grace_period(tmp_path: Path) -> None:
    script = f"trap 'exit 5' TERM; touch ready; while :; do sleep 0.05; done # {SLEEP}"
    started = process.start(["sh", "-c", script], folder=tmp_path)
    assert eventually((tmp_path / "ready").exists)
    process.kill_group(started, grace_seconds=WAIT_SECONDS)
    assert started.returncode == 5


def test_kill_group_kills_a_program_that_ignores_the_request(tmp_path: Path) -> None:
    script = "trap '' TERM; touch ready; while :; do sleep 0.05; done"
    started = process.start(["sh", "-c", script], folder=tmp_path)
    assert eventually((tmp_path / "ready").exists)
    process.kill_group(started, grace_seconds=0.2)
    assert started.returncode == -signal.SIGKILL


# As `plumb` itself does: a shell starts its background jobs with SIGINT ignored.
HARNESS = """
import os, sys, time
from harness.core.processes import process
process.stop_on_signals()
started = process.start(["sh", "-c", "sleep {sleep} & echo $! >pids; echo $$ >>pids; wait"])
open("pids.registered", "w").close()
{then}
"""


@pytest.mark.parametrize(
    ("then", "death"),
    [
        ("time.sleep(60)", signal.SIGKILL),
        ("time.sleep(60)", signal.SIGTERM),
        ("time.sleep(60)", signal.SIGINT),
        ("time.sleep(0.5); os._exit(1)", None),
        ("time.sleep(0.5); raise SystemExit(1)", None),
    ],
    ids=["SIGKILL", "SIGTERM", "SIGINT", "os._exit", "exit"],
)
def test_no_process_survives_the_harness_however_it_dies(
    tmp_path: Path, then: str, death: signal.Signals | None
) -> None:
    pids = tmp_path / "pids"
    code = HARNESS.format(sleep=SLEEP, then=then)
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL) as harness:
        try:
            ours = pids_in(pids, 2)
            assert eventually(Path(f"{pids}.registered").exists)
            if death is not None:
                assert all(lives(pid) for pid in ours)
                harness.send_signal(death)
            harness.wait(WAIT_SECONDS)
            for pid in ours:
                assert eventually(lambda pid=pid: not lives(pid)), f"process {pid} outlived the harness"  # type: ignore[misc]
        finally:
            harness.kill()


def test_the_watchdog_ignores_invalid_lines_and_still_kills() -> None:
    with subprocess.Popen(["sleep", SLEEP], start_new_session=True) as kept:
        try:
            subprocess.run(
                [sys.executable, str(ROOT / "harness" / "core" / "processes" / "watchdog.py")],
                input=f"+{kept.pid}\nnonsense\n\n+\n".encode(),
                stderr=subprocess.DEVNULL,
                timeout=WAIT_SECONDS,
                check=False,
            )
            assert eventually(lambda: kept.poll() is not None), "after an invalid line the watchdog no longer killed"
        finally:
            kept.kill()


def test_an_attended_program_has_our_group_and_environment_and_its_status_is_returned(tmp_path: Path) -> None:
    output = tmp_path / "said"
    code = f"import os; open({str(output)!r}, 'w').write(os.environ['WORD'] + str(os.getpgrp())); os._exit(3)"
    assert process.attend([sys.executable, "-c", code], environment={"WORD": "a"}) == 3
    assert output.read_text("utf-8") == f"a{os.getpgrp()}"
    with pytest.raises(InfrastructureError, match="cannot start absent"):
        process.attend(["absent"], environment={})


def test_ctrl_c_is_the_attended_programs_own() -> None:
    """The terminal sends the signal to the program. Plumbline ignores it meanwhile, and then handles signals again."""
    before = signal.getsignal(signal.SIGINT)
    code = f"import os, signal, sys; os.kill({os.getpid()}, signal.SIGINT); "
    kept = "sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    assert process.attend([sys.executable, "-c", code + kept], environment={}) == 0
    assert signal.getsignal(signal.SIGINT) is before


ATTENDING = """
from harness.core.processes import process
process.attend(["sh", "-c", "echo $$ >pids; exec sleep {sleep}"], environment=process.PLAIN_ENVIRONMENT)
"""


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL])
def test_an_attended_program_does_not_survive_the_harness_however_it_dies(
    tmp_path: Path, death: signal.Signals
) -> None:
    pids = tmp_path / "pids"
    code = ATTENDING.format(sleep=SLEEP)
    if death == signal.SIGTERM:
        code = "from harness.core.processes import process; process.stop_on_signals()" + code
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL) as harness:
        try:
            (pid,) = pids_in(pids, 1)
            time.sleep(0.2)
            harness.send_signal(death)
            harness.wait(WAIT_SECONDS)
            assert eventually(lambda: not lives(pid)), f"process {pid} outlived the harness"
        finally:
            harness.kill()


def test_the_watchdog_spares_a_group_that_was_released() -> None:
    with subprocess.Popen(["sleep", SLEEP], start_new_session=True) as kept:
        try:
            subprocess.run(
                [sys.executable, str(ROOT / "harness" / "core" / "processes" / "watchdog.py")],
                input=f"+{kept.pid}\n-{kept.pid}\n".encode(),
                timeout=WAIT_SECONDS,
                check=True,
            )
            assert kept.poll() is None
        finally:
            kept.kill()


SPAWNING_MODULES = {"subprocess", "multiprocessing", "pty"}
SPAWNING_CALLS = {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp"}
SPAWNERS = ROOT / "harness" / "core" / "processes"


def spawning(path: Path) -> list[str]:
    """The places where a module could start a process by itself. Imports used only by annotations are allowed."""
    text = path.read_text("utf-8")
    # A module without these words is not parsed, which would take much longer.
    if not re.search(rf"\b(?:{'|'.join(SPAWNING_MODULES | SPAWNING_CALLS)}|exec\w+|spawn\w+|shell)\b", text):
        return []
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and (node.attr in SPAWNING_CALLS or node.attr.startswith(("exec", "spawn")))
        ):
            found.append(f"{path}:{node.lineno}: os.{node.attr}")
        elif isinstance(node, ast.Call) and any(k.arg == "shell" for k in node.keywords):
            found.append(f"{path}:{node.lineno}: shell=")
        found += [f"{path}:{node.lineno}: {name}" for name in names if name in SPAWNING_MODULES]  # type: ignore[attr-defined]
    return found


def test_only_one_package_starts_processes() -> None:
    files = [*(ROOT / "harness").rglob("*.py"), *(ROOT / "suites").rglob("*.py"), ROOT / "conftest.py"]
    assert len(files) > 20
    guilty = [where for path in sorted(files) if path.parent != SPAWNERS for where in spawning(path)]
    assert guilty == []


@pytest.mark.parametrize(
    "text", ["import subprocess", "from subprocess import run", "import os\nos.fork()", "import os\nos.execv('a', [])"]
)
def test_the_search_for_spawning_finds_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(text, "utf-8")
    assert len(spawning(path)) == 1


def test_this_process_is_not_in_the_groups_of_its_children() -> None:
    started = process.start(["sleep", SLEEP])
    try:
        assert started.pid == os.getpgid(started.pid)
        assert os.getpgid(0) != started.pid
    finally:
        process.kill_group(started)


def usable_share(command: list[str]) -> float:
    """The share of two seconds during which a process was not waiting for a processor."""
    started = process.start(command)
    try:
        usable, began = scheduling.UsableTime(started.pid), time.monotonic()
        usable.SAMPLE_SECONDS = 0.05
        while time.monotonic() - began < 2:
            usable.look()
            time.sleep(0.02)
        return usable.seconds / (time.monotonic() - began)
    finally:
        process.kill_group(started)


def test_time_without_a_processor_does_not_count_towards_a_deadline() -> None:
    processor = str(min(os.sched_getaffinity(0)))
    others = [process.start(["taskset", "--cpu-list", processor, "sh", "-c", "while :; do :; done"]) for _ in range(4)]
    try:
        assert usable_share(["taskset", "--cpu-list", processor, "sh", "-c", "while :; do :; done"]) < 0.5
        assert usable_share(["sleep", SLEEP]) > 0.9, "a sleeping process needs no processor"
    finally:
        for one in others:
            process.kill_group(one)


def test_a_deadline_of_usable_time_does_not_count_waiting_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling.UsableTime, "SAMPLE_SECONDS", 0.05)
    monkeypatch.setattr(process, "WATCH_SECONDS", 0.05)
    pinned = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    others = [process.start([*pinned, "sh", "-c", "while :; do :; done"]) for _ in range(4)]
    # Like a cell's guests, the loop runs in a separate session.
    command = ["sh", "-c", f"setsid --wait {' '.join(pinned)} sh -c 'while :; do :; done'"]
    try:
        plain, usable = (process.run(command, deadline_seconds=0.5, usable=one) for one in (False, True))
        asleep = process.run(["sleep", SLEEP], deadline_seconds=0.5, usable=True)
        assert all(one.expired and one.seconds >= 0.5 for one in (plain, usable, asleep))
        # One of five processes that share a processor waits for it most of the time; a sleeping one never does.
        assert max(plain.seconds, asleep.seconds) < usable.seconds / 2
    finally:
        for one in others:
            process.kill_group(one)


def test_a_deadline_since_the_last_output_is_extended_by_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WATCH_SECONDS", 0.05)
    # The last number comes after the deadline of all, and long before that of each.
    command = ["sh", "-c", f"for i in 1 2 3 4 5 6; do sleep 0.3; echo $i; done; sleep {SLEEP}"]
    for since_output in (False, True):
        result = process.run(command, deadline_seconds=1.5, since_output=since_output)
        assert result.expired
        assert ("6" in result.text) == since_output
    ended = process.run(["sh", "-c", "sleep 0.3; echo"], deadline_seconds=WAIT_SECONDS, since_output=True)
    assert (ended.expired, ended.code) == (False, 0)


def test_waiting_for_a_processor_is_distinguished_from_running_and_sleeping() -> None:
    processor = min(os.sched_getaffinity(0))
    pinned = ["taskset", "--cpu-list", str(processor)]
    loops = [process.start([*pinned, "sh", "-c", "while :; do :; done"]) for _ in range(3)]
    sleeper = process.start(["sleep", SLEEP])
    try:
        # Each of three processes on one processor waits while another one runs.
        assert eventually(lambda: all(scheduling.waited_seconds(one.pid) > 0.1 for one in loops))
        assert scheduling.waited_seconds(sleeper.pid) < 0.1
        assert all(scheduling.ran_seconds(one.pid) > 0.01 for one in loops)
        assert scheduling.ran_seconds(sleeper.pid) < 0.05
    finally:
        for one in (*loops, sleeper):
            process.kill_group(one)
    assert scheduling.waited_seconds(loops[0].pid) == 0
    with pytest.raises(OSError, match="Invalid argument"):
        scheduling.ran_seconds(loops[0].pid)


def test_a_thread_that_sleeps_again_and_again_is_distinguished_from_one_that_waits() -> None:
    times, done = 50, threading.Event()
    waiting = threading.Thread(target=done.wait)
    waiting.start()
    before = scheduling.sleeps(os.getpid())
    for _ in range(times):
        time.sleep(0.001)
    after = scheduling.sleeps(os.getpid())
    done.set()
    waiting.join()
    me, other = threading.get_native_id(), waiting.native_id
    assert other is not None
    assert after[me] - before[me] >= times
    assert after[other] - before[other] < times


def test_a_process_that_does_nothing_is_distinguished_from_one_that_runs() -> None:
    loop, sleeper = process.start(["sh", "-c", "while :; do :; done"]), process.start(["sleep", SLEEP])
    try:
        stillness = {one.pid: scheduling.Stillness(one.pid) for one in (loop, sleeper)}
        assert eventually(lambda: stillness[sleeper.pid].look() > 1)
        assert stillness[loop.pid].look() < 1
    finally:
        for one in (loop, sleeper):
            process.kill_group(one)


def test_the_running_time_of_threads_is_added_and_sleep_is_not() -> None:
    before, began = scheduling.ran_seconds(os.getpid()), time.process_time()
    hashing = [threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha1", b"", b"", 600_000)) for _ in range(2)]
    for one in hashing:
        one.start()
    assert eventually(lambda: time.process_time() - began > 0.1)
    ran, used = scheduling.ran_seconds(os.getpid()) - before, time.process_time() - began
    for one in hashing:
        one.join()
    assert ran == pytest.approx(used, abs=0.02)


def test_a_process_may_end_while_its_waiting_time_is_read() -> None:
    for _ in range(100):
        short = subprocess.Popen(["/bin/true"])
        waiter = threading.Thread(target=short.wait)
        waiter.start()
        while waiter.is_alive():
            assert scheduling.waited_seconds(short.pid) >= 0
        waiter.join()
