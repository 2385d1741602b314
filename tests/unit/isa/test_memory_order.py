"""Models of memory order: every architecture has one with a source, and the litmus tests agree with them as data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.build.emulators.runner import (
    Runner,
    in_usual_order,
    with_evidence,
    with_order,
    with_same_addresses,
)
from harness.core.errors import UsageError
from harness.core.model import StorePair
from harness.isa import memory_order, registry
from harness.plan.catalog import Catalog
from harness.run.environments import litmus

if TYPE_CHECKING:
    from harness.core.model import Flavour
    from harness.core.target_model import Target

CATALOG = Catalog()
REORDERED = [target for target in CATALOG.targets.values() if not memory_order.why_not(target)]


def runner_of(target: str) -> Runner:
    return Runner(
        target=CATALOG.targets[target],
        policy=CATALOG.policies["signal"],
        program=Path("/cache/qemu"),
        options=["-L", "/root"],
        records_faults=True,
        translations=Path("/cache/translations"),
    )


@pytest.mark.parametrize(
    ("target", "flavour", "why"),
    [
        ("native", "pinned", "directly on the host"),
        ("aarch64-kernel", "pinned", "a machine with its own kernel"),
        ("m68k", "pinned", "the machines have one processor"),
        ("hppa", "pinned", "accesses are strongly ordered"),
        ("armv5", "pinned", "arm926 is a single processor"),
        ("mips", "pinned", "24Kf is a single processor"),
        ("aarch64", "distro", "a distribution's emulator does not delay stores"),
    ],
)
def test_an_order_that_a_machine_does_not_have_is_refused_with_the_reason(
    target: str, flavour: Flavour, why: str
) -> None:
    with pytest.raises(UsageError, match=f"memory order 'weak' is not available on {target}") as refused:
        memory_order.check_order("weak", CATALOG.targets[target], flavour)
    assert why in str(refused.value)
    memory_order.check_order("usual", CATALOG.targets[target], flavour)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("aarch64", "stores=unordered,forwarding=yes,early-loads=50,seed=7"),
        ("riscv64", "stores=unordered,forwarding=yes,seed=7"),
        ("sparc64", "stores=ordered,forwarding=yes,seed=7"),
        ("s390x", "stores=ordered,forwarding=no,seed=7"),
    ],
)
def test_the_emulator_is_told_the_model_and_the_seed(target: str, expected: str) -> None:
    command = with_order(runner_of(target), "weak", 7).command(Path("/cache/builds/server"), [])
    assert command[command.index("-memory-order") + 1] == expected
    assert "-memory-order" not in with_order(runner_of(target), "usual", 7).command(Path("/cache/builds/server"), [])


def test_translated_code_is_shared_between_seeds_but_not_with_the_usual_order() -> None:
    def kept(runner: Runner) -> str:
        command = runner.command(Path("/cache/builds/server"), [])
        return command[command.index("-translations") + 1]

    usual = runner_of("aarch64")
    first, second = with_order(usual, "weak", 1), with_order(usual, "weak", 2)
    assert kept(first) == kept(second) != kept(usual)
    # Reserved addresses change the code.
    assert kept(with_same_addresses(first)) not in {kept(first), kept(usual)}


def test_a_pair_of_stores_needs_the_same_addresses_in_each_run() -> None:
    pair = StorePair(early=8, late=4)
    delayed = with_evidence(with_order(runner_of("aarch64"), "weak", 7), 9, pair)
    command = delayed.command(Path("/cache/builds/server"), [])
    order = command.index("-memory-order")
    assert command[order + 1].endswith("seed=7,seed=9,pauses=1000,early=8,late=4,depth=64")
    assert command[order + 2 : order + 4] == ["-R", str(memory_order.RESERVED_BYTES)]
    in_order = in_usual_order(delayed, CATALOG.targets["aarch64"]).command(Path("/cache/builds/server"), [])
    assert {"-R", "-memory-order"}.isdisjoint(in_order)


def test_every_second_seed_has_more_pauses() -> None:
    """A thread that pauses logs what others see, and a server whose threads always pause does little."""
    usual = with_order(runner_of("aarch64"), "weak", 7)
    assert ["pauses=" in with_evidence(usual, seed).memory_order for seed in range(1, 5)] == [True, False] * 2


def test_programs_with_32_bit_pointers_have_the_same_addresses_anyway() -> None:
    command = with_same_addresses(with_order(runner_of("armv7"), "weak", 7)).command(Path("/cache/builds/server"), [])
    assert "-R" not in command


def test_every_architecture_has_a_model_with_a_source() -> None:
    isas = {isa for architecture in registry.ARCHITECTURES for isa in architecture.isas}
    models = memory_order.models()
    assert set(models) == isas
    for isa, model in models.items():
        assert model.source, isa
        assert (model.order == "none") == (not model.store_barrier), isa


@pytest.mark.parametrize("target", REORDERED, ids=lambda target: target.name)
def test_every_target_has_outcomes_that_must_be_seen_and_outcomes_that_must_not(target: Target) -> None:
    cases = list(litmus.cases(target))
    assert {"forbidden", "shown"} <= {case.verdict for case in cases}
    assert len({case.name for case in cases}) == len(cases)


@pytest.mark.parametrize("target", ["native", "m68k", "armv5"])
def test_a_machine_that_reorders_nothing_has_no_litmus_tests(target: str) -> None:
    with pytest.raises(UsageError, match=f"memory order 'weak' is not available on {target}"):
        litmus.source(CATALOG.targets[target])


def verdict(target: str, name: str) -> str:
    return next(case.verdict for case in litmus.cases(CATALOG.targets[target]) if case.name == name)


def test_the_models_differ_where_the_manuals_do() -> None:
    assert [verdict(name, "MP-32") for name in ("aarch64", "sparc64", "s390x")] == ["shown", "forbidden", "forbidden"]
    assert [verdict(name, "SB-32") for name in ("aarch64", "sparc64", "s390x")] == ["shown"] * 3
    assert [verdict(name, "SB+own") for name in ("aarch64", "sparc64", "s390x")] == ["shown", "shown", "forbidden"]
    assert [verdict(name, "MP+exchange") for name in ("aarch64", "riscv64")] == ["shown", "unshown"]
    assert verdict("aarch64", "LB") == "unshown"


def test_a_program_has_each_case_as_a_function_for_each_thread() -> None:
    text = litmus.source(CATALOG.targets["aarch64"])
    assert '#define STORE_BARRIER "dmb ishst"' in text
    assert "    PUT(x, 1);\n    STORE_FENCE();\n    PUT(y, 1);\n" in text
    assert '{"IRIW+sc", 4, AT_ONCE, {' in text
    assert '{"CoRR-32", 2, PLACES, {' in text
