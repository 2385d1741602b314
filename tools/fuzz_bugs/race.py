"""`python -m tools.fuzz_bugs.race CELL.json SECONDS`: fuzzes one server until a stream fails, and prints what it took.

The streams are those of `plumb fuzz`: the session, the guide and the corpus are the suite's own. Time is the processor
time of this process, of the guest and of the native build together, from the moment at which both servers are ready.
The shrinking of the failure is not part of it.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import psutil  # type: ignore[import-untyped]

from harness.core import json_codec
from harness.core.processes import processor_time
from harness.run.cell_spec import read_cell
from harness.run.session.cell_session import CellSession
from suites.fuzz.emptying import Emptying
from suites.fuzz.session import FuzzSession
from tools.fuzz_bugs.document import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

TEST = "fuzz/test_streams.py::test_streams"


class _ShownError(Exception):
    """A stream has failed."""


class _UntilFailure(FuzzSession):
    """A session that ends at the first failure."""

    def _count(self, sameness: str, message: str) -> bool:
        super()._count(sameness, message)
        if message:
            raise _ShownError(sameness)
        return False


class _Meter(NamedTuple):
    """Measures the processor time of this process and of its servers."""

    servers: Sequence[Guest]
    begun: float

    @classmethod
    def of(cls, servers: Sequence[Guest]) -> _Meter:
        return cls(servers, _used(servers))

    @property
    def seconds(self) -> float:
        """Processor seconds since the beginning."""
        return _used(self.servers) - self.begun


def _used(servers: Sequence[Guest]) -> float:
    """Processor seconds so far. A server that has ended is among the children of this process."""
    total = processor_time.seconds()
    for server in servers:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(server.pid).cpu_times()
            total += float(times.user + times.system)
    return total


def found(cell: CellSpec, limit_seconds: float) -> Found:
    """Fuzz a cell's server until a stream fails, or has taken this many processor seconds."""
    run = CellSession(cell, private_network=True)
    emptying = Emptying()
    shown, is_old = "", False
    try:
        run.begin(TEST)
        meter = _Meter.of((run.servers.guest(), run.servers.oracle()))
        session = _UntilFailure(run, emptying, name="streams", share=1.0, learns=True)
        try:
            while session.more() and meter.seconds < limit_seconds:
                stream = session.next_stream()
                # The guide has not made it.
                is_old = not session.guide.way
                session.example(stream)
        except _ShownError as error:
            shown = str(error)
        except OSError as error:
            # The native build, which has the bug, too, hangs or is gone: the test of the suite ends with an error.
            shown = type(error).__name__
        return Found(
            seconds=round(meter.seconds, 2),
            streams=session.streams,
            commands=session.commands,
            shown=shown,
            at_once=bool(shown) and is_old,
        )
    finally:
        emptying.close()
        run.close()


def main() -> None:
    """Measure a cell."""
    _, cell, limit_seconds = sys.argv
    click.echo(json_codec.encode(found(read_cell(Path(cell)), float(limit_seconds))).decode())


if __name__ == "__main__":
    main()
