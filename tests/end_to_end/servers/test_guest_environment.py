"""Environments have their documented effect on each target, and a check reports why an environment killed a server."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import ExitCode
from harness.core.processes import process
from harness.judge.reproducer import read_reproducer
from harness.record import fault_log
from harness.run import silence_check
from harness.run.environments import environment_canary
from harness.run.environments.environment_canary import FORBIDDEN, LIVED, compiled_canary, outcome
from harness.workflows.replay import replay as replays
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.model import GuestEnvironment

pytestmark = pytest.mark.end_to_end

PLACES = [
    *(("musl-stack", name) for name in machines.REQUIRED),
    *(machines.beyond("musl-stack", name) for name in machines.OTHERS),
    *(("debian-service", name) for name in ("armv5", "armv7", "aarch64")),
    *(machines.beyond("debian-service", name) for name in ("s390x", "mipsel", "mips64el", "powerpc64le")),
]
CHECK = ("check", "--target", "armv5", "--suite", "persistence", "--test", "synchronised_meanwhile", "--seed", 1)


def runner_in(target: str, environment: GuestEnvironment) -> Runner:
    return machines.set_up((target,))[target].runner("signal", environment)


def canary_on(target: str) -> Path:
    setup = machines.set_up((target,))[target]
    return compiled_canary(setup.bench.cache, setup.runner("signal"), setup.toolchain)


@pytest.mark.parametrize(("environment", "target"), PLACES)
def test_a_program_that_an_environment_must_kill_dies_only_there(
    environment: GuestEnvironment, target: str, tmp_path: Path
) -> None:
    program = canary_on(target)
    for around in ("usual", environment):
        runner = runner_in(target, around)
        folder = tmp_path / around
        folder.mkdir()
        outcomes = {
            case: outcome(program, runner, case, folder / f"{number}.jsonl")
            for number, case in enumerate(environment_canary.CASES)
        }
        assert outcomes == dict(environment_canary.expectations(around)), around


@pytest.mark.parametrize("target", ["armv5", "aarch64"])
def test_a_thread_has_the_128_kib_that_musl_gives_it(target: str, tmp_path: Path) -> None:
    program, runner = canary_on(target), runner_in(target, "musl-stack")
    most = max(k for k in range(100, 160, 4) if outcome(program, runner, f"stack {k}", tmp_path / str(k)) == LIVED)
    assert 112 <= most <= 132, "the canary's own calls use a part of the stack"


def test_the_record_of_a_forbidden_call_has_its_number_and_its_call_chain(tmp_path: Path) -> None:
    log = tmp_path / fault_log.NAME
    fault_log.open_ledger(log)
    result = process.run(
        runner_in("armv5", "debian-service").command(canary_on("armv5"), ["handled"], log), deadline_seconds=60
    )
    assert result.code == -signal.SIGSYS, result.text
    found = fault_log.read(log)
    (fault,) = found.faults
    assert (fault.call, fault.call_number, fault.handled, found.damage) == (FORBIDDEN, 241, False, [])
    assert len(fault.stack) > 200
    (end,) = found.ends.values()
    assert (end.signal, end.pid) == (signal.SIGSYS, fault.pid)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("3 read\n", "line 1 of"),
        ("3 read allow\n3 read kill\n", "line 2 of"),
        ("x read allow\n", "line 1 of"),
        ("3 read perhaps\n", "line 1 of"),
        (None, "No such file"),
    ],
)
def test_a_damaged_filter_is_refused(content: str | None, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "system-calls"
    if content is not None:
        path.write_text(content, "ascii")
    runner = machines.set_up(("armv5",))["armv5"].runner("signal")
    runner = msgspec.structs.replace(runner, options=[*runner.options, "-system-calls", str(path)])
    result = process.run(runner.command(canary_on("armv5"), ["allowed"]), deadline_seconds=60)
    assert (result.code, "-system-calls: " in result.text) == (1, True), result.text
    assert complaint in result.text


def test_an_unknown_call_kills_the_process_and_has_no_name(tmp_path: Path) -> None:
    calls = tmp_path / "system-calls"
    allowed = [f"{number} call{number} allow" for number in range(1000) if number != 241]
    calls.write_text("\n".join(allowed) + "\n", "ascii")
    runner = machines.set_up(("armv5",))["armv5"].runner("signal")
    runner = msgspec.structs.replace(runner, options=[*runner.options, "-system-calls", str(calls)])
    result = process.run(runner.command(canary_on("armv5"), ["forbidden"], tmp_path / "log"), deadline_seconds=60)
    assert result.code == -signal.SIGSYS, result.text
    assert [(fault.call, fault.call_number) for fault in fault_log.read_faults(tmp_path / "log")] == [("", 241)]


@pytest.mark.parametrize("environment", ["musl-stack", "debian-service"])
def test_a_replay_rejects_an_environment_without_effect(environment: GuestEnvironment, tmp_path: Path) -> None:
    setup, runner = machines.set_up(("armv5",))["armv5"], runner_in("armv5", environment)
    cache, tools = setup.bench.cache, setup.toolchain
    assert silence_check.why_blind(cache, runner, tools, tmp_path, None) == ""
    idle = msgspec.structs.replace(setup.runner("signal"), guest_environment=environment)
    assert f"in the environment {environment} its canary" in silence_check.why_blind(cache, idle, tools, tmp_path, None)


@pytest.mark.slow(instead="the canaries' test of test_guest_environment.py; test_replay.py")
def test_a_long_save_dies_in_debians_service_on_32_bit_arm_and_its_replay_does(tmp_path: Path) -> None:
    """redis#13671."""
    usual = document(run(*CHECK, "--json", "--run", tmp_path / "usual"))
    assert (usual["verdict"], usual["environment"]) == ("PASS", "usual")
    finished = run(*CHECK, "--json", "--environment", "debian-service", "--run", tmp_path / "service")
    read = document(finished)
    assert (finished.returncode, read["environment"]) == (ExitCode.FINDINGS, "debian-service")
    finding = next(one for one in read["findings"] if one["kind"] == "forbidden-call")
    assert finding["id"] == "forbidden-call-arm_sync_file_range"
    assert (finding["title"], finding["origin"]) == ("the system call arm_sync_file_range is forbidden", "kernel")
    replay = Path(shlex.split(finding["replay"])[-1])
    assert read_reproducer(str(replay)).environment == "debian-service"
    assert run("replay", replay).returncode == ExitCode.FINDINGS
    elsewhere = msgspec.structs.replace(read_reproducer(str(replay)), environment="usual")
    assert replays.replay(machines.quiet_workbench(), elsewhere, server="").outcome == "gone"
