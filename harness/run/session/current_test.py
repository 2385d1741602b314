"""The test, or the example of one, that runs now, and where its evidence begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from harness.core.byte_diff import DifferenceError
    from harness.record.cell_events import Counters
    from harness.run.upstream.session import UpstreamResult


class CurrentTest(msgspec.Struct, kw_only=True):
    """What is known about the test so far; empty between tests."""

    name: str = ""
    """The test's name, with the label of the example that is being recorded."""
    whole_name: str = ""
    """The test's own name."""
    note: str = ""
    """The remark of a test that passes: how many examples it ran."""
    examples_failed: bool = False
    examples_tell: bool = False
    """Whether it fails only because examples failed."""
    cut_short: str = ""
    """Why it ended before it had run everything; empty if it ran everything."""
    blocked: bool = False
    """Whether it has no server because servers do not start."""
    blockers: tuple[str, ...] = ()
    """The tests that awaited in vain what did not come about in this one either."""
    unit: str = ""
    """The unit that it runs instead of a server."""
    wrong_line: str = ""
    """The wrong line of that unit's output."""
    asserted: str = ""
    """The place of its failed assertion, as in TestEvent."""
    doubt: str = ""
    """Why its failure says nothing about the target; empty if it does."""
    upstream_result: UpstreamResult | None = None
    """Its result, if it is one of the release's own tests."""
    difference: DifferenceError | None = None
    """The bytes that differ, as it reported them."""
    faults_before: int = 0
    log_before: int = 0
    """How many faults, and bytes of the log, the present guest had when it began."""
    counters_before: Counters | None = None
    """The kernel's counters then."""

    def begin(self, name: str) -> None:
        """A test starts."""
        self.name = self.whole_name = name
        self.examples_failed = self.examples_tell = False
        self.note = self.cut_short = ""

    def begin_example(self) -> None:
        """An example of it starts, or all of a test without examples: its evidence is separate from the others'."""
        self.name = self.whole_name
        self.blocked = False
        self.unit = self.wrong_line = self.doubt = self.asserted = ""
        self.upstream_result = None
        self.difference = None
        self.blockers = ()

    def label(self, example: str) -> None:
        """Name it after an example, which has its own record."""
        self.name = f"{self.whole_name}[{example}]"
