"""A single sentinel answers requests as the native build does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from harness.core.target_model import ORACLE
from harness.protocol.command_stream import from_text
from suites._shared import one_by_one
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest

REQUESTS = """
SENTINEL HELP
SENTINEL MASTERS
SENTINEL PRIMARIES
SENTINEL MONITOR watched 127.0.0.1 4660 2
SENTINEL MONITOR watched 127.0.0.1 4660 2
SENTINEL MONITOR other 127.0.0.1 99999 2
SENTINEL MONITOR other 127.0.0.1 1 0
SENTINEL GET-MASTER-ADDR-BY-NAME watched
SENTINEL GET-PRIMARY-ADDR-BY-NAME watched
SENTINEL GET-MASTER-ADDR-BY-NAME none
SENTINEL SET watched down-after-milliseconds 4294967297
SENTINEL SET watched failover-timeout 4294967298
SENTINEL SET watched parallel-syncs 3
SENTINEL SET watched quorum 258
SENTINEL SET watched quorum 0
SENTINEL SET watched master-reboot-down-after-period 4294967299
SENTINEL SET watched nothing 1
SENTINEL MASTER watched
SENTINEL PRIMARY watched
SENTINEL MASTERS
SENTINEL MASTER none
SENTINEL REPLICAS watched
SENTINEL SLAVES watched
SENTINEL SENTINELS watched
SENTINEL CKQUORUM watched
SENTINEL CKQUORUM none
SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 4660 4294967297 *
SENTINEL IS-PRIMARY-DOWN-BY-ADDR 127.0.0.1 4660 4294967297 *
SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 4660 4294967298 0123456789012345678901234567890123456789
SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 4660 1 9876543210987654321098765432109876543210
SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 65535 1 *
SENTINEL MYID
SENTINEL PENDING-SCRIPTS
SENTINEL CONFIG GET announce-*
SENTINEL CONFIG SET announce-port 4660
SENTINEL CONFIG SET announce-port 65536
SENTINEL CONFIG GET announce-port
SENTINEL DEBUG
SENTINEL DEBUG INFO-PERIOD 4294967297
SENTINEL DEBUG PING-PERIOD 0
SENTINEL DEBUG
SENTINEL INFO-CACHE watched
SENTINEL SIMULATE-FAILURE HELP
SENTINEL FLUSHCONFIG
SENTINEL FAILOVER watched
SENTINEL RESET watch*
SENTINEL REMOVE watched
SENTINEL REMOVE watched
SENTINEL RESET *
SENTINEL MASTERS
ROLE
SET k v
"""
TIMES = ("last-", "info-refresh", "role-reported-time", "s-down-time", "o-down-time", "link-", "leader")
"""Prefixes of fields that contain elapsed milliseconds, or that depend on whether the link is up yet."""
LONG_AGO = 1_000_000_000_000
"""A time in milliseconds since 1970, far above every other number in the replies."""
STATES = {"flags", "runid", "num-link"}
_DRAWN = re.compile(r"\b[0-9a-f]{40}\b")


def shown(reply: Any) -> str:
    """A reply as text, with words instead of times and of random identifiers."""
    if isinstance(reply, Exception):
        return f"error: {reply}"
    if isinstance(reply, list) and reply[:1] == [b"name"]:
        named = zip(reply[::2], reply[1::2], strict=True)
        return " ".join(f"{bytes(name).decode()}={_steady(bytes(name).decode(), value)}" for name, value in named)
    if isinstance(reply, list):
        return "[" + ", ".join(map(shown, reply)) + "]"
    if isinstance(reply, int) and reply > LONG_AGO:
        return "NOW"
    return _DRAWN.sub("NUMBER", repr(reply))


def _steady(name: str, value: Any) -> str:
    return "…" if name.startswith(TIMES) or name in STATES else repr(value)


def test_a_sentinel_alone_answers_as_on_this_machine(start_guest: StartGuest, cell: CellSpec) -> None:
    require(cell, "command replicaof")
    files = {"sentinel.conf": b"sentinel deny-scripts-reconfig yes\n"}
    guest, native = (
        one_by_one.answers(
            start_guest(target=target, options=["sentinel.conf", "--sentinel"], files=files), from_text(REQUESTS), shown
        )
        for target in ("", ORACLE)
    )
    one_by_one.compare(guest, native, cell.runner.target.name)
