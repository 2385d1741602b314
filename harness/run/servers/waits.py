"""Says how long a cell's tests wait for a state that tests before them have awaited in vain.

A tree whose replication link never comes up would cost each test of replication its whole time limit. After two tests
have waited in vain for the same state, the others wait for a fraction of the limit. If the state does not come about in
that time either, they are blocked: nobody knows whether they would have passed. So it is with the reply to a command at
which the server hung in two tests, or in one although it had a processor: all further replies have a fraction of their
time, and less after each test that this blocks. If tests of a file are blocked in a row, its other tests get no server.
A command at which servers of two other cells hung counts as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.servers.hang_ledger import HangLedger

WAITED = "timed out waiting for"
"""How a test's words begin where a state did not come about in time: whether its server hangs, is another question."""
NO_TIME = "it was not given the usual time to reply"
"""What is said of a server whose reply had only a fraction of its time."""
ENOUGH = 2
"""How many tests wait in vain for a state before it blocks others. One may be bad luck on a busy machine."""
FRACTION = 0.1
"""The part of its time limit that a blocked test waits: the state may still come about, for example with other options.
"""
LEAST_SECONDS = 1.0
"""The shortest time limit of a reply."""
IN_A_ROW = 4
"""How many tests of a file in a row get no reply before the file's other tests get no server."""
_REPLY = "a reply to "


class BlockedError(Exception):
    """A state did not come about in a fraction of its time limit, after tests had waited for it in vain.

    It is no TimeoutError, which a test may expect: with less time, its assertions would say nothing.
    """

    def __init__(self, what: str, blockers: tuple[str, ...]) -> None:
        super().__init__(f"{WAITED} {what}, for which {' and '.join(blockers)} waited in vain")
        self.blockers = blockers
        """The tests that waited in vain."""


class Waits:
    """The states that a cell's tests have awaited in vain."""

    def __init__(self, test: Callable[[], str] = str, ledger: HangLedger | None = None) -> None:
        """`test` returns the name of the test that runs. Without one, no test blocks another. `ledger`: what other
        cells have seen; None: nothing.
        """
        self._test = test
        self._ledger = ledger
        self._of_others: dict[str, tuple[str, ...]] = {}
        """Commands at which servers of other cells hung -> their tests, when the last server started."""
        self._in_vain: dict[str, list[str]] = {}
        """State -> the tests that awaited it to the end of their time limit."""
        self._certain: set[str] = set()
        """States that one test has awaited long enough."""
        self._late = 0
        """Tests without a reply in a fraction of its time."""
        self._row: list[str] = []
        """The last of them, without a test in between that had replies."""

    def limit(self, what: str, seconds: float) -> float:
        """How long to wait for a state whose time limit is that many seconds."""
        return seconds * FRACTION if self._blockers(what) else seconds

    def expired(self, what: str, detail: str = "") -> TimeoutError | BlockedError:
        """The error of a wait that has reached its limit: a BlockedError if tests before this one waited in vain.

        `detail` follows the words of a TimeoutError.
        """
        if blockers := self._blockers(what):
            return BlockedError(what, tuple(blockers))
        test = self._test()
        if test and test not in (tests := self._in_vain.setdefault(what, [])):
            tests.append(test)
        return TimeoutError(f"{WAITED} {what}{detail}")

    def hung(self, command: str, *, certain: bool = False) -> None:
        """Record that the server did not reply to a command in the present test. `certain`: the machine is not to
        blame, so one test is enough.
        """
        self.expired(f"{_REPLY}{command}")
        if certain:
            self._certain.add(f"{_REPLY}{command}")
        if self._ledger is not None:
            self._ledger.add(command, self._test())

    def starting(self) -> None:
        """Learn what other cells have seen: a server starts. While it runs, the time limit of its replies stands."""
        if self._ledger is not None:
            self._of_others = self._ledger.of_others()

    def blocked(self) -> None:
        """Record that the present test had no reply in a fraction of its time."""
        self._late += 1
        test = self._test()
        self._row = [one for one in self._row if _file_of(one) == _file_of(test) and one != test] + [test]

    def replied(self) -> None:
        """Record that the last test that used the present server had its replies."""
        self._row.clear()

    def refusal(self) -> BlockedError | None:
        """Why the present test gets no server; None if it gets one."""
        is_next = len(self._row) >= IN_A_ROW and _file_of(self._row[-1]) == _file_of(self._test())
        return self.late_reply() if is_next else None

    def reply_limit(self, seconds: float) -> float:
        """How long to wait for a reply whose time limit is that many seconds."""
        if self.late_reply() is None:
            return seconds
        return max(seconds * FRACTION * 0.5**self._late, LEAST_SECONDS)

    def late_reply(self) -> BlockedError | None:
        """Why a reply that does not come in the present test says nothing; None if it does."""
        hanging = (what for what in self._in_vain if what.startswith(_REPLY) and self._blockers(what))
        what = next(hanging, "")
        if not what and self._of_others:
            command, tests = next(iter(self._of_others.items()))
            return BlockedError(f"{_REPLY}{command}", tests)
        return BlockedError(what, tuple(self._blockers(what))) if what else None

    def _blockers(self, what: str) -> list[str]:
        """The tests by whose failures the present one is blocked; empty if it is not."""
        tests = self._in_vain.get(what, [])
        is_enough = len(tests) >= ENOUGH or what in self._certain
        return tests if is_enough and self._test() not in tests else []


def _file_of(test: str) -> str:
    return test.partition("::")[0]
