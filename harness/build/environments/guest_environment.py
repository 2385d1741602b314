"""The environments of emulated programs, by name on the command line: conditions other than the machine.

`musl-stack` gives threads the stacks that musl gives them, whichever C library the programs have. `debian-service`
kills programs at a system call that Debian's service of Redis may not make. Neither changes the programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build import toolchain
from harness.build.environments import system_call_filter
from harness.build.helper_program import compiled
from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.cache import Cache
    from harness.core.model import Flavour, GuestEnvironment
    from harness.core.target_model import Target, Toolchain

THREAD_STACK = ROOT / "toolchains" / "environments" / "thread_stack.c"


def check_supported(environment: GuestEnvironment, target: Target, tools: Toolchain, flavour: Flavour) -> None:
    """Raise UsageError for an environment that a target's programs cannot have."""
    if environment == "usual" or not (why := _why_not(environment, target, tools, flavour)):
        return
    raise UsageError(
        f"environment '{environment}' is not available on {target.name}",
        where="--environment",
        because=why,
        remedy="leave out the target or the option",
    )


def _why_not(environment: GuestEnvironment, target: Target, tools: Toolchain, flavour: Flavour) -> str:
    if target.emulator.runs_here:
        return "its programs run directly on the host, and the oracle is one of them"
    if target.emulator.is_elsewhere:
        return "it is a machine with its own kernel; the user tier emulates the same programs"
    if environment == "musl-stack":
        return ""
    if flavour == "distro":
        return "a distribution's emulator does not filter system calls"
    service = system_call_filter.read_filter()
    if tools.debian_architecture not in service.architectures:
        known = ", ".join(sorted(service.architectures))
        return f"it is the {service.unit}, which has {known}"
    return ""


def surrounded(cache: Cache, runner: Runner, tools: Toolchain, environment: GuestEnvironment) -> Runner:
    """The runner with an environment around its programs.

    Raises UsageError for one that they cannot have, and InfrastructureError when a part of it does not compile.
    """
    flavour: Flavour = "pinned" if runner.records_faults else "distro"
    check_supported(environment, runner.target, tools, flavour)
    if environment == "usual":
        return runner
    placed = msgspec.structs.replace(runner, guest_environment=environment)
    if environment == "musl-stack" and tools.is_static:
        # The programs contain musl itself.
        return placed
    if environment == "musl-stack":
        return msgspec.structs.replace(placed, preloads=(_thread_stack(cache, runner.target, tools),))
    calls = system_call_filter.placed(cache, system_call_filter.read_filter(), tools.debian_architecture)
    return msgspec.structs.replace(placed, options=[*runner.options, "-system-calls", str(calls)])


def _thread_stack(cache: Cache, target: Target, tools: Toolchain) -> Path:
    """The shared object that changes the default stack size of threads, compiled for a target."""
    return compiled(
        cache,
        tools,
        title=f"the stacks of threads for {target.name}",
        kind="environments",
        owner=target.name,
        file="thread-stack.so",
        flags=[
            *toolchain.compiler_flags(target, "O2"),
            *("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC", "-pthread"),
        ],
        sources=[THREAD_STACK],
    )
