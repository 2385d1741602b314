"""Another user who connects to a server under test, where there is no private network, puts the cell in doubt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.plan.catalog import Catalog
from harness.record import cell_events, event_log
from harness.run.session.cell_session import CellSession
from harness.run.session.stranger_watch import StrangerWatch
from tests.support import cells, fakes

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LISTENS, CONNECTED = "0A", "01"
OURS, OTHER = os.geteuid(), os.geteuid() + 4321


def row(port: int, other: int, state: str, owner: int, inode: int = 77) -> str:
    ends = f"0100007F:{port:04X} 0100007F:{other:04X}"
    return f"   0: {ends} {state} 00000000:00000000 00:00000000 00000000 {owner:5}        0 {inode} 1 0 100 0\n"


@pytest.mark.parametrize(
    ("before", "later", "strangers"),
    [
        ([], [row(7000, 0, LISTENS, OURS), row(50000, 7000, CONNECTED, OTHER)], {OTHER}),
        ([], [row(7000, 0, LISTENS, OURS), row(50000, 7000, CONNECTED, OURS)], set()),
        # Root's; and a socket whose owner the kernel has forgotten.
        ([], [row(7000, 0, LISTENS, OURS), row(50000, 7000, CONNECTED, 0)], set()),
        ([], [row(7000, 0, LISTENS, OURS), row(50000, 7000, "06", OTHER, inode=0)], set()),
        # Another user's own server, and one that was there before.
        ([], [row(7000, 0, LISTENS, OTHER), row(50000, 7000, CONNECTED, OTHER)], set()),
        ([row(7000, 0, LISTENS, OURS)], [row(7000, 0, LISTENS, OURS), row(50000, 7000, CONNECTED, OTHER)], set()),
    ],
)
def test_only_another_users_connection_to_a_new_port_counts(
    before: list[str], later: list[str], strangers: set[int], tmp_path: Path
) -> None:
    table = fakes.write(tmp_path / "tcp", "".join([HEAD, *before]))
    watch = StrangerWatch((table, tmp_path / "no-tcp6"))
    fakes.write(table, "".join([HEAD, *later]))
    watch.look()
    assert watch.strangers == strangers
    assert bool(watch.doubt) == bool(strangers)


@pytest.mark.parametrize("alone", [False, True])
def test_a_test_that_passes_beside_a_stranger_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    """Regression: where there was no private network, other users could make tests fail, and fail at times."""
    table = fakes.write(tmp_path / "tcp", HEAD)
    monkeypatch.setattr("harness.run.session.stranger_watch.StrangerWatch.__init__.__defaults__", ((table,),))
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    session = CellSession(spec, private_network=alone)
    session.collected(1)
    session.begin("bitops/test_it")
    fakes.write(table, "".join([HEAD, row(7000, 0, LISTENS, OURS), row(50000, 7000, CONNECTED, OTHER)]))
    if session.strangers is not None:
        session.strangers.look()
    session.end("passed", "", 1.0)
    session.close()
    events = event_log.read_events(tmp_path / event_log.NAME)
    (recorded,) = [one for one in events if isinstance(one, cell_events.TestEvent)]
    assert (str(OTHER) in recorded.doubt) != alone
