"""Cells of a suite share the native build's runs of the tests that failed in them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.record.run_folder import host_folder
from harness.record.run_record import HostRun
from harness.workflows.trials.shared_host_runs import SharedHostRuns
from tests.support import cells, fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.run.cell_spec import CellSpec

RUNS = [HostRun(problem="", seal="1"), HostRun(problem="", seal="2")]


@pytest.fixture
def asked(tmp_path: Path) -> tuple[SharedHostRuns, CellSpec]:
    """A cell of armv5 has asked for two tests."""
    spec = spec_of(tmp_path / "armv5", ["a", "b"])
    for number in (1, 2):
        fakes.write(host_folder(tmp_path / "armv5", number) / "events.jsonl", f"run {number}\n")
    shared = SharedHostRuns()
    shared.runs(spec, functools.partial(host_folder, tmp_path / "armv5"), lambda: RUNS)
    return shared, spec


def nothing() -> list[HostRun]:
    """What a cell runs that has to ask itself."""
    return []


def spec_of(folder: Path, tests: list[str]) -> CellSpec:
    spec = cells.spec_of("protocol", folder, fakes.unemulated(fakes.target("native")))
    return msgspec.structs.replace(spec, exactly=tests, sockets=folder.parent)


@pytest.mark.parametrize("tests", [["a"], ["b", "a"]])
def test_a_cell_with_the_same_failures_or_fewer_gets_the_runs_and_a_copy_of_their_evidence(
    asked: tuple[SharedHostRuns, CellSpec], tmp_path: Path, tests: list[str]
) -> None:
    spec = msgspec.structs.replace(spec_of(tmp_path / "armv6", tests), without=["c"])
    assert asked[0].runs(spec, functools.partial(host_folder, tmp_path / "armv6"), nothing) == RUNS
    assert [(host_folder(tmp_path / "armv6", number) / "events.jsonl").read_text("utf-8") for number in (1, 2)] == [
        "run 1\n",
        "run 2\n",
    ]


def test_a_cell_with_another_failure_or_another_program_asks_itself(
    asked: tuple[SharedHostRuns, CellSpec], tmp_path: Path
) -> None:
    folder_of = functools.partial(host_folder, tmp_path / "armv6")
    assert asked[0].runs(spec_of(tmp_path / "armv6", ["a", "c"]), folder_of, nothing) == []
    other = msgspec.structs.replace(spec_of(tmp_path / "armv6", ["a"]), programs={"redis-cli": tmp_path})
    assert asked[0].runs(other, folder_of, nothing) == []
    assert not folder_of(1).exists()


def test_runs_without_a_result_serve_no_other_cell(tmp_path: Path) -> None:
    shared = SharedHostRuns()
    spec = spec_of(tmp_path / "armv5", ["a"])
    late = [RUNS[0], HostRun(problem="late", seal="")]
    folder_of = functools.partial(host_folder, tmp_path / "armv5")
    assert shared.runs(spec, folder_of, lambda: late) == late
    assert shared.runs(spec, folder_of, nothing) == []
    assert shared.runs(spec, functools.partial(host_folder, tmp_path / "armv6"), nothing) == []


@pytest.mark.parametrize(
    ("tests", "failed", "are_shared"),
    [
        (["a", "b", "c"], ["c"], True),
        (["b", "a", "c"], ["c"], False),
        (["a", "c"], ["c"], False),
        (["a", "b", "c"], ["b", "c"], False),
    ],
    ids=["the same", "another order", "fewer before", "more that failed"],
)
def test_runs_of_preceded_tests_serve_cells_with_the_same_tests_in_the_same_order(
    tmp_path: Path, tests: list[str], failed: list[str], are_shared: bool
) -> None:
    shared = SharedHostRuns()
    of_one, of_other = (functools.partial(host_folder, tmp_path / name) for name in ("armv5", "armv6"))
    for number in (1, 2):
        fakes.write(of_one(number) / "events.jsonl", f"run {number}\n")
    before = spec_of(tmp_path / "armv5", ["a", "b", "c"])
    assert shared.preceded_runs(before, ["c"], of_one, lambda: RUNS) == RUNS
    assert shared.runs(before, functools.partial(host_folder, tmp_path / "alone"), nothing) == []
    found = shared.preceded_runs(spec_of(tmp_path / "armv6", tests), failed, of_other, nothing)
    assert found == (RUNS if are_shared else [])
    assert of_other(1).exists() == are_shared
