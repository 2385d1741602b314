"""Sanitizers and Valgrind find the known bugs of bad releases, and are silent on clean ones."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.plumb_runs import PLUMB, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


def check(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    finished = run("check", *words, "--suite", "bitops", "--seed", 1, "--json", "--run", folder)
    return finished.returncode, document(finished)


def by_id(read: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["id"]: finding for finding in read["findings"]}


def test_the_sanitizer_and_the_strict_machine_see_the_same_misbehaviour_of_redis_3_2_6(tmp_path: Path) -> None:
    """BITOP, BITPOS and MurmurHash2: trapped on ARMv5, reported here, one finding each."""
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
    # BITFIELD's 64-bit shift is undefined, and the answers are wrong: two sorts of evidence of one line.
    assert found["undefined-shift-getSignedBitfield"]["command"].startswith("BITFIELD ")


def test_what_the_sanitizer_reports_is_replayed_and_is_gone_where_it_was_mended(tmp_path: Path) -> None:
    _, read = check(tmp_path / "run", "--target", "native-ubsan", "--server", "redis-3.2.6", "--test", "bitpos_finds")
    finding = by_id(read)["alignment-redisBitpos-load"]
    words = shlex.split(finding["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS, finding["replay"]
    assert run(*words, "--server", "redis-7.0.15", program=PLUMB).returncode == ExitCode.PASS


def test_redis_7_0_15_is_silent_in_bitops_under_the_address_sanitizer_and_valgrind(tmp_path: Path) -> None:
    # Some requests for every command: this test does not prove that a release is clean, a run of all tests does.
    tests = ("moved_the", "every_header", "range_at", "numbers_are", "wraps", "uniform", "setbit")
    words = ("--target", "native-asan", "--target", "native-valgrind")
    code, read = check(tmp_path / "run", *words, *(f"--test={name}" for name in tests))
    assert (code, read["verdict"], sorted(by_id(read))) == (ExitCode.PASS, "PASS", [])
    assert {"PASS"} == {cell["verdict"] for cell in read["cells"]}


def test_a_detector_that_is_told_to_keep_quiet_makes_the_run_unknown(tmp_path: Path) -> None:
    """Sabotage: the same program without its detector's options or its prefix."""
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
