"""The memory of all processes of a run includes that of children, and counts shared memory once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import memory_watch, process
from harness.core.processes.memory_watch import MemoryWatch
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTES = 200
TAKES = f"taken = bytearray(b'x' * ({MEBIBYTES} << 20))\n"
STAYS = "open({done!r}, 'w').close()\nimport time\ntime.sleep(60)\n"
SHARES = f"""import mmap, os
shared = mmap.mmap(-1, {MEBIBYTES} << 20)
shared.write(b'x' * len(shared))
if os.fork() == 0:
    assert sum(shared[::4096]) # touches every page
"""


@pytest.mark.parametrize("code", [TAKES, SHARES], ids=["its own", "shared by two"])
def test_memory_of_a_child_counts_once(tmp_path: Path, code: str) -> None:
    done = tmp_path / "done"
    before = MemoryWatch()
    before.sample()
    started = process.start([sys.executable, "-SEc", code + STAYS.format(done=str(done))])
    try:
        assert eventually(done.exists)
        after = MemoryWatch()
        after.sample()
    finally:
        process.kill_group(started)
    more = (after.peak.pss_bytes - before.peak.pss_bytes) / 2**20
    assert MEBIBYTES <= more < MEBIBYTES * 1.5
    assert after.peak.processes > before.peak.processes
    assert sum(after.peak.by_program.values()) == after.peak.pss_bytes


def test_the_peak_remains_when_memory_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "INTERVAL_SECONDS", 0.02)
    with MemoryWatch() as watch:
        taken = [bytearray(b"x" * (MEBIBYTES << 20))]
        assert eventually(lambda: watch.peak.pss_bytes > MEBIBYTES << 20)
        taken.clear()
        least = watch.peak.pss_bytes
        watch.sample()
    assert watch.peak.pss_bytes >= least > MEBIBYTES << 20
