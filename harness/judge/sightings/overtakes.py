"""Which stores of a process another thread saw in the wrong order, or missed (`--memory-order weak`), in words.

The emulator records a thread that read the place of a store, and then an old value at the place of an older one, while
the storing thread paused between the two. It also records a load that returned the value from before another thread's
store, as if it had been executed early. Correct programs are seen to do so as well, where they need no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.finding import place_in_file

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        seen.setdefault(sentence_of(one, symbols), _nearness(failed, reader, stores))
    for missed in reversed([each for each in log.missed if each.pid == pid]):
        load, store = (symbols.frames(missed.maps, pc)[0] for pc in (missed.pc, missed.store))
        sentence = f"the load in {_named(load)} was executed before the store in {_named(store)}"
        seen.setdefault(sentence, _nearness(failed, load, [store]))
    return tuple(sorted(seen, key=lambda text: seen[text], reverse=True)[:SHOWN])


def _nearness(failed: Frame | None, load: Frame, stores: Sequence[Frame]) -> tuple[bool, int]:
    """Whether a load is in the function that failed, and how many of the accesses are in its file."""
    if failed is None:
        return False, 0
    return load.function == failed.function, sum(each.file == failed.file for each in (load, *stores))


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
