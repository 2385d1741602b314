"""The emulator does what the model prescribes for every access of every target, at every offset, under every policy.

The tests also prove that they detect a wrong emulator: each way of breaking it makes them fail.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.emulator_cache import Emulators
from harness.build.emulators.runner import alignment_option, target_runner, with_alignment
from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.progress import Progress
from harness.isa import access_table, rules
from harness.run import canary
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.target_model import Policy, Target, Toolchain

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
AUDITS = [rules.AUDIT, rules.audit_name("strict")]
CELLS = [
    # A policy's options are the same on every machine. That each machine reads them shows under one policy.
    (name, policy)
    if name in {"armv5", "sparc64"} or (name in machines.REQUIRED and policy == "signal")
    else machines.beyond(name, policy)
    for name in [*machines.REQUIRED, *machines.OTHERS, *machines.STATIC]
    for policy in [*CATALOG.policies, *AUDITS]
    if policy in AUDITS or rules.applies(CATALOG.policies[policy], CATALOG.targets[name])
    # There the C library is a part of the program, so `strict` judges its accesses too.
    if not (name in machines.STATIC and policy in {"strict", rules.audit_name("strict")})
]

BROKEN = [
    (name, policy)
    if (name in machines.SAMPLE and policy == "signal")
    or (name, policy) in {("armv5", "fixup"), ("armv5", rules.AUDIT)}
    else machines.beyond(name, policy)
    for name in [*machines.REQUIRED, *(other for other in machines.OTHERS if other != "m68k")]
    for policy in ("signal", "fixup", "warn", "strict", rules.AUDIT)
]


@cache
def emulators_of(group: tuple[str, ...]) -> dict[str, Path]:
    """The emulators of several targets, built together if they are not in the cache."""
    kept = Cache.default()
    return Emulators(kept, Fetcher(kept, Progress()), Progress()).prepare(
        [CATALOG.targets[one].emulator for one in group]
    )


@cache
def canary_of(name: str) -> tuple[Path, Toolchain]:
    tools = machines.toolchain_of(name)
    return canary.compile_canary(Cache.default(), CATALOG.targets[name], tools), tools


def prepared(name: str, policy: Policy) -> tuple[Path, Runner, str]:
    groups = (machines.REQUIRED, machines.OTHERS, machines.STATIC)
    programs = emulators_of(tuple(next(group for group in groups if name in group)))
    program, tools = canary_of(name)
    return program, target_runner(Cache.default(), CATALOG.targets[name], tools, policy, programs), tools.prefix


def disagreements(program: Path, runner: Runner, triple: str, log: Path) -> list[str]:
    """The deviations from the runner's policy, whatever options the emulator really got."""
    try:
        performed = canary.performed(program, runner, log, triple)
    except InfrastructureError as error:
        return [str(error)]
    return [
        f"{case.access.name}: {wrong}"
        for case in canary.cases(runner)
        for wrong in canary.disagreements(case, performed, runner)
    ]


@pytest.mark.parametrize(("name", "policy"), CELLS)
def test_the_emulator_does_what_is_prescribed(name: str, policy: str, tmp_path: Path) -> None:
    chosen = rules.policy_for(CATALOG.policies, policy, CATALOG.targets[name])
    program, runner, triple = prepared(name, chosen)
    assert disagreements(program, runner, triple, tmp_path / "faults.jsonl") == []


def broken(prescribed: Policy, target: Target, runner: Runner) -> list[Policy]:
    """Variants of a policy with one change each, all of which have an effect on the target."""
    change = msgspec.structs.replace
    concerned = {
        case.access.access_class
        for case in canary.cases(runner)
        for offset in canary.offsets(case.access)
        if rules.forbidden(target, prescribed, rules.shape(case.access, offset))
    }
    assert concerned, f"{target.name}: {prescribed.name} forbids nothing"
    wrong = [change(prescribed, demand="none")]
    wrong += [change(prescribed, fixup=tuple({*prescribed.fixup} ^ {one}), ignore=()) for one in sorted(concerned)]
    return [*wrong, change(prescribed, report=False)] if prescribed.report else wrong


