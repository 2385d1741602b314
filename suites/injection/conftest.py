"""Fixtures of the injection suite: servers whose system calls a test can make fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from suites.injection import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

AT_MOST = 24
"""Maximum number of calls of one kind that fail, one after the other, on an emulated machine below tier `thorough`."""


@pytest.fixture
def start(cell: CellSpec, start_guest: StartGuest) -> Callable[..., Guest]:
    """Starts a server of the cell's target, whose calls can fail."""

    def begin(*options: str, **files: bytes) -> Guest:
        return start_guest(preload=cell.preload, options=options, files={**faults.FILES, **files})

    return begin


@pytest.fixture
def each(cell: CellSpec) -> Callable[[int], Iterator[int]]:
    """Returns the numbers of the calls that fail, given the number of calls."""

    def numbers(count: int) -> Iterator[int]:
        every = cell.tier == "thorough" or cell.runner.target.slowdown <= 1
        step = 1 if every else -(-count // AT_MOST)
        first = 1 + cell.seed % step
        yield from range(first, count + 1, step)

    return numbers
