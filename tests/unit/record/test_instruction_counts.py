"""The harness' side of the counter reads the shared file, and notices that a server has ended."""

from __future__ import annotations

import re
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from harness.build.instruction_counter import FOLDER
from harness.core.errors import InfrastructureError
from harness.record import instruction_counts
from harness.record.instruction_counts import BlockTable, GateError, InstructionCounts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROW = (4242, 0, 0, 0, 9_600, 8, 1, 107, 0, 0, 0)


@pytest.fixture
def counts(tmp_path: Path) -> Iterator[InstructionCounts]:
    made = InstructionCounts(tmp_path)
    yield made
    made.close()


def write(folder: Path, at: int, content: bytes) -> None:
    with (folder / "counts").open("r+b") as file:
        file.seek(at)
        file.write(content)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def loaded(folder: Path, *, faults: int = 0) -> None:
    write(folder, 0, words(0x31544E43424D4C50, 2, faults))
    write(folder, 4096, words(*ROW))
    write(folder, 4096 + 128, words(4243, 0, 1, 1, 500, 3, 2, 4096, 0, 8192, 4096))


def test_threads_and_children_are_distinguished(counts: InstructionCounts, tmp_path: Path) -> None:
    loaded(tmp_path)
    server, child = counts.threads()
    assert (server.pid, server.forked, server.instructions, server.written_bytes) == (4242, False, 9_600, 107)
    assert (child.pid, child.forked, child.ended, child.private_bytes) == (4243, True, True, 4096)
    assert counts.main_instructions == 9_600


def test_a_counter_that_was_not_loaded_or_lost_count_gives_no_figure(counts: InstructionCounts, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="did not load"):
        counts.threads()
    loaded(tmp_path, faults=2)
    with pytest.raises(InfrastructureError, match="lost count") as caught:
        counts.threads()
    assert "blocks" in caught.value.because


def test_blocks_are_read_once_the_counter_has_written_them(counts: InstructionCounts, tmp_path: Path) -> None:
    def emulator() -> None:
        with (tmp_path / "orders").open("rb", buffering=0) as orders:
            assert orders.read(1) == b"b"
        write(tmp_path, 7 * 8, words(2))
        write(tmp_path, 4096 + 256 * 128, words(0x1000, 5, 7, 0x2000, 2, 0))
        with (tmp_path / "answers").open("wb", buffering=0) as answers:
            answers.write(b"w")

    thread = threading.Thread(target=emulator)
    thread.start()
    found = counts.blocks(lambda: True, deadline_seconds=10)
    thread.join()
    assert found.executions() == {(0x1000, 5): 7, (0x2000, 2): 0}


def test_executions_at_an_address_are_those_of_all_blocks_that_begin_there() -> None:
    # The other words of the third block equal the address.
    before = BlockTable(words(0x1000, 5, 7, 0x2000, 2, 1, 0x3000, 0x1000, 0x1000))
    after = BlockTable(words(0x1000, 5, 9, 0x2000, 2, 1, 0x3000, 0x1000, 0x1000, 0x1000, 3, 4))
    assert [table.executions_at(0x1000) for table in (before, after)] == [7, 13]
    assert +after.since(before) == {(0x1000, 5): 2, (0x1000, 3): 4}


def test_a_server_that_ends_or_hangs_is_noticed(counts: InstructionCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruction_counts, "ANSWER_SLICE_SECONDS", 0.01)
    with pytest.raises(GateError, match="ended"):
        counts.await_held(lambda: False, deadline_seconds=60)
    with pytest.raises(GateError, match="did not come back"):
        counts.await_held(lambda: True, deadline_seconds=0.05)


def test_the_counter_reads_what_to_hold_where_the_harness_writes_it(counts: InstructionCounts, tmp_path: Path) -> None:
    source = (FOLDER / "counter.c").read_text("utf-8")
    fields = re.findall(r"uint64_t (\w+);", source[source.index("struct shared {") : source.index("reserved[504]")])

    def told() -> dict[str, int]:
        content = struct.unpack_from(f"<{len(fields)}Q", (tmp_path / "counts").read_bytes())
        return {name: value for name, value in zip(fields, content, strict=True) if value}

    counts.hold(held=True)
    assert told() == {"hold": 1}
    counts.hold_children(held=True)
    assert told() == {"hold": 1, "hold_children": 1}
    counts.hold(held=False)
    assert told() == {"hold_children": 1}


def test_both_sides_agree_on_the_layout() -> None:
    source = (FOLDER / "counter.c").read_text("utf-8")
    fields = re.findall(r"uint64_t (\w+);", source[source.index("struct row {") : source.index("uint64_t reserved[5]")])
    assert fields == list(instruction_counts.ThreadCounts.__struct_fields__)
    assert "MAX_ROWS = 256, MAX_BLOCKS = 1 << 17" in source
    assert "reserved[504]" in source
    assert instruction_counts.SIZE_BYTES == 4096 + 256 * 128 + (1 << 17) * 24
