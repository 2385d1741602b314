"""A plugin for pytest: `-p tests.support.collected` prints a line of JSON for each test that pytest collects.

It says whether the test was selected, what its marker `slow` says, and whether it is costly. Only pytest knows these
for certain.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_COLLECTED: list[pytest.Item] = []


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember a test, which may be deselected later."""
    _COLLECTED.append(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print every test. `instead` is what its nearest marker `slow` that has one says; None: no marker `slow`."""
    selected = {item.nodeid for item in session.items}
    for item in _COLLECTED:
        marks = [mark.kwargs.get("instead", "") for mark in item.iter_markers("slow")]
        instead = next(filter(None, marks), "") if marks else None
        costly = item.get_closest_marker("costly") is not None
        found = {"test": item.nodeid, "selected": item.nodeid in selected, "instead": instead, "costly": costly}
        print(json.dumps(found))  # noqa: T201
