"""Checks find known bugs where upstream fixed them, pass a clean release, and detect sabotage."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.errors import ExitCode
from harness.record import fault_log
from harness.run.session.cell_servers import FULL_REPORTS
from tests.end_to_end.support.plumb_runs import FIXUP_FOR_SIGNAL, PLUMB, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


def check(tmp_path: Path, *words: str, program: list[str] | None = None) -> tuple[int, dict[str, Any]]:
    # The test must pass with any seed, so the seed is random, as for a user.
    finished = run("check", *words, "--json", "--run", tmp_path / "run", program=program)
    return finished.returncode, document(finished)


def alignment(read: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in read["findings"] if finding["kind"] == "alignment"]


def replayed(finding: dict[str, Any]) -> int:
    words = shlex.split(finding["replay"])
    assert words[0] == "plumb"
    return run(*words[1:], program=PLUMB).returncode


def marked_and_placed(folder: Path, finding: dict[str, Any]) -> None:
    """Assert that the page marks the finding's line and instruction, and that code scanning shows the same place."""
    page = (folder / "report.html").read_text("utf-8")
    marked = [html.unescape(re.sub("<[^>]*>", "", line)) for line in page.splitlines() if '"line marked"' in line]
    assert any(line.strip().startswith(str(finding["line"])) for line in marked), marked
    assert any(line.strip().endswith(finding["instruction"]) for line in marked), marked
    results = json.loads((folder / "findings.sarif").read_text("utf-8"))["runs"][0]["results"]
    (place,) = [one["locations"][0] for one in results if one["properties"]["id"] == finding["id"]]
    physical = place["physicalLocation"]
    assert (physical["artifactLocation"]["uri"], physical["region"]["startLine"]) == (finding["file"], finding["line"])


def later_deaths_are_not_reported(cell: Path) -> None:
    """Assert that the first servers of a cell that die report it, and that of the later ones only the first of each
    instruction does.
    """
    folders = sorted(cell.glob("guest-*"), key=lambda folder: int(folder.name.partition("-")[2]))
    logs = {folder: fault_log.read(folder / "faults.jsonl") for folder in folders}
    deaths = {folder: log.faults[0].pc for folder, log in logs.items() if log.faults}
    later: set[int] = set()
    due = []
    for number, pc in enumerate(deaths.values()):
        due.append(number < FULL_REPORTS or pc not in later)
        later |= {pc} if number >= FULL_REPORTS else set()
    assert [b"BUG REPORT START" in (folder / "log").read_bytes() for folder in deaths] == due
    assert len(due) > 2 * due.count(True), due


def test_redis_3_2_6_misaligns_in_bitops_on_armv5_and_the_replay_reproduces_it(tmp_path: Path) -> None:
    """Word-wise BITOP and BITPOS on a string behind a header of odd length."""
    words = ("--target", "armv5", "--suite", "bitops", "--server", "redis-3.2.6")
    code, read = check(tmp_path, *words, "--test", "bitop_not", "--test", "bitpos_finds")
    assert (code, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    found = [f for f in alignment(read) if "bitop" in f["function"].lower() or f["function"] == "redisBitpos"]
    assert found, [finding["id"] for finding in read["findings"]]
    for finding in found:
        assert (finding["file"], finding["origin"], finding["targets"]) == ("src/bitops.c", "server", ["armv5"])
        assert finding["line"] > 0
        assert finding["instruction"]
        assert finding["access"]
    marked_and_placed(tmp_path / "run", found[0])
    assert replayed(found[0]) == ExitCode.FINDINGS, f"{found[0]['replay']} does not reproduce it"


@pytest.mark.slow(
    instead=(
        "test_redis_3_2_6_misaligns_in_bitops_on_armv5_and_the_replay_reproduces_it; "
        "test_redis_7_0_15_passes_on_sparc64; "
        "test_a_missing_byte_swap_fails_a_self_test_only_on_a_big_endian_target_and_is_replayed"
    )
)
def test_valkey_9_1_2_misaligns_in_murmur32_of_lua_on_sparc64(tmp_path: Path) -> None:
    words = ("--target", "sparc64", "--suite", "bitops", "--server", "valkey-9.1.2")
    code, read = check(tmp_path, *words, "--test", "bitpos_finds")
    assert (code, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    assert [
        (finding["function"], finding["file"], finding["line"], finding["origin"]) for finding in alignment(read)
    ] == [("murmur32", "deps/lua/src/lstring.c", 87, "bundled/lua")]
    # The server cannot start, so every test fails because of one finding.
    assert 1 == len(read["findings"]), [finding["id"] for finding in read["findings"]]  # noqa: SIM300
    assert replayed(read["findings"][0]) == ExitCode.FINDINGS


def test_redis_7_0_15_passes_on_sparc64(tmp_path: Path) -> None:
    """And on ARMv5: tests/end_to_end/house/test_documents.py."""
    code, read = check(tmp_path, "--target", "sparc64", "--suite", "bitops")
    assert (code, read["verdict"], [finding["id"] for finding in read["findings"]]) == (ExitCode.PASS, "PASS", [])
    assert ["PASS", "PASS"] == [cell["verdict"] for cell in read["cells"]]  # noqa: SIM300
    # A fault that ends the oracle is located too, although its target is not part of the run.
    recorded = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert {"native", "sparc64"} == set(recorded["binaries"]) == set(recorded["triples"])


def test_an_emulator_that_repairs_accesses_it_should_trap_makes_the_run_unknown(tmp_path: Path) -> None:
    sabotaged = [sys.executable, "-c", FIXUP_FOR_SIGNAL]
    words = ("--target", "armv5", "--suite", "bitops", "--server", "redis-3.2.6", "--test", "bitop_not")
    code, read = check(tmp_path, *words, program=sabotaged)
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert {"UNKNOWN"} == {cell["verdict"] for cell in read["cells"]}
    assert any("done where signal is prescribed" in cell["reason"] for cell in read["cells"]), read["cells"]


@pytest.mark.slow(
    instead=(
        "test_redis_3_2_6_misaligns_in_bitops_on_armv5_and_the_replay_reproduces_it; tests/suites/test_hashing_model.py"
    )
)
def test_hash_functions_of_redis_3_2_6_are_misaligned_by_plain_keys_and_elements(tmp_path: Path) -> None:
    """MurmurHash2, and HyperLogLog's MurmurHash64A, which big-endian machines compute byte by byte."""
    words = ("--target", "armv5", "--target", "sparc64", "--suite", "hashing", "--server", "redis-3.2.6")
    part = ("--test", "stored_at_any_offset", "--test", "counts_once")
    finished = run("audit", *words, *part, "--seed", 1, "--json", "--run", tmp_path / "run")
    found = {finding["function"]: finding for finding in alignment(document(finished))}
    assert found["dictGenHashFunction"]["targets"] == ["armv5", "sparc64"]
    assert (found["MurmurHash64A"]["targets"], found["MurmurHash64A"]["file"]) == (["armv5"], "src/hyperloglog.c")


@pytest.mark.slow(instead="test_only_the_first_death_of_a_cell_tests_the_machines_memory")
def test_a_release_that_dies_in_most_tests_writes_few_crash_reports(tmp_path: Path) -> None:
    code, _ = check(tmp_path, "--target", "armv5", "--suite", "hashing", "--server", "redis-3.2.6")
    assert code == ExitCode.FINDINGS
    later_deaths_are_not_reported(tmp_path / "run" / "armv5" / "hashing")
