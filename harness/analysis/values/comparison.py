"""Compares the arguments and return values of functions on a target and on the native build.

toolchains/function_values/record.py writes the lines. Calls are identified by the function and a number. A function
that is called more often on one machine than on the other is compared after all others, because a compiler may have
made a part of its calls inline. Values that differ between two runs of the native build, such as the time, are not
compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.analysis.symbols import place_in_tree
from harness.core import json_codec
from harness.core.finding import Frame, ValueComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

ENTRY, RETURN = "entry", "return"
_COMPARED = {"number", "bytes"}
_DESCRIPTORS = {"fd", "cfd"}
"""Arguments that are file descriptors: the emulator has also opened some, so the numbers differ."""


class NamedValue(msgspec.Struct, frozen=True, array_like=True):
    """An argument by its name in the source, or `result`."""

    name: str
    kind: str
    """`number`, `bytes`, or a word for a value that is not compared."""
    value: int | str
    """Bytes as hexadecimal digits, and numbers with a fraction as text."""
    size: int
    """Size of a number, in bytes."""

    def __str__(self) -> str:
        """As a person reads it."""
        if self.kind != "bytes":
            return f"{self.name} = {self.value}"
        content = bytes.fromhex(str(self.value))
        shown = repr(content)[1:] if content.isascii() and content.decode().isprintable() else content.hex(" ")
        return f"{self.name} -> {shown or 'nothing'}"


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """The entry of a function, or its return."""

    function: str
    call: int
    """How often the function was called before."""
    kind: str
    values: list[NamedValue]
    place: tuple[str, str, int] | None = None
    """Function, file and line: of an entry those of the call, of a return those of the definition."""

    @property
    def key(self) -> tuple[str, int, str]:
        """Identifies the moment, with the same value on every machine."""
        return self.function, self.call, self.kind

    def __str__(self) -> str:
        """Without values."""
        what = "enters" if self.kind == ENTRY else "leaves"
        return f"call {self.call + 1} {what} {self.function}"


def read_moments(path: Path) -> list[Moment]:
    """The recorded events, in chronological order, without truncated lines."""
    found = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            found.append(json_codec.decode(line, Moment))
        except msgspec.DecodeError:
            break
    return found


def compare(
    target: Sequence[Moment], native: Sequence[Moment], again: Sequence[Moment], *, name: str
) -> ValueComparison | None:
    """Where the values diverge; None if all comparable values are equal. `again`: another run of the native build.
    `name`: the target's name.
    """
    steady = _steady(native, again)
    here, there = _last_calls(target), _last_calls(native)
    alike = {function for function, last in here.items() if there.get(function) == last}
    counted = [one for one in target if one.function in alike]
    return _first(counted, steady, name) or _first(target, steady, name)


def _last_calls(moments: Iterable[Moment]) -> dict[str, int]:
    """Function -> the number of its last call."""
    return {one.function: one.call for one in moments if one.kind == ENTRY}


def _steady(native: Sequence[Moment], again: Sequence[Moment]) -> dict[tuple[str, int, str], dict[str, NamedValue]]:
    """Moment -> the values that can be compared: two runs of one build agree on them."""
    other = {one.key: {value.name: value for value in one.values} for one in again}
    return {
        one.key: {
            value.name: value
            for value in one.values
            if value.kind in _COMPARED
            and value.name not in _DESCRIPTORS
            and other.get(one.key, {}).get(value.name) == value
        }
        for one in native
    }


def _first(
    target: Iterable[Moment], steady: dict[tuple[str, int, str], dict[str, NamedValue]], name: str
) -> ValueComparison | None:
    last, compared = "", 0
    active: list[Moment] = []
    for one in target:
        expected = steady.get(one.key, {})
        pairs = [(value, expected[value.name]) for value in one.values if value.name in expected]
        different = [(here, there) for here, there in pairs if not _equal(here, there)]
        compared += bool(pairs)
        if one.kind == RETURN:
            active = _left(active, one)
        if different:
            within = one.function if one.kind == RETURN else _caller(active, one)
            return ValueComparison(
                last_equal=last,
                first_different=str(one),
                differences=[f"{here} on {name}, {_value(there)} natively" for here, there in different],
                within=within,
                compared=compared,
                place=_frame(one),
            )
        if pairs:
            last = f"{one}: {', '.join(str(here) for here, _ in pairs)}"
        if one.kind == ENTRY:
            active.append(one)
    return None


def _left(active: list[Moment], left: Moment) -> list[Moment]:
    """The activations that have not ended. gdb misses the return of a function to which its caller jumps: it ended with
    the caller.
    """
    names = [(each.function, each.call) for each in active]
    name = (left.function, left.call)
    return active[: names.index(name)] if name in names else active


def _caller(active: list[Moment], entered: Moment) -> str:
    """The active function that made the call, or the innermost recorded one if the caller is not recorded; empty
    without any.
    """
    names = [each.function for each in active]
    caller = entered.place[0] if entered.place is not None else ""
    return caller if caller in names else next(reversed(names), "")


def _frame(moment: Moment) -> Frame | None:
    if moment.place is None:
        return None
    function, written, line = moment.place
    file, origin = place_in_tree(written)
    return Frame(function=function, file=file, line=line, origin=origin, pc=0)


def _equal(here: NamedValue, there: NamedValue) -> bool:
    if here.kind != there.kind:
        return here.kind not in _COMPARED
    if here.value == there.value:
        return True
    if here.size == there.size == 1 and isinstance(here.value, int) and isinstance(there.value, int):
        # A plain char has a sign on some machines only.
        return (here.value - there.value) % 256 == 0
    # The highest number of a type with several sizes means "none": -1 was converted to it.
    sizes = (here.size, there.size)
    return sizes[0] != sizes[1] and all(one.value == (1 << 8 * one.size) - 1 for one in (here, there))


def _value(one: NamedValue) -> str:
    return str(one).partition(" ")[2].partition(" ")[2]
