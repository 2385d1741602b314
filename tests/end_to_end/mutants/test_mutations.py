"""Planted bugs are found, located and reproduced; a bug without a symptom is reported as missed.

The tests use a selection, because each bug takes one or two builds. `plumb mutate` tries all bugs.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elftools.elf.elffile import ELFFile

from harness.core.errors import ExitCode
from harness.workflows.mutation_testing import campaign, mutations
from tests.end_to_end.support.machines import quiet_workbench
from tests.end_to_end.support.plumb_runs import PLUMB, document, run

pytestmark = pytest.mark.end_to_end

TARGET = ("--target", "armv5")


@pytest.mark.slow(instead="test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named")
def test_a_planted_dereference_is_found_and_named() -> None:
    finished = run("mutate", "siphash-dereference", *TARGET, "--json")
    (row,) = json.loads(finished.stdout)
    assert finished.returncode == ExitCode.PASS, row
    (result,) = row["seen"]
    assert (result["target"], result["suites"], result["function"]) == ("armv5", ["hashing"], "siphash")
    assert "alignment-siphash-load" in result["findings"]


def test_a_wrong_length_type_is_found_although_the_oracle_has_it_too() -> None:
    finished = run("mutate", "getrange-length-type", *TARGET)
    assert finished.returncode == ExitCode.PASS, finished.stdout
    assert "\n1 of 1 found; " in finished.stdout, finished.stdout


@pytest.mark.slow(instead="the other tests of test_mutations.py, for bugs that show first")
def test_a_bug_is_found_behind_a_failure_of_the_release() -> None:
    row = campaign.mutate(quiet_workbench(), mutations.mutations()["user-command-width"], targets=["armv5"])
    read = json.loads((Path(row.run) / "findings.json").read_text("utf-8"))
    assert row.caught, read["findings"]
    assert any(one["known"] and one["id"].startswith("wrong-result-life_test_clients") for one in read["findings"])


@pytest.mark.slow(instead="test_a_wrong_length_type_is_found_although_the_oracle_has_it_too")
def test_a_wrong_clock_is_reproduced_although_the_native_build_has_it_too() -> None:
    row = campaign.mutate(quiet_workbench(), mutations.mutations()["clock-seconds-width"], targets=["sparc64"])
    read = json.loads((Path(row.run) / "findings.json").read_text("utf-8"))
    (finding,) = [one for one in read["findings"] if one["id"].endswith("test_the_time_is_told_everywhere")]
    words = shlex.split(finding["replay"])[1:]
    again = run(*words, program=PLUMB)
    assert again.returncode == ExitCode.FINDINGS, again.stdout
    assert "its replies and the native build's are those of the failed test" in again.stdout
    mended = run(*words, "--server", "redis-7.0.15", program=PLUMB)
    assert mended.returncode == ExitCode.PASS, mended.stdout


@pytest.mark.slow(
    instead="test_one_byte_beyond_a_block_faults; test_a_wrong_length_type_is_found_although_the_oracle_has_it_too"
)
def test_an_overread_is_found_and_reproduced_with_guard_pages() -> None:
    bench, planted = quiet_workbench(), mutations.mutations()["bitcount-overread"]
    row = campaign.mutate(bench, planted, targets=["armv5"])
    (result,) = row.seen
    assert result.findings == ["out-of-bounds-redisPopcount-load"]
    assert 0 < row.at_fault <= row.annotations
    read = json.loads((Path(row.run) / "findings.json").read_text("utf-8"))
    # The server's crash handler then overruns a list (docs/FOUND.md), which is a different kind of finding.
    (finding,) = [one for one in read["findings"] if one["kind"] == "out-of-bounds"]
    assert (read["allocator"], finding["file"]) == ("guard", "src/bitops.c")
    assert finding["command"].startswith("BITCOUNT ")
    words = shlex.split(finding["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS, finding["replay"]


@pytest.mark.slow(
    instead=("test_one_byte_beyond_a_block_faults; tests/unit/workflows/test_mutations.py for the report")
)
def test_an_overread_that_libc_hides_is_reported_as_missed() -> None:
    planted = mutations.mutations()["bitcount-overread"]
    hidden = campaign.mutate(quiet_workbench(), msgspec.structs.replace(planted, allocator="libc"), targets=["armv5"])
    assert not hidden.caught
    assert "**missed**" in campaign.text_of([hidden])
    assert "0 of 1 found" in campaign.text_of([hidden])


@pytest.mark.slow(instead="tests/unit/build/test_allocator.py: jemalloc is configured for the target, and linked")
def test_a_server_is_built_with_its_own_jemalloc_for_a_board(tmp_path: Path) -> None:
    finished = run(
        "check", *TARGET, "--suite", "sds", "--allocator", "jemalloc", "--json", "--seed", 1, "--run", tmp_path / "run"
    )
    read = document(finished)
    assert (finished.returncode, read["verdict"], read["allocator"]) == (ExitCode.PASS, "PASS", "jemalloc")
    record = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    with Path(record["binaries"]["armv5"]).open("rb") as stream:
        symbols: Any = ELFFile(stream).get_section_by_name(".symtab")
        assert symbols.get_symbol_by_name("je_malloc")
