"""The guest refuses commands with one wrong word, and mutually exclusive options, exactly as the native build does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.protocol.command_stream import from_text
from suites.fuzz.grammar import lines_of_one
from suites.fuzz.mutate import refused
from suites.fuzz.session import FuzzSession
from suites.fuzz.values import Draw

if TYPE_CHECKING:
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.emptying import Emptying


# Errors that one wrong word cannot produce: options that exclude each other, or that require another option first.
EXCLUDED = {
    "streams": """
XADD s 1-1 f v
XADD s 1-2 f v g w
XGROUP CREATE s g 0 ENTRIESREAD -2
XGROUP CREATE s g 0 ENTRIESREAD none
XGROUP CREATE s g 0
XGROUP CREATE s g 0
XGROUP DELCONSUMER s nobody c
XGROUP SETID none g 0
XREAD GROUP g c STREAMS s 0
XREAD NOACK STREAMS s 0
XREAD STREAMS s >
XREAD STREAMS a b c d e f g h i j 0 0 0 0 0 0 0 0 0 0
XREAD COUNT 1
XREADGROUP STREAMS s 0
XREADGROUP COUNT 1 STREAMS s 0
XREADGROUP GROUP g c STREAMS s $
XREADGROUP GROUP g c NOACK STREAMS s >
XADD s MAXLEN 1 MINID 1 2-1 f v
XADD s MINID 1 MAXLEN 1 2-1 f v
XADD s MAXLEN ~ 1 LIMIT none 2-1 f v
XADD s MAXLEN ~ 1 LIMIT -1 2-1 f v
XADD s MAXLEN = 1 LIMIT 1 2-1 f v
XADD s LIMIT 1 2-1 f v
XADD s MAXLEN ~ 100 LIMIT 0 3-1 f v
XADD s NOMKSTREAM 3-* f v
XADD s 0-0 f v
XADD s 3-1 f v
XTRIM s
XTRIM s NOMKSTREAM 1
XTRIM s MINID ~ 2 LIMIT 5
XPENDING s g IDLE none - + 1
XPENDING s g IDLE 0 - + 1
XPENDING s g IDLE 0 - + 1 c
XPENDING s g - + none
XPENDING s g ( + 1
XPENDING s g - ) 1
XPENDING s g - + 0
XPENDING s g - +
XPENDING s g none + 1
XPENDING s g - none 1
XPENDING none g - + 1
XPENDING s nobody - + 1
XPENDING s g - + 1 nobody
XCLAIM s g d none 1-1
XCLAIM s g d 0 none
XCLAIM s g d 0 1-1 IDLE none
XCLAIM s g d 0 1-1 TIME none
XCLAIM s g d 0 1-1 RETRYCOUNT none
XCLAIM s g d 0 1-1 RETRYCOUNT 5 FORCE
XCLAIM s g d 0 1-1 LASTID none
XCLAIM s g d 0 1-1 LASTID 9-9 JUSTID
XCLAIM s g d 0 9-1 FORCE JUSTID
XCLAIM s g d 0 1-1 NONSENSE
XCLAIM s nobody d 0 1-1
XAUTOCLAIM s g d none 0
XAUTOCLAIM s g d 0 none
XAUTOCLAIM s g d 0 0 COUNT 0
XAUTOCLAIM s g d 0 0 COUNT none
XAUTOCLAIM s g d 0 0 NONSENSE
XAUTOCLAIM s nobody d 0 0
XAUTOCLAIM s g d 0 (1-1 COUNT 1 JUSTID
XDEL s 1-1
XAUTOCLAIM s g d 0 0
XINFO STREAM s FULL COUNT none
XINFO STREAM s FULL NONSENSE 1
XINFO STREAM s FULL COUNT -1
XINFO STREAM none
XINFO GROUPS none
XINFO CONSUMERS s nobody
XINFO NONSENSE s
XSETID s 0-1
XSETID s 9-9 ENTRIESADDED -1
XSETID s 9-9 ENTRIESADDED 1 MAXDELETEDID 10-0
XSETID none 1-1
XRANGE s - + COUNT 0
XRANGE s (0-1 (1-2
XRANGE s (18446744073709551615-18446744073709551615 +
XREVRANGE s + - COUNT none
""",
    "clients": """
CLIENT TRACKING ON REDIRECT 9999 REDIRECT 9999
CLIENT TRACKING ON REDIRECT 9999
CLIENT TRACKING ON REDIRECT none
CLIENT TRACKING ON BCAST OPTIN
CLIENT TRACKING ON OPTIN OPTOUT
CLIENT TRACKING ON PREFIX a
CLIENT TRACKING ON NONSENSE
CLIENT TRACKING NONSENSE
CLIENT CACHING YES
CLIENT TRACKING ON OPTIN
CLIENT CACHING NO
CLIENT CACHING NONSENSE
CLIENT TRACKING ON OPTOUT
CLIENT TRACKING ON BCAST
CLIENT TRACKING OFF
CLIENT TRACKING ON BCAST PREFIX ab PREFIX abc
CLIENT TRACKING ON BCAST PREFIX ab PREFIX ab
CLIENT TRACKING ON BCAST PREFIX ab
CLIENT TRACKING ON BCAST PREFIX a
CLIENT TRACKING ON
CLIENT CACHING YES
CLIENT TRACKING OFF
CLIENT REPLY NONSENSE
CLIENT NO-EVICT NONSENSE
CLIENT KILL 127.0.0.1:1
CLIENT KILL ID 9999999 TYPE nobody
CLIENT KILL ID none
CLIENT KILL USER nobody
CLIENT KILL SKIPME maybe
CLIENT KILL ADDR 127.0.0.1:1 LADDR 127.0.0.1:2
CLIENT UNBLOCK 9999999
CLIENT UNBLOCK 1 NONSENSE
CLIENT PAUSE 1 NONSENSE
CLIENT SETNAME "a b"
CLIENT SETNAME ""
CLIENT GETNAME
CLIENT LIST TYPE nobody
CLIENT LIST ID none
CLIENT NONSENSE
MEMORY USAGE none SAMPLES -1
MEMORY USAGE none SAMPLES none
MEMORY USAGE none NONSENSE 1
MEMORY NONSENSE
OBJECT NONSENSE key
OBJECT HELP
PFDEBUG GETREG none
PFDEBUG NONSENSE none
PFADD hll a
PFDEBUG DECODE hll
PFDEBUG ENCODING hll
PFDEBUG TODENSE hll
PFDEBUG TODENSE hll
PFDEBUG DECODE hll
PFDEBUG ENCODING hll
PFDEBUG NONSENSE hll
BITPOS none 1 0 -1 NONSENSE
BITPOS none 0
BITPOS none 1 5
BITPOS none 2
SET bits "\\xff"
BITPOS bits 0 0 none
BITPOS bits 1 none
BITPOS bits 0 0 -1 BIT
LCS a b LEN IDX
LCS a b MINMATCHLEN none
LCS a b NONSENSE
REPLCONF listening-port
REPLCONF listening-port none
REPLCONF capa
REPLCONF rdb-only none
REPLCONF rdb-only 0
REPLCONF rdb-filter-only "\\\"unbalanced"
REPLCONF rdb-filter-only nonsense
REPLCONF ip-address 127.0.0.1
REPLCONF nonsense 1
REPLICAOF 127.0.0.1 none
REPLICAOF 127.0.0.1 -1
FAILOVER TIMEOUT 0
FAILOVER TIMEOUT none
FAILOVER NONSENSE
FAILOVER ABORT
FAILOVER TO 127.0.0.1 1
FAILOVER TO 127.0.0.1 none
FAILOVER FORCE
PSYNC FAILOVER 1
MIGRATE 127.0.0.1 1 k 0 10 AUTH
MIGRATE 127.0.0.1 1 k 0 10 AUTH2 a
MIGRATE 127.0.0.1 1 k 0 10 NONSENSE
MIGRATE 127.0.0.1 1 k none 10
MIGRATE 127.0.0.1 1 k 0 none
RESTORE k none ""
RESTORE k -1 ""
RESTORE k 0 "" IDLETIME -1
RESTORE k 0 "" IDLETIME none
RESTORE k 0 "" FREQ 256
RESTORE k 0 "" FREQ none
RESTORE k 0 "" NONSENSE
""",
    # Each limit is a number of 32 or 64 bits on every machine, and the refusal contains it.
    "settings": """
CONFIG SET maxclients 0
CONFIG SET maxmemory-samples 0
CONFIG SET latency-monitor-threshold -1
CONFIG SET latency-monitor-threshold none
CONFIG SET slowlog-log-slower-than -2
CONFIG SET repl-backlog-size 0
CONFIG SET repl-diskless-sync-delay -1
CONFIG SET maxmemory-clients -200%
CONFIG SET lfu-log-factor -1
CONFIG SET cluster-node-timeout -1
CONFIG SET maxmemory-eviction-tenacity 101
""",
}


@pytest.mark.parametrize("requests", EXCLUDED.values(), ids=EXCLUDED)
def test_options_that_exclude_each_other(requests: str, cell_run: CellSession, emptying: Emptying) -> None:
    session = FuzzSession(cell_run, emptying, name="excluded", share=0.1)
    session.example(from_text(requests))
    session.conclude()


def test_refusals(cell_run: CellSession, emptying: Emptying) -> None:
    session = FuzzSession(cell_run, emptying, name="refusals", share=0.3, cost=3)
    lines = lines_of_one()
    session.random.shuffle(lines)
    for line in lines:
        if not session.more():
            break
        session.example(refused(line, Draw(session.random)))
    session.conclude()
