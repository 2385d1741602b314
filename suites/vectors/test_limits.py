"""Sizes that wrap at the end of a machine's word are refused, or have their full effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.keyspace import server
from suites._shared.needs import skip_in_short_tiers

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest

# With 32 bits an effort of 2^30 also wraps. It is not sent, because the server would overwrite its heap and so make all
# later results meaningless.
WRAPPING: dict[str, list[Any]] = {
    "effort": ["VSIM", "k", "ELE", "0", "EF", 1 << 62],
    "dimension": ["VADD", "new", "VALUES", (1 << 63) - 1, 1, "0"],
}
"""Requests for which the size of an allocation wraps in 64 bits."""


@pytest.mark.parametrize("name", WRAPPING)
def test_a_size_that_wraps_is_refused(name: str, cell: CellSpec, start_guest: StartGuest) -> None:
    """The oracle does not receive the request, because it may crash."""
    request = WRAPPING[name]
    skip_in_short_tiers(cell, "Redis 8.0 crashes on every machine (docs/FOUND.md), which must not block a merge")
    with server.client(start_guest()) as client:
        client.pipeline([["VADD", "k", "VALUES", 1, 1, number] for number in range(30)])
        reply, *after = client.pipeline([request, ["VCARD", "k"], ["DEL", "k"], ["VCARD", "k"]])
    assert isinstance(reply, Exception) or (isinstance(reply, list) and len(reply) == 10), f"{request}: {reply!r:.200}"
    assert after == [30, 1, 0], f"after {request}: {after!r:.200}"
