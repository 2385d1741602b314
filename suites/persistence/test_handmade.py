"""The target loads or refuses files that no current server writes as the native build does, with the same message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.target_model import ORACLE
from harness.run.server_process import StartError
from suites._shared.formats.handmade import FILES
from suites._shared.keyspace import server
from suites._shared.keyspace.values import differences
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.keyspace.values import Key, KeyEntry

OPTIONS = [*server.OPTIONS, "--maxmemory-policy", "allkeys-lru"]


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_made_by_hand_is_taken_as_on_this_machine(
    content: bytes, start_guest: StartGuest, cell: CellSpec
) -> None:
    require(cell, "option sanitize-dump-payload")
    if cell.tier in {"quick", "kernel"}:
        pytest.skip("it starts two servers for each file: only in the tiers full and thorough")
    native, guest = (taken(start_guest, target, content) for target in (ORACLE, ""))
    if isinstance(native, str) or isinstance(guest, str):
        assert guest == native
        return
    assert differences(native, guest) == []


def taken(start_guest: StartGuest, target: str, content: bytes) -> dict[Key, KeyEntry] | str:
    """The data that a server loads from a file, or the message with which it refuses the file."""
    try:
        guest = start_guest(target=target, options=OPTIONS, files={"dump.rdb": content}, may_refuse=True)
    except StartError as error:
        return str(error)
    return server.snapshot(guest)
