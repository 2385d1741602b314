"""The commands of a failed test that names no server, because it looked at a file or at several servers.

The reproducer of such a finding contains no commands. The transcripts of the servers that the test started do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.judge.reproducer import packed_files
from harness.record import event_log
from harness.record.cell_events import GuestEvent
from harness.record.run_folder import INPUTS
from harness.record.transcript import load

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Witness
    from harness.judge.reproducer import Reproducer


def with_commands_of_test(folder: Path, witness: Witness, reproducer: Reproducer) -> Reproducer:
    """The reproducer with what the test sent to its own server on the witness's target, if it has no commands.

    If there were several servers, the one that received the most commands counts.
    """
    if reproducer.chunks or reproducer.again is not None or reproducer.unit or reproducer.upstream:
        return reproducer
    cell = folder / witness.target / witness.suite
    tests = witness.tests
    sent = [
        (path.stat().st_size, event, path)
        for event in event_log.read_events(cell / event_log.NAME)
        if isinstance(event, GuestEvent) and event.own and event.test in tests and not event.target
        if event.transcript and (path := cell / event.name / event.transcript).is_file()
    ]
    if not sent:
        return reproducer
    _, event, path = max(sent, key=lambda one: one[0])
    files = packed_files(cell / event.name / INPUTS)
    return msgspec.structs.replace(
        reproducer, target=witness.target, chunks=load(path), options=event.options, files=files, tls=event.tls
    )
