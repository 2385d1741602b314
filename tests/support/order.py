"""Which tests begin first, and which stay in one process, when pytest-xdist runs them in several.

The longest begin first, over all files, so that none begins when all others have ended. tests/durations.json has the
seconds that tests took; `python -m tools.test_times --expect` writes it from a run's records. A test that it does not
name counts as short, so a stale file costs time and nothing else.

The tests of a file stay together, in their order, except end-to-end tests that share nothing. Whether they do is read
from the file: a fixture with a wider scope than a function, or a cached function.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from harness.core import json_codec
from harness.core.strict_toml import ROOT
from tests.support.waits import COLLECTION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

    from tests.support.waits import TimedTest

EXPECTED = ROOT / "tests" / "durations.json"
KEPT_SECONDS = 2.0
"""The shortest duration that the file names."""
_SEPARABLE = "tests/end_to_end/"
_SHARES = re.compile(r'scope="(?:class|module|package|session)"|^ *@(?:functools\.)?(?:lru_)?cache\b', re.MULTILINE)


def unit_of(test: str) -> str:
    """The name of what runs in one process: the test's file, or the test alone."""
    file = test.partition("::")[0]
    return test if file.startswith(_SEPARABLE) and not shares(file) else file


@cache
def shares(file: str) -> bool:
    """Whether the tests of a file have something in common that takes time."""
    return _SHARES.search((ROOT / file).read_text("utf-8")) is not None


def read_expected(file: Path = EXPECTED) -> dict[str, float]:
    """Unit -> the seconds that it takes."""
    return json_codec.decode(file.read_bytes(), dict[str, float]) if file.exists() else {}


def write_expected(records: Iterable[TimedTest], file: Path = EXPECTED) -> None:
    """Keep the durations of a run for the following ones, without the shortest, rounded to two digits."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for one in records:
        if one.test != COLLECTION:
            seconds[unit_of(one.test)] += one.real
    kept = {unit: float(f"{took:.2g}") for unit, took in sorted(seconds.items()) if took >= KEPT_SECONDS}
    file.write_bytes(json_codec.pretty(kept))


def longest_first(items: list[pytest.Item], expected: dict[str, float]) -> None:
    """Order tests in place by the duration of their units. Within a unit, their order stays."""
    items.sort(key=lambda item: -expected.get(unit_of(item.nodeid), 0.0))


class LongAndShort(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process long and short units in turn.

    A process always has the test after the running one, too (pytest cleans up after a test according to the next one).
    If that were a long one, it would wait for another long one while other processes run short ones.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        # The order is that of the tests, not that of the number of tests in a unit.
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._had_long: set[WorkerController] = set()

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node in self._had_long:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        self._had_long ^= {node}
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._pending_of(self.assigned_work[node]) < 2 or not self.workqueue:
            super()._reschedule(node)
