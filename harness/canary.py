"""Canaries: accesses that must fault, and aligned twins that must not. They tell if a target's silence counts."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal

from harness import events, process, toolchain
from harness.errors import InfrastructureError
from harness.load import ROOT
from harness.model import Policy
from harness.store import Store, key_of, sha256_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.emulator import Runner
    from harness.model import Target, Toolchain

SOURCE = ROOT / "suites" / "canary" / "canary.c"
RUN_SECONDS = 5.0
ATOMIC = ("exclusive", "acquire", "release", "swap")
"""Parts of names of accesses that no kernel fixes up and no policy relaxes."""


Expected = Literal["trap", "report", "done"]


def expectations(target: Target, policy: Policy) -> list[tuple[str, Expected]]:
    """(canary as `load-word@1`, what it must do) for a target under a policy, each trap with its aligned twin."""
    trap, allowed = target.canaries.trap, target.canaries.allowed
    reported: list[str] = []
    if policy is Policy.FIXUP:
        plain = [name for name in trap if not any(word in name for word in ATOMIC)]
        trap, allowed = [], [*plain, *allowed]
    elif policy is Policy.AUDIT:
        trap, reported = [], trap
    elif policy is Policy.STRICT:
        # Whatever the architecture allows below the access's size must trap now: word and halfword show it.
        trap = [*trap, *(name for name in allowed if name.endswith("@1") and "pair" not in name)]
        allowed = []
    twins = sorted({name.split("@")[0] + "@0" for name in [*trap, *reported, *allowed]})
    expected: list[tuple[str, Expected]] = [(name, "trap") for name in trap]
    expected += [(name, "report") for name in reported]
    return expected + [(name, "done") for name in [*allowed, *twins]]


def compile_canary(store: Store, target: Target, tools: Toolchain) -> Path:
    """The canary program for a target. Raises InfrastructureError when it does not compile."""
    compiler = toolchain.tool(tools, "gcc")
    flags = [*target.compiler_flags, "-O1", "-g", "-Wall", "-Werror", "-std=gnu11"]

    def compile_into(into: Path) -> None:
        result = process.run([compiler, str(SOURCE), *flags, "-o", str(into / "canary")], deadline_seconds=120)
        if result.code != 0:
            raise InfrastructureError(
                f"the canary does not compile for {target.name}", where=str(SOURCE), because=result.text.strip()
            )

    key = key_of([sha256_of(SOURCE), toolchain.version(compiler), *flags])
    return store.folder("canaries", f"{target.name}-{key}", compile_into) / "canary"


def outcome(program: Path, runner: Runner, name: str, fault_log: Path) -> str:
    """What an access did: `trap` (SIGBUS), `report` (done, and in the log), `done`, `wrong bytes`, or its other end."""
    access, offset = name.split("@")
    result = process.run(
        runner.command(program, [access, offset], fault_log),
        deadline_seconds=RUN_SECONDS * max(1.0, runner.target.slowdown / 3),
    )
    if result.expired:
        return "ran for ever"
    done = "report" if any(fault.event == "access" for fault in events.read_faults(fault_log)) else "done"
    known = {0: done, 3: "wrong bytes: " + result.text.strip(), -signal.SIGBUS: "trap"}
    return known.get(result.code, f"exit status {result.code}: {result.text.strip()}")