@pytest.mark.parametrize(("name", "policy"), BROKEN)
def test_an_emulator_with_one_wrong_option_is_detected(name: str, policy: str, tmp_path: Path) -> None:
    target = CATALOG.targets[name]
    prescribed = rules.policy_for(CATALOG.policies, policy, target)
    program, runner, triple = prepared(name, prescribed)
    for number, wrong in enumerate(broken(prescribed, target, runner)):
        sabotaged = msgspec.structs.replace(runner, options=with_alignment(runner.options, wrong))
        found = disagreements(program, sabotaged, triple, tmp_path / f"{number}.jsonl")
        assert found, f"'{alignment_option(wrong)}' instead of '{alignment_option(prescribed)}' was not detected"


@pytest.mark.parametrize("name", machines.TESTED)
def test_every_access_that_must_raise_a_signal_kills_a_process_without_a_handler(name: str) -> None:
    target = CATALOG.targets[name]
    program, runner, _ = prepared(name, CATALOG.policies["signal"])
    cases = canary.cases(runner)
    every = {case.access.name for case in cases if "signal" in case.prescribed}
    due = rules.signal_of(target).name
    assert canary.deaths(canary.emulated(program, runner), cases) == dict.fromkeys(every, due)
    options = with_alignment(runner.options, CATALOG.policies["unchecked"])
    harmless = msgspec.structs.replace(runner, options=options)
    assert set(canary.deaths(canary.emulated(program, harmless), cases).values()) <= {"lived"}


def test_the_program_reports_each_access_immediately() -> None:
    """Each line restarts the deadline. A socket of this kind preserves the boundaries of writes."""
    target = CATALOG.targets["armv5"]
    program, runner, _ = prepared("armv5", CATALOG.policies["signal"])
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        started = process.start(runner.command(program, ["all"]), output=its.fileno())
        its.close()
        ours.settimeout(60)
        parts = [part.decode() for part in iter(lambda: ours.recv(1 << 16), b"")]
        process.kill_group(started)
    assert [part.split(" ")[0] for part in parts] == [one.name for one in access_table.of_target(target).accesses]
    assert {len(part.splitlines()) for part in parts} == {16}


def test_solaris_8i_and_8s_differ_as_documented(tmp_path: Path) -> None:
    """-xmemalign=8i repairs and continues, 8s raises SIGBUS (Sun Studio 12 C User's Guide, B.2.111)."""
    outcomes = {}
    for policy in ("solaris-8i", "solaris-8s"):
        chosen = rules.policy_for(CATALOG.policies, policy, CATALOG.targets["sparc64"])
        program, runner, triple = prepared("sparc64", chosen)
        outcomes[policy] = canary.performed(program, runner, tmp_path / policy, triple).outcomes
    assert outcomes["solaris-8i"]["ldx"] == ["done"] * 16
    assert outcomes["solaris-8s"]["ldx"] == ["signal" if offset % 8 else "done" for offset in range(16)]
    # No kernel repairs an atomic access.
    assert outcomes["solaris-8i"]["cas"] == outcomes["solaris-8s"]["cas"]


def test_an_access_that_never_ends_is_reported_soon() -> None:
    """As in mode 0 of ARMv5's kernel, where the same fault recurs forever."""
    target = CATALOG.targets["armv5"]
    ldr = next(one for one in access_table.plain_accesses(target) if one.name == "ldr")
    # The loop is endless unless the address is a multiple of 4.
    code = ["tst %0, #3", "1: bne 1b", *ldr.code]
    accesses = [msgspec.structs.replace(ldr, name="endless", code=code), ldr]
    program = canary.compile_canary(Cache.default(), target, CATALOG.toolchain_of(target), accesses=accesses)
    before = os.times()
    outcomes = canary.perform_all(canary.emulated(program, machines.runner("armv5", "unchecked")), target, accesses)
    after = os.times()
    # The canary's timer counts user and system time: a loop in the emulator spends a little of its time in the kernel.
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    assert outcomes["endless"] == ["forever" if offset % 4 else "done" for offset in range(16)]
    assert outcomes["ldr"] == ["done"] * 16
    # Two offsets take a quarter of a second, and each of the ten others 60 ms. Twelve quarters would be 3 s.
    assert 1.0 < seconds < 2.0
