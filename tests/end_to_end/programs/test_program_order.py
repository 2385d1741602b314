"""`plumb exec --memory-order weak` on the queue of the guide: it fails if its flag may be visible before its data, the
two stores are named, and a replay needs only them.
"""

from __future__ import annotations

import re
import shutil
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.judge.findings import ORDER, judge
from harness.judge.reproducer import read_reproducer
from harness.record import run_folder, stored_run
from harness.workflows.programs.execution import Execution, environment_for, record_of, run_command, tracing_of
from harness.workflows.replay.replay import replay
from harness.workflows.target_setup import TargetSetup, set_up_target
from harness.workflows.workbench import Workbench
from tests.end_to_end.support import plumb_runs

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.judge.reproducer import Reproducer

pytestmark = pytest.mark.end_to_end

GUIDE = (ROOT / "docs" / "howto" / "memory-order.md").read_text("utf-8")
SOURCE = re.findall(r"```c\n(.*?)```", GUIDE, re.DOTALL)[0]
FLAG, DATA, READER = (
    next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)
    for text in ("atomic_store_explicit(&tail", "] = item;", "] != item")
)
SEEDS = range(1, 6)
PLACE = (
    f"the store in produce (queue.c:{FLAG}) was visible before produce (queue.c:{DATA}), "
    f"read by main (queue.c:{READER})"
)


@cache
def setup() -> TargetSetup:
    bench = Workbench.default()
    return set_up_target(bench, bench.catalog.targets["aarch64"])


@cache
def queue(order: str, source: str = SOURCE) -> Path:
    """The guide's program, compiled as the guide says."""

    def compile_into(into: Path) -> None:
        (into / "queue.c").write_text(source, "utf-8")
        words = [environment_for(setup())["CC"], "-O2", "-g", "-pthread", f"-DORDER={order}", "queue.c", "-o", "queue"]
        words.append(f"-ffile-prefix-map={into}=.")
        process.run_successfully(words, problem="queue.c does not compile", deadline_seconds=120, folder=into)

    return Cache.default().folder("test-programs", key_of([source, order, "mapped"]), compile_into) / "queue"


def executed(folder: Path, program: Path, seed: int = 1) -> list[Finding]:
    """The findings of a program that runs as under `plumb exec`, without its canaries."""
    folder.mkdir(exist_ok=True)
    shutil.copy2(program, folder / "queue")
    asked = Execution(
        target="aarch64",
        policy="signal",
        words=["./queue"],
        folder=folder,
        run=folder / "run",
        known=folder / "known.toml",
        install=False,
        memory_order="weak",
        seed=seed,
    )
    asked.run.mkdir()
    tracing = tracing_of(setup(), setup().runner("signal", "usual", "weak", asked.seed))
    cell = run_command(tracing, setup(), asked, environment_for(setup()))
    record = msgspec.structs.replace(record_of(setup(), asked, [cell], ""), suites=[cell.suite])
    run_folder.write_run(asked.run, record)
    stored = stored_run.read(asked.run)
    findings, (outcome,), _ = judge(stored)
    assert not outcome.doubts
    (counts,) = stored_run.store_counts(asked.run / cell.target / cell.suite)
    assert counts.stores > 0
    return findings


def finding_of(folder: Path, source: str = SOURCE) -> tuple[Finding, Reproducer]:
    """The finding of the first seed that has one: on a busy machine, a thread may read too late to see an old value."""
    for seed in SEEDS:
        own = folder / f"seed-{seed}"
        if findings := executed(own, queue("memory_order_relaxed", source), seed):
            (found,) = findings
            return found, read_reproducer(str(next((own / "run" / "reproducers").iterdir())))
    pytest.fail(f"no finding with {len(SEEDS)} seeds")


def test_the_stores_that_the_queue_needs_in_order_are_named_and_replayed(tmp_path: Path) -> None:
    found, reproducer = finding_of(tmp_path)
    assert (found.id, found.kind) == ("order-crash-queue-SIGABRT", ORDER)
    words = r"queue was killed by SIGABRT in main: item \d+: the slot has \d+: "
    assert re.fullmatch(words + re.escape(PLACE), found.title)
    place, rates = found.witnesses[0].overtakes[:2]
    assert place == PLACE
    assert re.fullmatch(
        r"\d+ of \d+ runs failed while stores waited, and none of \d+ in order; "
        r"\d+ of \d+ failed if only these two stores were reordered",
        rates,
    )
    again = replay(setup().bench, reproducer, server="")
    assert again.outcome == "reproduced", again


def test_two_stores_are_enough_however_much_the_thread_stores_to_its_stack_between_them(tmp_path: Path) -> None:
    """Threads of servers call functions between two such stores, and each of these saves registers."""
    pushes = "] = item; for (volatile int pushed = 0; pushed < 100; pushed++);"
    found, _ = finding_of(tmp_path, SOURCE.replace("] = item;", pushes))
    assert found.witnesses[0].overtakes[0] == PLACE


def test_the_queue_that_releases_its_flag_does_not_fail(tmp_path: Path) -> None:
    assert executed(tmp_path, queue("memory_order_release")) == []


def test_the_load_that_is_no_acquire_is_named(tmp_path: Path) -> None:
    """Only loads that are executed early show it: every store is a release."""
    source = SOURCE.replace("tail, memory_order_acquire", "tail, memory_order_relaxed")
    # Three of ten runs of the guide's length fail: too few to blame memory order.
    source = source.replace("ITEMS = 200000", "ITEMS = 1000000")
    for seed in SEEDS:
        if findings := executed(tmp_path / f"seed-{seed}", queue("memory_order_release", source), seed):
            (found,) = findings
            assert found.kind == ORDER
            assert (
                f"the load in main (queue.c:{READER}) was executed before the store in produce (queue.c:{DATA})"
                in found.witnesses[0].overtakes
            )
            return
    pytest.fail(f"no finding with {len(SEEDS)} seeds")


def test_a_program_that_fails_in_order_too_is_not_blamed_on_memory_order(tmp_path: Path) -> None:
    always = queue("memory_order_relaxed", SOURCE.replace("] != item", "] == item"))
    (found,) = executed(tmp_path, always)
    assert (found.id, found.kind) == ("crash-queue-SIGABRT", "crash")


@pytest.mark.slow(instead="the other tests of test_program_order.py, without canaries")
def test_the_guide_holds_word_by_word(tmp_path: Path) -> None:
    shutil.copy2(queue("memory_order_relaxed"), tmp_path / "queue")
    words = ["exec", "--target", "aarch64", "--memory-order", "weak", "--seed", 1, "--run", tmp_path / "run"]
    failed = plumb_runs.run(*words, "--", tmp_path / "queue")
    assert failed.returncode == ExitCode.FINDINGS, failed.stdout + failed.stderr
    assert PLACE in failed.stdout
    (reproducer,) = (tmp_path / "run" / "reproducers").iterdir()
    assert plumb_runs.run("replay", reproducer).returncode == ExitCode.FINDINGS
    shutil.copy2(queue("memory_order_release"), tmp_path / "queue")
    gone = plumb_runs.run("replay", reproducer)
    assert (gone.returncode, "of at most" in gone.stdout) == (ExitCode.PASS, True), gone.stdout + gone.stderr
    words[-1] = tmp_path / "fixed"
    passed = plumb_runs.run(*words, "--", tmp_path / "queue")
    assert passed.returncode == ExitCode.PASS, passed.stdout + passed.stderr
