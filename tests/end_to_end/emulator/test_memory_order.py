"""Emulated threads see one another's stores in an order that their architecture allows, and in no other.

Every rule of the emulator's store buffer can be broken on purpose (`without=RULE`), and the tests notice each.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build import toolchain
from harness.isa import memory_order
from harness.record import fault_log
from harness.run.environments import litmus
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner

pytestmark = pytest.mark.end_to_end

SOURCE = Path(__file__).with_name("memory_order.c")
PROPERTIES = ("signals", "faults", "mappings", "membarrier", "spinning", "calls", "forks")
NOTICED = {
    "overlap": "CoWW-32",
    "own": "CoWR-32",
    "fence": "MP+store-fence-32",
    "release": "MP+release-32",
    "acquire": "SB+sc",
    "full": "SB+fence",
    "atomic": "MP+store-fence+exchange",
    "early-fence": "MP+release+fence-fixed",
    "early-place": "CoRR-32",
    "early-address": "MP+release+address-32",
}
"""A rule -> the litmus test whose forbidden outcome is seen without it."""
LATE_SECONDS = 300
SEEDS = range(3, 23)
"""Chance decides whether a run shows a broken rule. On a machine with two idle processors, half of them do."""
REORDERED = [name for name in machines.REQUIRED if not memory_order.why_not(machines.CATALOG.targets[name])]
OTHERS = [name for name in machines.OTHERS if not memory_order.why_not(machines.CATALOG.targets[name])]
EXAMPLES = {"MP-32", "SB-32", "MP+release-32", "SB+sc", "CoWW-32"}
"""The litmus tests that `ci/test` runs, on AArch64. Each takes a second or more on both processors."""
CASES = [
    (name, case) if name == "aarch64" and case.name in EXAMPLES else machines.beyond(name, case)
    for name in [*REORDERED, *OTHERS]
    for case in litmus.cases(machines.CATALOG.targets[name])
]


def program_of(name: str) -> Path:
    bench = machines.quiet_workbench()
    return litmus.compile_litmus(bench.cache, machines.CATALOG.targets[name], machines.toolchain_of(name))


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda one: one if isinstance(one, str) else one.name)
def test_the_outcome_of_a_litmus_test_is_what_the_model_says(name: str, case: litmus.LitmusCase) -> None:
    assert litmus.disagreement(program_of(name), machines.runner(name), case) == ""


@pytest.mark.parametrize(
    ("rule", "shape"), [one if one[0] in {"overlap", "release"} else machines.beyond(*one) for one in NOTICED.items()]
)
def test_a_litmus_test_notices_that_a_rule_is_broken(rule: str, shape: str) -> None:
    case = next(one for one in litmus.cases(machines.CATALOG.targets["aarch64"]) if one.name == shape)
    noticed = litmus.disagreement(program_of("aarch64"), machines.runner("aarch64"), case, without=rule, seeds=SEEDS)
    assert noticed == "seen, although unordered stores forbid it"


def test_the_host_s_order_is_stronger_than_the_model() -> None:
    """Otherwise the litmus tests would prove nothing of the store buffer."""
    case = next(one for one in litmus.cases(machines.CATALOG.targets["aarch64"]) if one.name == "MP-32")
    assert litmus.times_seen(program_of("aarch64"), machines.runner("aarch64"), case, "", 20_000, 0) == 0


def early_loads(log: Path, seed: int, words: str = "") -> list[fault_log.MissedStore]:
    """The early loads of message passing to a plain reader, which the emulator logs."""
    order = memory_order.emulator_option(memory_order.models()["aarch64"], seed)
    runner = msgspec.structs.replace(machines.runner("aarch64"), memory_order=f"{order},{litmus.PAUSES}{words}")
    emulator, *rest = runner.command(program_of("aarch64"), ["MP+release+plain", "20000", "1"])
    subprocess.run([emulator, "-fault-log", log, *rest], check=True, timeout=LATE_SECONDS, capture_output=True)
    return fault_log.read(log).missed


def test_an_early_load_is_logged_and_can_be_the_only_one(tmp_path: Path) -> None:
    runs = (early_loads(tmp_path / f"log-{seed}", seed) for seed in SEEDS)
    places = next(places for one in runs if len(places := {each.pc for each in one}) > 1)
    only = min(places)
    runs = (early_loads(tmp_path / f"only-{seed}", seed, f",early-load={only}") for seed in SEEDS)
    assert {each.pc for each in next(one for one in runs if one)} == {only}


def held(
    name: str, proof: str, folder: Path, *, without: str = "", seed: int = SEEDS[0], pauses: str = litmus.PAUSES
) -> str:
    """What a program says of a property that must hold whatever the order; its signal if it dies."""
    target, program = machines.CATALOG.targets[name], folder / "program"
    flags = [*toolchain.compiler_flags(target, "O2"), "-std=gnu11", "-pthread"]
    compiler = toolchain.tool(machines.toolchain_of(name), "gcc")
    subprocess.run([compiler, SOURCE, *flags, "-o", program], check=True, timeout=machines.COMPILE_SECONDS)
    order = memory_order.emulator_option(memory_order.model_of(target), seed)
    order = ",".join([order, *([pauses] if pauses else []), *([f"without={without}"] if without else [])])
    runner: Runner = msgspec.structs.replace(machines.runner(name), memory_order=order)
    ended = subprocess.run(
        runner.command(program, [proof]), capture_output=True, timeout=LATE_SECONDS, check=False, encoding="utf-8"
    )
    return ended.stdout.strip() if ended.returncode in {0, 1} else f"died: {ended.returncode}"


@pytest.mark.parametrize("proof", [one if one != "spinning" else machines.beyond(one) for one in PROPERTIES])
def test_a_program_keeps_what_every_order_has(tmp_path: Path, proof: str) -> None:
    assert held("aarch64", proof, tmp_path) == "well"


@pytest.mark.parametrize(
    ("rule", "proof"),
    [("mapping", "mappings"), ("membarrier", "membarrier"), machines.beyond("nudge", "spinning")],
)
def test_a_program_notices_that_a_rule_is_broken(tmp_path: Path, rule: str, proof: str) -> None:
    assert any(held("aarch64", proof, tmp_path, without=rule, seed=seed) != "well" for seed in SEEDS)


def test_a_thread_is_slow_for_a_while_so_that_the_queue_before_it_becomes_full(tmp_path: Path) -> None:
    """valkey#3797 needs a full queue, and the threads that empty it have less to do than the one that fills it."""
    said = (held("aarch64", "queues", tmp_path, seed=seed, pauses="") for seed in SEEDS)
    assert any(one.startswith("the queue was full") for one in said)


@pytest.mark.parametrize("word", ["stores=sorted", "depth=0", "depth=65", "without=nothing", "seed=x", "seed", ""])
def test_the_emulator_refuses_an_order_that_it_does_not_know(word: str) -> None:
    runner = msgspec.structs.replace(machines.runner("aarch64"), memory_order=f"stores=unordered,{word}")
    ended = subprocess.run(
        runner.command(program_of("aarch64"), []),
        capture_output=True,
        timeout=LATE_SECONDS,
        check=False,
        encoding="utf-8",
    )
    assert ended.returncode == 1
    assert f"-memory-order: '{word}' is none of" in ended.stderr
