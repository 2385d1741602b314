"""Sanitizers and Valgrind find the known bugs of bad releases, and are silent on clean ones."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from harness.analysis.detectors.registry import reports
from harness.build.emulators.runner import target_runner
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.core.processes import process
from harness.plan.catalog import Catalog
from harness.run import canary, silence_check
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import PLUMB, document, run
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


def check(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    finished = run("check", *words, "--suite", "bitops", "--seed", 1, "--json", "--run", folder)
    return finished.returncode, document(finished)


def by_id(read: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["id"]: finding for finding in read["findings"]}


@pytest.mark.slow(instead="test_a_silenced_detector_makes_the_run_unknown; the canaries of each detector")
def test_the_sanitizer_and_the_strict_machine_find_the_same_bugs_of_redis_3_2_6(tmp_path: Path) -> None:
    """BITOP, BITPOS and MurmurHash2: trapped on ARMv5, reported by the sanitizer, one finding each."""
    words = ("--target", "native-ubsan", "--target", "armv5", "--server", "redis-3.2.6")
    code, read = check(
        tmp_path / "run", *words, *(f"--test={name}" for name in ("moved_the", "range_at", "numbers_are", "wraps"))
    )
    assert (code, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    found = by_id(read)
    for name, file in {
        "alignment-bitopCommand-load": "src/bitops.c",
        "alignment-redisBitpos-load": "src/bitops.c",
        "alignment-dictGenHashFunction-load": "src/dict.c",
    }.items():
        assert name in found, sorted(found)
        witnesses = {(witness["target"], witness["detector"]) for witness in found[name]["witnesses"]}
        assert witnesses == {("armv5", "signal"), ("armv5", "audit"), ("native-ubsan", "ubsan")}
        assert {witness["file"] for witness in found[name]["witnesses"]} == {file}
    # BITFIELD's 64-bit shift is undefined, and its replies are wrong: two kinds of evidence for one line.
    assert found["undefined-shift-getSignedBitfield"]["command"].startswith("BITFIELD ")


@pytest.mark.slow(instead="the other tests of test_detectors.py, which find the same bugs; test_replay.py")
def test_a_sanitizers_finding_is_replayed_and_is_gone_where_it_was_fixed(tmp_path: Path) -> None:
    _, read = check(tmp_path / "run", "--target", "native-ubsan", "--server", "redis-3.2.6", "--test", "bitpos_finds")
    finding = by_id(read)["alignment-redisBitpos-load"]
    words = shlex.split(finding["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS, finding["replay"]
    assert run(*words, "--server", "redis-7.0.15", program=PLUMB).returncode == ExitCode.PASS


@pytest.mark.slow(instead="test_a_silenced_detector_makes_the_run_unknown; the canaries of each detector")
@pytest.mark.parametrize("target", ["native-valgrind", "native-asan", "native-tsan"])
def test_redis_7_0_15_is_silent_in_bitops(target: str, tmp_path: Path) -> None:
    # A few requests of each command. Only a run of all tests proves that a release is clean.
    tests = ("moved_the", "every_header", "range_at", "numbers_are", "wraps", "uniform", "setbit")
    code, read = check(tmp_path / "run", "--target", target, *(f"--test={name}" for name in tests))
    assert (code, read["verdict"], sorted(by_id(read))) == (ExitCode.PASS, "PASS", [])
    assert {"PASS"} == {cell["verdict"] for cell in read["cells"]}


@pytest.mark.parametrize("target", ["native-asan", "native-tsan", "native-ubsan", "native-valgrind"])
def test_both_canaries_of_a_detectors_target_behave(target: str, tmp_path: Path) -> None:
    """The one whose errors the detector reports, and the one whose misaligned accesses the host makes."""
    runner = machines.runner(target)
    tools, cache = machines.toolchain_of(target), machines.quiet_workbench().cache
    assert silence_check.why_blind(cache, runner, tools, tmp_path, None) == ""
    program = canary.compile_canary(cache, runner.target, tools)
    performed = canary.performed(program, runner, tmp_path / "faults.jsonl", tools.triple)
    assert [wrong for case in canary.cases(runner) for wrong in canary.disagreements(case, performed, runner)] == []


def test_a_silenced_detector_makes_the_run_unknown(tmp_path: Path) -> None:
    """Sabotage: the same program without its detector's options or its command prefix."""
    sabotage = (
        "from harness.analysis.detectors.registry import DETECTORS; "
        "DETECTORS['valgrind'] = DETECTORS['valgrind']._replace(command=()); "
        "from harness.cli.console_script import main; main()"
    )
    finished = run(
        "check",
        "--target",
        "native-valgrind",
        "--suite",
        "bitops",
        "--json",
        "--run",
        tmp_path / "run",
        program=[PLUMB[0], "-c", sabotage],
    )
    read = json.loads(finished.stdout)
    assert (finished.returncode, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert any("got nothing reported" in cell["reason"] for cell in read["cells"]), read["cells"]


STORE = "atomic_store_explicit(&jq->tail, (current_tail + 1) % jq->size, memory_order_{})"
LOAD = "size_t current_tail = atomic_load_explicit(&jq->tail, memory_order_{})"
"""The first of them is that of IOJobQueue_isFull."""
RESTARTS = """
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char *words[] = {argv[0], "again", NULL};
    if (argc == 1)
        execv(argv[0], words);
    char *block = malloc(4);
    return system("exit 0") + (block[4] == 7);
}
"""


@pytest.mark.slow(instead="test_both_canaries_of_a_detectors_target_behave; tests/unit/analysis/test_detector.py")
def test_the_thread_sanitizer_finds_the_queue_of_valkey_8_1_1_and_is_silent_about_it_in_order(tmp_path: Path) -> None:
    """valkey#3797: see docs/found/io-queue-order.md. The store alone is not enough, and neither is the load."""
    tree = tmp_path / "tree"
    shutil.copytree(machines.release("valkey-8.1.1"), tree)
    file = tree / "src" / "io_threads.c"
    relaxed = file.read_text("utf-8")
    released = relaxed.replace(STORE.format("relaxed"), STORE.format("release"))
    ordered = released.replace(LOAD.format("relaxed"), LOAD.format("acquire"), 1)
    assert len({relaxed, released, ordered}) == 3
    for number, (text, is_found) in enumerate([(relaxed, True), (released, True), (ordered, False)]):
        file.write_text(text, "utf-8")
        words = ["--server", tree, "--target", "native-tsan", "--suite", "order", "--tier", "full"]
        finished = run("check", *words, "--test", "many_overwrite", "--json", "--run", tmp_path / f"run-{number}")
        read = document(finished)
        assert {"PASS", "FAIL"} >= {cell["verdict"] for cell in read["cells"]}, read["cells"]
        assert ("tsan-data-race-IOJobQueue_removeJob-store" in by_id(read)) == is_found


def test_valgrind_follows_a_program_that_becomes_itself_anew(tmp_path: Path) -> None:
    """DEBUG RESTART does so. From then on the server ran without Valgrind, and every error went unseen."""
    source = fakes.write(tmp_path / "restarts.c", RESTARTS)
    program = tmp_path / "restarts"
    process.run_successfully(["gcc", "-g", source, "-o", program], problem="no program", deadline_seconds=60)
    catalog = Catalog()
    target = catalog.targets["native-valgrind"]
    runner = target_runner(Cache.default(), target, catalog.toolchain_of(target), catalog.policies["signal"], {})
    ran = process.run(runner.command(program, []), deadline_seconds=60)
    assert [report.identity for report in reports(ran.output, "valgrind")] == ["memcheck-invalid-read-main-load"]
