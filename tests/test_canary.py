"""Which canaries are asked for under which policy, and what an outcome is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.canary import expectations, outcome
from harness.emulator import RULES, Runner
from harness.load import Catalog
from harness.model import Policy, Target
from tests import fakes

if TYPE_CHECKING:
    from collections.abc import Iterable

TARGETS = sorted(Catalog().targets)


def native(target: Target) -> Runner:
    return Runner(target=target, policy=Policy.SIGNAL, program=None, options=[], records_faults=False)


def traps(target: Target, policy: Policy) -> set[str]:
    return {name for name, expected in expectations(target, policy) if expected == "trap"}


def passes(target: Target, policy: Policy) -> set[str]:
    return {name for name, expected in expectations(target, policy) if expected == "done"}


def reports(target: Target, policy: Policy) -> set[str]:
    return {name for name, expected in expectations(target, policy) if expected == "report"}


def aligned(names: Iterable[str]) -> set[str]:
    return {name.partition("@")[0] + "@0" for name in names}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("policy", list(Policy))
def test_every_trap_has_an_aligned_twin_and_nothing_must_do_both(name: str, policy: Policy) -> None:
    target = Catalog().targets[name]
    assert aligned(traps(target, policy) | reports(target, policy)) <= passes(target, policy)
    assert set() == traps(target, policy) & passes(target, policy)


@pytest.mark.parametrize("name", TARGETS)
def test_under_the_signal_policy_exactly_what_the_target_says_must_trap(name: str) -> None:
    target = Catalog().targets[name]
    assert set(target.canaries.trap) == traps(target, Policy.SIGNAL)
    assert set(target.canaries.allowed) <= passes(target, Policy.SIGNAL)


def test_the_fixup_policy_repairs_plain_accesses_and_no_atomic_ones() -> None:
    assert set() == traps(fakes.target(), Policy.FIXUP)
    assert "load-word@1" in passes(fakes.target(), Policy.FIXUP)
    assert "load-exclusive@1" not in passes(fakes.target(), Policy.FIXUP)


@pytest.mark.parametrize("name", TARGETS)
def test_under_the_audit_policy_whatever_would_trap_is_reported_or_traps(name: str) -> None:
    target = Catalog().targets[name]
    assert set(target.canaries.trap) == traps(target, Policy.AUDIT) | reports(target, Policy.AUDIT)
    assert not traps(target, Policy.AUDIT) & reports(target, Policy.AUDIT)


def test_the_strict_policy_traps_more_on_a_forgiving_target() -> None:
    target = Catalog().targets["aarch64"]
    assert {"load-word@1", "store-halfword@1"} <= traps(target, Policy.STRICT)


def test_every_policy_has_a_rule_of_the_emulator() -> None:
    assert set(Policy) == set(RULES)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("exit 0", "done"),
        ("kill -BUS $$", "trap"),
        ("echo 00 11; exit 3", "wrong bytes: 00 11"),
        ("echo no such access; exit 2", "exit status 2: no such access"),
        ("kill -SEGV $$", "exit status -11: "),
    ],
)
def test_an_outcome_is_what_the_program_did(tmp_path: Path, body: str, expected: str) -> None:
    program = fakes.write(tmp_path / "canary", f"#!/bin/sh\n{body}\n", mode=0o755)
    assert expected == outcome(program, native(fakes.target()), "load-word@1", tmp_path / "log")


def test_the_program_is_told_access_and_offset(tmp_path: Path) -> None:
    program = fakes.write(tmp_path / "canary", '#!/bin/sh\necho "$1 $2"; exit 3\n', mode=0o755)
    assert (
        outcome(program, native(fakes.target()), "load-word@1", tmp_path / "faults.jsonl") == "wrong bytes: load-word 1"
    )


def test_an_emulators_command_line_is_pure() -> None:
    runner = Runner(
        target=fakes.target(),
        policy=Policy.SIGNAL,
        program=Path("/e/qemu-arm"),
        options=["-cpu", "arm926", "-L", "/root", "-alignment", "arch"],
        records_faults=True,
    )
    expected = ["/e/qemu-arm", "-cpu", "arm926", "-L", "/root", "-alignment", "arch", "-fault-log", "/r/f", "/b", "x"]
    assert expected == runner.command(Path("/b"), ["x"], Path("/r/f"))
