"""Compares the arguments and return values of functions on a target and on the native build.

A call is identified by its place in the tree of calls, without the functions that only one machine calls, because a
compiler may have made them inline. Values that differ between two runs of one build, such as the time, are not
compared. Some values rightly differ between two machines, such as sizes of structures. Those that also differ while
other commands run, whose replies agree, count only if no other value differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.symbols import place_in_tree
from harness.analysis.values.moments import ENTRY, located
from harness.core.finding import Frame, ValueComparison

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from harness.analysis.values.moments import LocatedMoment, Moment, NamedValue

    SteadyValues = dict[str, dict[str, NamedValue]]
    """Position of a moment -> the values that can be compared, by name."""

NATIVELY = "natively"
_COMPARED = {"number", "bytes"}
_DESCRIPTORS = {"fd", "cfd"}
"""Arguments that are file descriptors: the emulator has also opened some, so the numbers differ."""


class Usual(NamedTuple):
    """A value that differs between two machines although nothing is wrong."""

    function: str
    kind: str
    """Of the moment: an entry or a return."""
    name: str
    """Of the argument, or `result`."""


def usual_differences(target: Sequence[Moment], native: Sequence[Moment]) -> set[Usual]:
    """The values that differ while both machines execute commands with equal replies."""
    here, there = _aligned(target, native)
    expected = {one.position: one.moment.named for one in there}
    return {
        each.identity
        for one in here
        for each in _pairs(one, one.moment.named, expected.get(one.position, {}))
        if each.is_different
    }


def compare(
    target: Sequence[Moment],
    native: Sequence[Moment],
    again: Sequence[Moment],
    *,
    name: str,
    repeated: Sequence[Moment] | None = None,
    reference: str = NATIVELY,
    common: AbstractSet[Usual] = frozenset(),
    usual: AbstractSet[Usual] = frozenset(),
) -> ValueComparison | None:
    """Where the values diverge; None if all comparable values are equal.

    `again`: another run of the native build. `name`: the target's name. `repeated`: another run of the target.
    `reference`: where `native` and `again` ran, if another machine replaces the native build. `common`: the differences
    while common commands run; they count only if there is no other. `usual`: those while similar commands run; they
    also count if they look like a wrong conversion, because a wrong function is wrong for similar commands, too, even
    if their replies do not show it.
    """
    here, once_more, there, once_more_there = _aligned(target, target if repeated is None else repeated, native, again)
    steady_here, steady_there = _steady(here, once_more), _steady(there, once_more_there)

    def first(
        counts: Callable[[_PairedValue], bool], *, is_usual: bool = False, consequences: bool = True
    ) -> ValueComparison | None:
        last, compared = "", 0
        causes: set[str] = set()
        for one in here:
            pairs = _pairs(one, steady_here.get(one.position, {}), steady_there.get(one.position, {}))
            different = [each for each in pairs if each.is_different]
            compared += bool(pairs)
            follows = not consequences and any(path in causes for path in one.paths())
            counted = [] if follows else [each for each in different if counts(each)]
            if different and one.moment.kind == ENTRY and not counted:
                causes.add(one.path)
            if counted:
                return ValueComparison(
                    last_equal=last,
                    first_different=str(one.moment),
                    differences=[f"{each.here} on {name}, {_value(each.there)} {reference}" for each in counted],
                    within=one.within,
                    compared=compared,
                    place=_frame(one.place),
                    usual=is_usual,
                )
            if pairs and not different:
                last = f"{one.moment}: {', '.join(str(each.here) for each in pairs)}"
        return None

    def is_unusual(one: _PairedValue) -> bool:
        return one.identity not in common and one.identity not in usual

    # A function that is given a value that usually differs may make others of it.
    return (
        first(is_unusual, consequences=False)
        or first(lambda one: one.identity not in common and _is_misconverted(one.here, one.there))
        or first(lambda _: True, is_usual=True)
    )


class _PairedValue(NamedTuple):
    """A value at a moment, on both machines."""

    identity: Usual
    here: NamedValue
    there: NamedValue

    @property
    def is_different(self) -> bool:
        """Whether the values differ in more than their form."""
        return not _equal(self.here, self.there)


def _aligned(*recordings: Sequence[Moment]) -> list[list[LocatedMoment]]:
    """The recordings, only with the functions that all of them contain."""
    common = set[str].intersection(*({one.function for one in moments} for moments in recordings))
    return [located(moments, common) for moments in recordings]


def _steady(moments: Iterable[LocatedMoment], again: Iterable[LocatedMoment]) -> SteadyValues:
    """The values on which two runs of one build agree."""
    other = {one.position: one.moment.named for one in again}
    return {
        one.position: {
            name: value for name, value in one.moment.named.items() if other.get(one.position, {}).get(name) == value
        }
        for one in moments
    }


def _pairs(one: LocatedMoment, here: Mapping[str, NamedValue], there: Mapping[str, NamedValue]) -> list[_PairedValue]:
    """The values of a moment that can be compared."""
    return [
        _PairedValue(Usual(one.moment.function, one.moment.kind, name), value, there[name])
        for name, value in here.items()
        if value.kind in _COMPARED and name in there and name not in _DESCRIPTORS
    ]


def _frame(place: tuple[str, str, int] | None) -> Frame | None:
    if place is None:
        return None
    function, written, line = place
    file, origin = place_in_tree(written)
    return Frame(function=function, file=file, line=line, origin=origin, pc=0)


def _equal(here: NamedValue, there: NamedValue) -> bool:
    if here.kind != there.kind:
        return here.kind not in _COMPARED
    if here.value == there.value:
        return here.kind == "number" or here.size == there.size
    if here.size == there.size == 1 and isinstance(here.value, int) and isinstance(there.value, int):
        # A plain char has a sign on some machines only.
        return (here.value - there.value) % 256 == 0
    # The highest number of a type with several sizes means "none": -1 was converted to it.
    sizes = (here.size, there.size)
    return sizes[0] != sizes[1] and all(one.value == (1 << 8 * one.size) - 1 for one in (here, there))


def _is_misconverted(here: NamedValue, there: NamedValue) -> bool:
    """Whether two different values have the same bytes in another order, or the same low bits: a conversion of byte
    order, width or sign makes one of the other.
    """
    if here.kind == there.kind == "bytes":
        return sorted(bytes.fromhex(str(here.value))) == sorted(bytes.fromhex(str(there.value)))
    if not isinstance(here.value, int) or not isinstance(there.value, int):
        return False
    sizes = {here.size, there.size}
    return any(_bytes_of(here, size)[::-1] == _bytes_of(there, size) for size in sizes) or (
        (here.value - there.value) % (1 << _NARROWEST_BITS) == 0
    )


_NARROWEST_BITS = 32
"""Numbers of redis and valkey that are narrower by mistake are `int` or, on a 32-bit machine, `long`."""


def _bytes_of(one: NamedValue, size: int) -> bytes:
    return (int(one.value) % (1 << 8 * size)).to_bytes(size, "big")


def _value(one: NamedValue) -> str:
    return str(one).partition(" ")[2].partition(" ")[2]
