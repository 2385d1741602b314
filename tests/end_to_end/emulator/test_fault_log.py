"""The emulator's fault log keeps its records, or reports a loss, whatever the guest does to its descriptors."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.record import fault_log
from harness.record.fault_log import FaultLog, ProcessEnd
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

SOURCES = ROOT / "tests" / "support" / "data" / "faults"


@pytest.fixture(scope="module", params=["armv5", "sparc64"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def program(target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return machines.compiled(target, SOURCES / "escape.c", tmp_path_factory.mktemp("escape"))


def ran(
    target: str,
    program: Path,
    folder: Path,
    *arguments: str,
    policy: str = "signal",
    fatal_faults: Path | None = None,
    no_crash_maps: bool = False,
) -> tuple[process.Result, FaultLog]:
    log = folder / fault_log.NAME
    fault_log.open_ledger(log)
    command = machines.runner(target, policy).command(
        program, arguments, log, fatal_faults=fatal_faults, no_crash_maps=no_crash_maps
    )
    return process.run(command, deadline_seconds=120, folder=folder), fault_log.read(log)


@pytest.mark.parametrize("how", ["", "close", "reuse"])
def test_faults_are_recorded_although_the_guest_closes_or_reuses_the_logs_descriptor(
    target: str, program: Path, tmp_path: Path, how: str
) -> None:
    own = tmp_path / "own"
    result, log = ran(target, program, tmp_path, how, str(own))
    assert result.code == -signal.SIGBUS, result.text
    assert (len(log.faults), log.damage) == (1, [])
    (end,) = log.ends.values()
    assert end == ProcessEnd(event="end", pid=log.faults[0].pid, signal=signal.SIGBUS, status=0)
    assert not own.exists() or not own.read_bytes(), "a record was written to the guest's own file"


def test_a_record_that_exceeds_a_file_size_limit_is_reported_missing_and_kills_no_process(
    target: str, program: Path, tmp_path: Path
) -> None:
    result, log = ran(target, program, tmp_path, "limit")
    assert result.code == -signal.SIGBUS, "the limit killed the guest, not its own fault"
    assert log.faults == []
    assert log.damage


def test_a_fault_that_repeats_is_counted_and_recorded_in_full_a_few_times(
    target: str, program: Path, tmp_path: Path
) -> None:
    result, log = ran(target, program, tmp_path, "repeat", "1000")
    assert (result.code, log.damage) == (0, [])
    (counted,) = log.counts.values()
    assert (counted, len(log.faults)) == (1000, 8)
    assert {fault.pc for fault in log.faults} == {pc for _, pc in log.counts}


def test_how_every_process_ended_is_recorded(target: str, program: Path, tmp_path: Path) -> None:
    result, log = ran(target, program, tmp_path, "abort")
    assert (result.code, log.damage, log.faults) == (7, [], [])
    assert sorted((end.signal, end.status) for end in log.ends.values()) == [(0, 7), (signal.SIGABRT, 0)]


def test_a_second_death_from_the_same_access_is_recorded_but_not_reported(
    target: str, program: Path, tmp_path: Path
) -> None:
    fatal = tmp_path / "fatal"
    runs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        runs.append(ran(target, program, tmp_path / name, "report", fatal_faults=fatal))
    assert [("reported" in result.text, result.code) for result, _ in runs] == [
        (True, -signal.SIGBUS),
        (False, -signal.SIGBUS),
    ]
    (first,), (second,) = (log.faults for _, log in runs)
    assert (second.pc, second.address, second.handled) == (first.pc, first.address, True)
    assert [[end.signal for end in log.ends.values()] for _, log in runs] == [[signal.SIGBUS]] * 2


def test_a_program_that_survives_its_faults_survives_later_runs(target: str, program: Path, tmp_path: Path) -> None:
    fatal = tmp_path / "fatal"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        result, log = ran(target, program, tmp_path / name, "repeat", "3", fatal_faults=fatal)
        assert (result.code, list(log.counts.values()) or len(log.faults)) == (0, 3)
    assert not fatal.exists()


@pytest.mark.parametrize(("hidden", "after"), [(False, "maps"), (True, "no maps")])
def test_a_crash_handler_finds_no_memory_to_test_if_the_maps_are_hidden(
    target: str, program: Path, tmp_path: Path, *, hidden: bool, after: str
) -> None:
    result, log = ran(target, program, tmp_path, "maps", no_crash_maps=hidden)
    assert result.text.splitlines()[:2] == ["maps", after]
    assert (result.code, len(log.faults), log.damage) == (-signal.SIGBUS, 2, [])


def test_several_words_that_one_instruction_moves_are_one_access_each_time(tmp_path: Path) -> None:
    program = machines.compiled("armv6", SOURCES / "several.c", tmp_path)
    result, log = ran("armv6", program, tmp_path, policy="audit")
    assert (result.code, log.damage) == (0, [])
    assert list(log.counts.values()) == [1000, 1000]
