"""Programs with one fault each, of the kinds that porters meet: a finding opens at the program's line, and replays."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.programs.test_programs import executed, plumb
from tests.end_to_end.support import machines
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


GO = {"GOARCH": "arm", "GOARM": "5", "CGO_ENABLED": "0", "GOEXPERIMENT": "nodwarf5"}
RUST_TARGET = "armv5te-unknown-linux-gnueabi"


def lacking(compiler: str) -> str:
    """Why a language's compiler makes no program of the target; empty if it does."""
    if shutil.which(compiler) is None:
        return f"there is no {compiler}"
    if compiler == "rustc":
        words = ["rustc", "--print", "target-libdir", "--target", RUST_TARGET]
        told = subprocess.run(words, capture_output=True, encoding="utf-8", check=True).stdout.strip()
        return "" if Path(told).is_dir() else f"{compiler} has no library for {RUST_TARGET}"
    return ""


@pytest.mark.slow(instead="nothing: few hosts have these compilers with the target's libraries")
@pytest.mark.parametrize(
    ("name", "words", "environment"),
    [
        ("stamp.go", ["go", "build"], GO),
        ("record.rs", ["rustc", "-g", "-O", "--target", RUST_TARGET, "-C", "linker=arm-linux-gnueabi-gcc"], {}),
    ],
    ids=["go", "rust"],
)
def test_a_fault_of_another_language_opens_at_its_line(
    tmp_path: Path, name: str, words: Sequence[str], environment: Mapping[str, str]
) -> None:
    if reason := lacking(words[0]):
        pytest.skip(reason)
    shutil.copy2(PROGRAMS / name, tmp_path)
    command = [*words, "-o", "planted", name]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, check=True)
    code, found = executed(tmp_path, "armv5", ["./planted"])
    assert code == ExitCode.FINDINGS
    first = found["findings"][0]
    assert (first["kind"], first["file"]) == ("alignment", name)
    assert {first["line"]} == marked(name)
