"""Which stores of a process another thread saw in the wrong order (`--memory-order weak`), in words.

The emulator records a thread that read the place of a store, and then an old value at the place of an older one, while
the storing thread paused between the two. Correct programs are seen to do so as well, where they need no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.finding import place_in_file

if TYPE_CHECKING:
    from harness.analysis.symbols import Symbols
    from harness.core.finding import Frame
    from harness.record.fault_log import FaultLog, Overtake

SHOWN = 3
"""How many a sighting has."""


def overtakes_of(log: FaultLog, symbols: Symbols, pid: int, failed: Frame | None) -> tuple[str, ...]:
    """The last ones of a process, each in a sentence. `failed`: where it failed; those read there come first, and of
    these, and of the others, those of its file.
    """
    seen: dict[str, tuple[bool, int]] = {}
    for one in reversed([each for each in log.overtakes if each.pid == pid]):
        reader, *stores = frames_of(one, symbols)
        is_here = failed is not None and reader.function == failed.function
        of_file = sum(failed is not None and each.file == failed.file for each in (reader, *stores))
        seen.setdefault(sentence_of(one, symbols), (is_here, of_file))
    return tuple(sorted(seen, key=lambda text: seen[text], reverse=True)[:SHOWN])


def frames_of(one: Overtake, symbols: Symbols) -> tuple[Frame, Frame, Frame]:
    """Where the load is that saw an overtake, where the store that was early, and where the one that was late."""
    reader, early, late = (symbols.frames(one.maps, pc)[0] for pc in (one.pc, one.early, one.late))
    return reader, early, late


def sentence_of(one: Overtake, symbols: Symbols) -> str:
    """The functions and lines of two stores, and of the load by which another thread saw the older one's old value."""
    reader, early, late = frames_of(one, symbols)
    return f"the store in {_named(early)} was visible before {_named(late)}, read by {_named(reader)}"


def _named(frame: Frame) -> str:
    return f"{frame.function} ({place_in_file(frame.file, frame.line)})"
