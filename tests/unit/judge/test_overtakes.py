"""Of stores that a thread saw in another order, a report first names those that concern the place of the failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.analysis.symbols import Symbols
from harness.core.finding import Frame
from harness.judge.sightings.overtakes import overtakes_of
from harness.record.fault_log import FaultLog, MapRecord, Overtake

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fake_symbols")

TAIL, DATA, COUNTER, IS_FULL, PUSH, USED = range(0x1000, 0x1600, 0x100)
LINES = f"""{TAIL:#x} pop /cache/work/1/tree/src/queue.c:12
{DATA:#x} pop /cache/work/1/tree/src/queue.c:11
{COUNTER:#x} count /cache/work/1/tree/src/count.c:7
{IS_FULL:#x} is_full /cache/work/1/tree/src/queue.c:49
{PUSH:#x} push /cache/work/1/tree/src/queue.c:66
{USED:#x} used /cache/work/1/tree/src/count.c:9
"""
FAILED = Frame(function="push", file="src/queue.c", line=66, origin="server", pc=PUSH)


def first_two(tmp_path: Path, *seen: tuple[int, int, int]) -> list[str]:
    """The first two sentences on overtakes, each an early and a late store and their reader."""
    server = tmp_path / "server"
    server.write_text("no real binary", "utf-8")
    (tmp_path / "server.lines").write_text(LINES, "utf-8")
    maps = [MapRecord(start=0, end=0x100000, offset=0, path=str(server))]
    overtakes = [
        Overtake(
            event="overtake", pid=1, tid=2, pc=load, early=early, late=late, early_place=0, late_place=8, maps=maps
        )
        for early, late, load in seen
    ]
    log = FaultLog(faults=[], counts={}, ends={}, damage=[], overtakes=overtakes)
    return list(overtakes_of(log, Symbols("fake", str(server)), 1, FAILED)[:2])


def said(early: str, late: str, load: str) -> str:
    return f"the store in {early} was visible before {late}, read by {load}"


def test_stores_read_where_it_failed_come_first(tmp_path: Path) -> None:
    assert first_two(tmp_path, (COUNTER, DATA, PUSH), (TAIL, DATA, IS_FULL), (TAIL, COUNTER, USED)) == [
        said("count (src/count.c:7)", "pop (src/queue.c:11)", "push (src/queue.c:66)"),
        said("pop (src/queue.c:12)", "pop (src/queue.c:11)", "is_full (src/queue.c:49)"),
    ]


def test_of_those_read_there_the_ones_of_its_file_come_first(tmp_path: Path) -> None:
    """Stores of counters pass the one that matters, too."""
    assert first_two(tmp_path, (TAIL, DATA, PUSH), (COUNTER, DATA, PUSH), (TAIL, COUNTER, USED)) == [
        said("pop (src/queue.c:12)", "pop (src/queue.c:11)", "push (src/queue.c:66)"),
        said("count (src/count.c:7)", "pop (src/queue.c:11)", "push (src/queue.c:66)"),
    ]
