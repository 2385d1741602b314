"""Reads the recorded entries and returns of functions, and identifies each by its place in the tree of calls.

toolchains/function_values/record.py writes the lines.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core import json_codec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

ENTRY, RETURN = "entry", "return"
_UNKNOWN = {"variable", "unreadable"}


class NamedValue(msgspec.Struct, frozen=True, array_like=True):
    """An argument by its name in the source, or `result`."""

    name: str
    kind: str
    """`number`, `bytes`, or a word for a value that is not compared. `variable`: arguments without names follow.
    `unreadable`: the debug information does not say where the value is.
    """
    value: int | str
    """Bytes as hexadecimal digits, and numbers with a fraction as text. Of many bytes, the first and the last ones."""
    size: int
    """The size of a number, in bytes, or the number of bytes."""

    def __str__(self) -> str:
        """As a person reads it."""
        if self.kind != "bytes":
            return f"{self.name} = {self.value}"
        content = bytes.fromhex(str(self.value))
        if self.size <= len(content):
            return f"{self.name} -> {_shown(content) or 'nothing'}"
        half = len(content) // 2
        return f"{self.name} -> {_shown(content[:half])} ... {_shown(content[half:])} ({self.size} bytes)"


def _shown(content: bytes) -> str:
    return repr(content)[1:] if content.isascii() and content.decode().isprintable() else content.hex(" ")


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
    def named(self) -> dict[str, NamedValue]:
        """The values by name."""
        return {value.name: value for value in self.values}

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


class LocatedMoment(NamedTuple):
    """A moment, and its place in the tree of calls."""

    position: str
    """The calls that led to it, each with its line and its number among the caller's calls of that function in that
    line. It has the same value on every machine that makes the same calls, whatever its timers call besides.
    """
    moment: Moment
    within: str
    """The function whose activation determined the values: of an entry the caller, or the innermost recorded function
    if the caller is not recorded; empty without any. Of a return the function itself. If not all its
    arguments were recorded, as those of printf, the nearest caller of which all were: they may have differed.
    """
    place: tuple[str, str, int] | None
    """The moment's place, or, if its function's arguments were not all recorded, the call from `within`."""

    @property
    def path(self) -> str:
        """The calls that led to it."""
        return self.position.rpartition(" ")[0]

    def paths(self) -> list[str]:
        """The calls that led to it, and those that led to each of its callers."""
        calls = self.path.split("/")
        return ["/".join(calls[:end]) for end in range(2, len(calls) + 1)]


class _Activation(NamedTuple):
    moment: Moment
    position: str
    caller: int
    """The index of its caller among the activations; -1 without one."""
    calls: Counter[str]
    """Function and line -> the number of its calls from there."""

    @property
    def has_unknown_arguments(self) -> bool:
        """Whether not all arguments of the function were recorded."""
        return any(value.kind in _UNKNOWN for value in self.moment.values)


def located(moments: Iterable[Moment], functions: Container[str]) -> list[LocatedMoment]:
    """The moments of these functions with their positions, in the same order."""
    outside: Counter[str] = Counter()
    active: list[_Activation] = []
    found = []
    for one in moments:
        if one.function not in functions:
            continue
        if one.kind == RETURN:
            names = [(each.moment.function, each.moment.call) for each in active]
            if (one.function, one.call) not in names:
                continue
            # gdb misses the return of a function to which its caller jumps: it ended with the caller.
            number = names.index((one.function, one.call))
            found.append(
                LocatedMoment(f"{active[number].position} {RETURN}", one, *_determining(active, number, one.place))
            )
            del active[number:]
            continue
        number = _caller(active, one)
        parent = active[number] if number >= 0 else None
        calls = parent.calls if parent else outside
        # Without the line, a call from a function that one compiler has made inline would count as the caller's own.
        site = f"{one.function}:{one.place[2] if one.place is not None else ''}"
        position = f"{parent.position if parent else ''}/{site}#{calls[site]}"
        calls[site] += 1
        found.append(LocatedMoment(f"{position} {ENTRY}", one, *_determining(active, number, one.place)))
        active.append(_Activation(one, position, number, Counter()))
    return found


def _caller(active: list[_Activation], entered: Moment) -> int:
    """The index of the activation that made a call, or of the innermost one if the caller is not recorded; -1 without
    any.
    """
    caller = entered.place[0] if entered.place is not None else ""
    made = [number for number, each in enumerate(active) if each.moment.function == caller]
    return made[-1] if made else len(active) - 1


def _determining(
    active: list[_Activation], number: int, place: tuple[str, str, int] | None
) -> tuple[str, tuple[str, str, int] | None]:
    """The function of an activation, or of the nearest caller whose arguments were all recorded; empty without any. And
    the place of the moment, or that caller's call.
    """
    while number >= 0 and active[number].has_unknown_arguments:
        place = active[number].moment.place
        number = active[number].caller
    return (active[number].moment.function if number >= 0 else ""), place
