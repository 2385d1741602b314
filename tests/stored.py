"""Stored evidence, and what it is judged as: for the tests of judging, by subject."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from harness.judge import judge
from harness.runs import conclude
from tests import fakes
from tests.fakes import StoredRun, fault

if TYPE_CHECKING:
    from pathlib import Path

    from harness.errors import ExitCode
    from harness.finding import Finding
    from harness.judge import Judgement

BITOP = b"*1\r\n$5\r\nBITOP\r\n"


def judged(stored: StoredRun) -> tuple[list[Finding], dict[str, str]]:
    findings, cells, _ = judge(stored.finish())
    return findings, {f"{cell.target}/{cell.suite}": cell.verdict for cell in cells}


def known_file(tmp_path: Path, *entries: str) -> Path:
    head = "" if entries else "findings = []\n"
    return fakes.write(tmp_path / "known.toml", head + "".join(f"[[findings]]\n{entry}\n" for entry in entries))


def concluded(tmp_path: Path, stored: StoredRun, *entries: str) -> tuple[Judgement, ExitCode]:
    return conclude(stored.finish(), known_file(tmp_path, *entries), fakes.quiet())


def a_fault(stored: StoredRun, *, target: str = "armv5", function: str = "bitopCommand", number: int = 0) -> None:
    """A test of BITOP that died of a misaligned load."""
    pc = stored.place(target, function)
    stored.fault(target, "bitops", "guest-1", fault(pc=pc))
    stored.test(
        target,
        "bitops",
        "test_bitop",
        outcome="failed",
        message="ServerGoneError: connection closed by the server",
        guest="guest-1",
        faults=(number, number + 1),
        command="BITOP AND c a b",
        transcript=BITOP,
    )
    stored.guest(target, "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_bitop")


def two_machines(tmp_path: Path) -> StoredRun:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in stored.targets:
        stored.canary(name)
        stored.test(name, "bitops", "test_one")
    return stored


ENTRY = """id = "{id}"
server = "redis-3.2.6"
targets = ["armv5"]
reason = "issue 3273"
expires = {expires}
"""


def entry(finding: str, *, days: int = 1) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return ENTRY.format(id=finding, expires=today + datetime.timedelta(days=days))
