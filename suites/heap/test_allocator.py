"""jemalloc's parameters of every width, read and written through DEBUG MALLCTL; its statistics and its dirty pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.keyspace import dataset

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from suites._shared.paired_servers import PairedServers


@pytest.fixture(autouse=True)
def _jemalloc(both: PairedServers, cell: CellSpec) -> None:
    reply = both.guest.pipeline([("DEBUG", "MALLCTL", "arenas.page")])[0]
    if not isinstance(reply, int):
        # A refusal by a server with jemalloc is a fault.
        assert cell.build is None or cell.build.allocator != "jemalloc", repr(reply)
        pytest.skip(f"only with --allocator jemalloc: {reply!r}")


def value(both: PairedServers, *words: Any) -> Any:
    """The guest's reply to DEBUG MALLCTL."""
    return both.guest.command("DEBUG", "MALLCTL", *words)


def test_parameters_of_every_width_are_read(both: PairedServers) -> None:
    page = value(both, "arenas.page")
    assert 4096 <= page <= 65536, page
    assert page & (page - 1) == 0, page
    quantum = value(both, "arenas.quantum")
    assert quantum in (8, 16), quantum
    assert value(both, "config.debug") == 0
    assert 1 <= value(both, "arenas.narenas") <= 4096
    assert value(both, "arenas.bin.0.size") == 8
    assert 1 <= value(both, "arenas.bin.0.nregs") <= 65536
    assert 1 <= value(both, "arenas.nbins") < 1000
    assert value(both, "opt.retain") in (0, 1)


@pytest.mark.parametrize("number", [0, 1, 5000, 2**31 - 1, -1])
def test_a_signed_size_is_written_and_read(both: PairedServers, number: int) -> None:
    before = value(both, "arenas.dirty_decay_ms")
    try:
        # A write replies with the previous value.
        assert value(both, "arenas.dirty_decay_ms", number) == before
        assert value(both, "arenas.dirty_decay_ms") == number
    finally:
        value(both, "arenas.dirty_decay_ms", before)


def test_a_byte_is_written_and_read(both: PairedServers) -> None:
    # The cache of the main thread, which is enabled.
    assert value(both, "thread.tcache.enabled") == 1
    assert value(both, "thread.tcache.enabled", 0) == 1
    assert value(both, "thread.tcache.enabled") == 0
    assert value(both, "thread.tcache.enabled", 1) == 0
    assert value(both, "thread.tcache.enabled") == 1


def test_texts_are_read_and_unknown_parameters_refused(both: PairedServers) -> None:
    version: Any = both.guest.command("DEBUG", "MALLCTL-STR", "version")
    assert re.match(rb"[0-9]+\.[0-9]+\.[0-9]+", version), version
    for what in ("MALLCTL", "MALLCTL-STR"):
        reply = both.guest.pipeline([("DEBUG", what, "no.such.parameter")])[0]
        assert "ERR" in str(reply), reply


def test_statistics_count_large_values(both: PairedServers) -> None:
    """Each value has its own pages, which the server's own count and the allocator's statistics must show."""
    values = {b"large:%d" % number: dataset.noise(1 << 20) for number in range(8)}
    both.ask([("SET", name, text) for name, text in values.items()])
    report: Any = both.guest.command("MEMORY", "MALLOC-STATS")
    allocated = re.search(rb"Allocated: ([0-9]+), active: ([0-9]+), metadata: ([0-9]+)", report)
    assert allocated, report[:500]
    total, active, _ = map(int, allocated.groups())
    assert 8 << 20 <= total <= active < 1 << 30, allocated[0]
    both.expect([("STRLEN", name) for name in values], [1 << 20] * len(values), "large values")
    both.ask([("DEL", *values)])
    assert both.guest.command("MEMORY", "PURGE") == b"OK"
    report = both.guest.command("MEMORY", "MALLOC-STATS")
    after = re.search(rb"Allocated: ([0-9]+)", report)
    assert after, report[:500]
    assert total - int(after[1]) >= 7 << 20, report[:500]
