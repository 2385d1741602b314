"""What is known of each mutant, as lines of JSON that an interrupted command continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Stage = Literal["covering", "quick", "end_to_end", "slow"]
"""Which tests ran: those of `ci/test --quick` that execute the place, all of `ci/test --quick`, those that
`ci/test` adds, and those that `ci/test --all` adds."""
State = Literal["killed", "survived", "uncovered"]
"""`uncovered`: no test executes the place, so none ran."""
TIME = "time limit"
"""What kills a mutant that does not end."""


class Entry(Record, frozen=True):
    """One stage of one mutant."""

    mutant: str
    stage: Stage
    state: State
    by: str = ""
    """The test that failed."""
    files: list[str] = msgspec.field(default_factory=list)
    """Of the end-to-end tests: the files of which all tests that enter the function have run."""
    seconds: float = 0.0


class Journal:
    """A file of entries. Those of a mutant's stage count together: several commands may try different files of tests at
    the same time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[tuple[str, Stage], Entry] = {}
        if path.exists():
            # A command that was killed may have left half a line.
            whole = path.read_bytes().rpartition(b"\n")[0]
            for line in whole.splitlines():
                self._keep(json_codec.decode(line, Entry))
            path.write_bytes(whole + b"\n" if whole else b"")

    def add(self, entry: Entry) -> None:
        """Record an entry."""
        self._keep(entry)
        with self._path.open("ab") as stream:
            stream.write(json_codec.encode(entry) + b"\n")

    def get(self, mutant: str, stage: Stage) -> Entry | None:
        """The entry of a mutant's stage."""
        return self._entries.get((mutant, stage))

    def killed(self, mutant: str, stages: Iterable[Stage]) -> Entry | None:
        """The first of these stages that killed a mutant."""
        found = (self.get(mutant, stage) for stage in stages)
        return next((entry for entry in found if entry is not None and entry.state == "killed"), None)

    def _keep(self, entry: Entry) -> None:
        place = entry.mutant, entry.stage
        earlier = self._entries.get(place, entry)
        killed = earlier if earlier.state == "killed" else entry
        self._entries[place] = msgspec.structs.replace(killed, files=list(dict.fromkeys(earlier.files + entry.files)))
