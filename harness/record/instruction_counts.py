"""Reads the counts of the emulator's counter for a server, which toolchains/instruction_counter/counter.c writes.

Both share one file. A count is complete while the server's first thread is held before it waits for events; the numbers
of other threads and of children are as of their last system call.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import time
from collections import Counter
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAGIC = 0x31544E43424D4C50
_WORD = struct.Struct("<Q")
_ROW, _ROWS, _ROWS_AT = struct.Struct("<11Q40x"), 256, 4096
_BLOCK, _BLOCKS = struct.Struct("<3Q"), 1 << 17
_BLOCKS_AT = _ROWS_AT + _ROWS * _ROW.size
SIZE_BYTES = _BLOCKS_AT + _BLOCKS * _BLOCK.size
_MAGIC_AT, _ROWS_USED, _FAULTS, _HOLD, _HOLD_CHILDREN, _WAITS, _HELD_CHILDREN, _BLOCKS_USED = range(8)
_FAULT_TEXTS = {1: "more than 256 threads and children", 2: "more than 131,072 translated blocks", 4: "lost its orders"}
ANSWER_SLICE_SECONDS = 0.5
"""How long to wait for an answer before checking whether the server still runs."""


class ThreadCounts(Record, frozen=True):
    """The counts of one thread of a server, or of a child that it forked, since the thread began."""

    pid: int
    thread: int
    """0 is the first."""
    forked: bool
    ended: bool
    instructions: int
    """User-mode instructions of the guest, without the kernel's."""
    calls: int
    """Calls of the kernel."""
    writes: int
    """Calls that wrote to a regular file, without the log on standard output."""
    written_bytes: int
    syncs: int
    """fsync, fdatasync, sync_file_range and the like."""
    resident_bytes: int
    """Of an ended child: its pages in the guest's address space; else 0."""
    private_bytes: int
    """Of an ended child: those of them that were copied because it or its parent wrote to them; else 0."""


class BlockTable:
    """How often a thread has executed each translated block, at one moment."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def executions(self) -> dict[tuple[int, int], int]:
        """(guest address, instructions) -> executions, of each block that was ever translated."""
        return {(address, length): times for address, length, times in _BLOCK.iter_unpack(self._content)}

    def since(self, before: BlockTable) -> Counter[tuple[int, int]]:
        """(guest address, instructions) -> executions since another moment."""
        found = Counter(self.executions())
        found.subtract(before.executions())
        return found

    def executions_at(self, address: int) -> int:
        """Executions of the blocks that begin at a guest address; there may be several, of different lengths."""
        word, at, total = _WORD.pack(address), -1, 0
        while (at := self._content.find(word, at + 1)) >= 0:
            if at % _BLOCK.size == 0:
                total += _BLOCK.unpack_from(self._content, at)[2]
        return int(total)


class GateError(Exception):
    """The server ended, or did not come back to wait for events before the deadline."""


class InstructionCounts:
    """The counts of one server. Create this before the emulator starts, and pass `arguments` to the counter."""

    def __init__(self, folder: Path) -> None:
        self._paths = [folder / name for name in ("counts", "orders", "answers")]
        counts, orders, answers = self._paths
        with counts.open("wb") as file:
            file.truncate(SIZE_BYTES)
        for path in (orders, answers):
            os.mkfifo(path)
        # For both directions, so that neither side waits for the other to open its end.
        self._orders, self._answers = (os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in (orders, answers))
        with counts.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE_BYTES)

    @property
    def arguments(self) -> list[str]:
        """Words of the counter's argument list: the files that both share."""
        counts, orders, answers = self._paths
        return [f"counts={counts}", f"orders={orders}", f"answers={answers}"]

    def close(self) -> None:
        """Release the memory and the files. The server may still run; it is not held any more."""
        self._set(_HOLD, 0)
        self._set(_HOLD_CHILDREN, 0)
        self._map.close()
        os.close(self._orders)
        os.close(self._answers)

    def hold(self, *, held: bool) -> None:
        """Whether to hold the server at its next wait for events."""
        self._set(_HOLD, int(held))

    def hold_children(self, *, held: bool) -> None:
        """Whether children that it forks from now on are held at their first call of the kernel."""
        self._set(_HOLD_CHILDREN, int(held))

    @property
    def held_children(self) -> int:
        """How many children have been held so far."""
        return self._get(_HELD_CHILDREN)

    def go_on(self) -> None:
        """Let the held server continue."""
        os.write(self._orders, b"g")

    def await_held(self, alive: Callable[[], bool], *, deadline_seconds: float) -> None:
        """Wait until the server is held. Raises GateError when it ends, or takes longer than the deadline."""
        deadline = time.monotonic() + deadline_seconds
        while not select.select([self._answers], [], [], ANSWER_SLICE_SECONDS)[0]:
            if not alive():
                raise GateError("the server ended")
            if time.monotonic() > deadline:
                raise GateError(f"the server did not come back within {deadline_seconds:.0f} s")
        os.read(self._answers, 1)

    @property
    def main_instructions(self) -> int:
        """Instructions of the server's first thread, up to the point at which it is held."""
        return int(_WORD.unpack_from(self._map, _ROWS_AT + 4 * _WORD.size)[0])

    def threads(self) -> list[ThreadCounts]:
        """Every thread so far. Raises InfrastructureError if the counter has lost count."""
        if self._get(_MAGIC_AT) != _MAGIC:
            raise InfrastructureError("the emulator did not load the instruction counter", remedy="plumb build")
        if faults := self._get(_FAULTS):
            lost = ", ".join(text for bit, text in _FAULT_TEXTS.items() if faults & bit)
            raise InfrastructureError("the instruction counter has lost count", because=lost)
        rows = (_ROW.unpack_from(self._map, _ROWS_AT + at * _ROW.size) for at in range(self._get(_ROWS_USED)))
        return [
            ThreadCounts(
                **dict(zip(ThreadCounts.__struct_fields__, row, strict=True))
                | {"forked": bool(row[2]), "ended": bool(row[3])}
            )
            for row in rows
        ]

    def blocks(self, alive: Callable[[], bool], *, deadline_seconds: float) -> BlockTable:
        """The executions of every block so far. The server must be held. Raises GateError as `await_held` does."""
        os.write(self._orders, b"b")
        # The counter replies after it has written them.
        self.await_held(alive, deadline_seconds=deadline_seconds)
        return BlockTable(self._map[_BLOCKS_AT : _BLOCKS_AT + self._get(_BLOCKS_USED) * _BLOCK.size])

    def _get(self, word: int) -> int:
        return int(_WORD.unpack_from(self._map, word * _WORD.size)[0])

    def _set(self, word: int, value: int) -> None:
        _WORD.pack_into(self._map, word * _WORD.size, value)
