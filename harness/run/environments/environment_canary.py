"""The canary of environments: actions that must kill a program there, actions that must not, and the record that proves
the cause.

In an environment without effect, a check would pass a server that cannot run in the real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.processes import process
from harness.record import fault_log
from harness.run.servers.endings import describe_exit

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.cache import Cache
    from harness.core.model import GuestEnvironment
    from harness.core.target_model import Toolchain

SOURCE = Path(__file__).with_suffix(".c")
RUN_SECONDS = 5.0
LIVED = "lived"
CASES = ("stack 100", "stack 200", "allowed", "forbidden", "handled", "thread", "child")
"""The program's arguments: KiB of a thread's stack, or a system call, made directly or by a handler, a thread or a
child.
"""
FORBIDDEN = "sched_setaffinity"
"""A call of systemd's group @resources, which Debian's service may not use."""
_KILLED: dict[GuestEnvironment, dict[str, str]] = {
    "usual": {},
    "musl-stack": {"stack 200": "killed by SIGSEGV"},
    "debian-service": dict.fromkeys(("forbidden", "handled", "thread", "child"), f"killed by SIGSYS at {FORBIDDEN}"),
}


def expectations(environment: GuestEnvironment) -> list[tuple[str, str]]:
    """Each case with its required result."""
    return [(case, _KILLED[environment].get(case, LIVED)) for case in CASES]


def compile_environment_canary(cache: Cache, runner: Runner, tools: Toolchain) -> Path | None:
    """Compile the program as servers are compiled; None in the usual environment.

    Raises InfrastructureError when it does not compile.
    """
    if runner.guest_environment == "usual":
        return None
    return compiled_canary(cache, runner, tools)


def compiled_canary(cache: Cache, runner: Runner, tools: Toolchain) -> Path:
    """The program, for any environment."""
    # Optimised, the recursion would become a loop that uses no stack.
    flags = [*toolchain.compiler_flags(runner.target, "O0"), "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-pthread"]
    return compiled(
        cache,
        tools,
        title=f"the environment's canary for {runner.target.name}",
        kind="canaries",
        owner=f"{runner.target.name}-environment",
        file="environment",
        flags=flags,
        sources=[SOURCE],
    )


def outcome(program: Path, runner: Runner, case: str, log: Path) -> str:
    """The result of a case: `LIVED`, the signal with the recorded system call, or how else the program ended.

    `log`: a new file for the emulator's records.
    """
    result = process.run(
        runner.command(program, case.split(" "), log),
        deadline_seconds=runner.target.deadline_seconds(RUN_SECONDS),
        environment={**process.PLAIN_ENVIRONMENT, **runner.environment},
    )
    if result.expired:
        return "ran for ever"
    if result.code == 0:
        return LIVED
    ended = describe_exit(result.code).detail
    if not runner.records_faults:
        return ended
    recorded = {fault_log.signal_name(fault.signal): fault.call for fault in fault_log.read_faults(log)}
    name = ended.removeprefix("killed by ")
    if name not in recorded:
        return f"{ended}, which was not recorded"
    return f"{ended} at {recorded[name]}" if recorded[name] else ended


def misbehaviour(program: Path, runner: Runner, folder: Path) -> str:
    """The first case whose result is not the required one; empty if there is none. `folder` receives the records."""
    for number, (case, expected) in enumerate(expectations(runner.guest_environment)):
        if (actual := outcome(program, runner, case, folder / f"environment-{number}.jsonl")) != expected:
            return f"in the environment {runner.guest_environment} its canary '{case}' {actual}, where it is {expected}"
    return ""
