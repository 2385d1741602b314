"""Compares what a cell with another memory order showed with the same tests in the host's order (CellRecord.ordered).

A failure is blamed on memory order only if none of several runs in order shows it. One that a run in order shows as
well is an ordinary fault or an ordinary race. A time limit that expires proves nothing: the emulator is slower while
stores wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from harness.judge.causality import Evidence
from harness.judge.second_opinion import has_time_limit, is_same_failure
from harness.record import cell_events, event_log, evidence_seal, run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.sightings.sighting import Sighting
    from harness.record.cell_events import TestEvent
    from harness.record.run_record import CellRecord, RunRecord

Class = Literal["order", "usual", "late", ""]
"""order: no run in order shows it. usual: one does. late: none does, but it is a time limit that expired. Empty: there
is no answer.
"""


class InOrder:
    """What the same machine did in order, in the tests that failed in a cell."""

    def __init__(self, cell: Path, run: RunRecord, record: CellRecord) -> None:
        self.problem = next((one.problem for one in record.ordered if one.problem), "")
        """Why there is no answer although a test failed; empty if there is one, or none was asked for."""
        self._ran: list[dict[str, TestEvent]] = []
        self._shown: list[set[tuple[str, str]]] = []
        for number, each in enumerate(record.ordered if not self.problem else [], start=1):
            folder = run_folder.ordered_folder(cell, number)
            recorded = event_log.read(folder / event_log.NAME)
            evidence = Evidence(folder, run, record, recorded.events)
            self._shown.append({(one.test, one.identity) for one in evidence.sightings()})
            doubts = [*recorded.doubts, *evidence_seal.doubts(folder, each.seal), *evidence.doubts]
            self.problem = self.problem or next(iter(doubts), "")
            self._ran.append(
                {
                    event.name: event
                    for event in recorded.events
                    if isinstance(event, cell_events.TestEvent) and event.outcome != "skipped"
                }
            )

    def class_of(self, one: Sighting, test: TestEvent | None) -> Class:
        """The class of a sighting. `test`: the failed test that showed it."""
        if not self._ran or self.problem or test is None:
            return ""
        results = [ran[test.name] for ran in self._ran if test.name in ran]
        if len(results) < len(self._ran):
            return ""
        if one.detector == "suite":
            shown = any(is_same_failure(test, result) for result in results)
        else:
            shown = any((one.test, one.identity) in each for each in self._shown)
        if shown:
            return "usual"
        return "late" if one.kind == "hang" or has_time_limit(test.message) else "order"
