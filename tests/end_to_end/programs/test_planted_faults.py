"""Programs with one fault each, of the kinds that porters meet: a finding opens at the program's line, and replays."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.programs.test_programs import executed, plumb
from tests.end_to_end.support import machines
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PROGRAMS = fakes.DATA / "planted_faults"
MISALIGNED = {"frame.c": "alignment", "arena.c": "alignment", "cells.cc": "alignment"}
BYTE_ORDER = {"sorted.c": "assertion", "copied.c": "sigsegv", "digest.c": "exit"}
UNSIGNED_CHAR = {"options.cc": "exit"}
NARROW_LONG = {"logged.c": "sigsegv", "calendar.cc": "crash"}
FAULTS = {
    "armv5": MISALIGNED | UNSIGNED_CHAR | NARROW_LONG,
    "sparc64": MISALIGNED | BYTE_ORDER,
    "s390x": BYTE_ORDER | UNSIGNED_CHAR,
}
"""Target -> the programs that fail there, and the kinds of their findings."""
MARK = "FAULT"


def marked(name: str) -> set[int]:
    """The lines that a compiler may name for a program's fault."""
    lines = (PROGRAMS / name).read_text("utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if MARK in line}


@pytest.mark.parametrize("target", [name if name == "sparc64" else machines.beyond(name) for name in FAULTS])
def test_a_finding_opens_at_the_line_of_a_planted_fault_and_replays(tmp_path: Path, target: str) -> None:
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    code, found = executed(tmp_path, target, ["make", "-s", "check"])
    assert code == ExitCode.FINDINGS
    kinds = {one["file"]: one["kind"] for one in found["findings"]}
    assert kinds == FAULTS[target]
    elsewhere = {(one["file"], one["line"]) for one in found["findings"] if one["line"] not in marked(one["file"])}
    assert elsewhere == set()
    replayed = {
        one["file"]: plumb(tmp_path, "replay", one["replay"].rpartition(" ")[2]).returncode for one in found["findings"]
    }
    assert replayed == dict.fromkeys(FAULTS[target], ExitCode.FINDINGS)
