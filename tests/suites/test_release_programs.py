"""Programs of a release that a suite runs: their records of faults are accepted only if they are complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import InfrastructureError
from harness.run.servers.endings import EndedByAnotherError
from suites._shared.programs import Programs
from tests.support import cells, fakes

if TYPE_CHECKING:
    from pathlib import Path


def programs(folder: Path, script: str) -> Programs:
    """A release whose client is a script. It runs in `folder`, where a target's emulator would write its log."""
    fakes.write(folder / "programs" / "redis-cli", f"#!/bin/sh\n{script}\n", mode=0o755)
    spec = cells.spec_of("programs", folder, fakes.unemulated(fakes.target()))
    cell = msgspec.structs.replace(spec, programs={fakes.target().name: folder / "programs"})
    return Programs(cell, "redis", folder)


def test_a_program_with_a_complete_record_of_faults_is_accepted(tmp_path: Path) -> None:
    assert programs(tmp_path, "echo done; exit 3").run("cli").code == 3


@pytest.mark.parametrize(
    "damage",
    ['printf \'{"event":"fault"\' > faults-1.jsonl', "printf 1234567890123456 > faults-1.jsonl.counts"],
    ids=["a record is cut", "a record was begun and not written"],
)
def test_a_program_whose_record_of_faults_is_damaged_ends_the_cell(tmp_path: Path, damage: str) -> None:
    with pytest.raises(InfrastructureError, match="the faults of a program cannot be read"):
        programs(tmp_path, damage).run("cli")


def test_a_program_that_a_signal_ends_fails_its_test_whatever_its_record(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was ended by a signal"):
        programs(tmp_path, "printf x > faults-1.jsonl; kill -ABRT $$").run("cli")


@pytest.mark.parametrize("number", ["TERM", "KILL", "SEGV"])
def test_a_program_that_another_process_ends_fails_no_test(tmp_path: Path, number: str) -> None:
    """Regression: a signal from outside was a failed test of the target. Nothing raises SIGSEGV without a fault."""
    ran = programs(tmp_path, f"kill -{number} $$")
    ran.cell = msgspec.structs.replace(ran.cell, runner=msgspec.structs.replace(ran.cell.runner, records_faults=True))
    with pytest.raises(EndedByAnotherError, match=f"redis-cli was killed by SIG{number}"):
        ran.run("cli")
