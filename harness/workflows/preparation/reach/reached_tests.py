"""Determines which tests of a cell a change can reach, and what they have not entered, from the change's machine code
and the records of an earlier run. `reach_selection`, which reads both, explains why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.analysis.code.code_map import CodeChange, CodeMap
from harness.core.model import Record
from harness.record.executed_blocks.cell_reach import (  # noqa: TC001 - msgspec reads the annotations when it decodes
    CellReach,
)
from harness.record.run_record import LeftOut

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from harness.core.model import Cell


class KeptReach(Record, frozen=True):
    """A run's record of one cell."""

    code: CodeMap
    """The program's code."""
    native: CodeMap | None
    """The native build's code; None for a suite that compares nothing with it."""
    reach: CellReach
    functions: list[str]
    """All functions of the program: for others, it is unknown which tests enter them."""
    run: str
    """The run's folder."""
    excused: list[str]
    """Tests that failed with a known finding that does not depend on chance: they will stop at the same place again."""

    @property
    def compares(self) -> bool:
        """Whether the tests compare servers with the native build."""
        return self.native is not None

    @property
    def as_expected(self) -> dict[str, list[str]]:
        """Tests that ended as expected -> the functions that they entered, without those that count for every test.

        If a test was skipped without a query to a program of the target, the reason is independent of that program.
        """
        skipped = {name: entered for name, entered in self.reach.skipped.items() if not entered}
        return self.reach.tests | {name: self.reach.failed[name] for name in self.excused} | skipped

    def unreached(self, change: CodeChange) -> set[str]:
        """The tests that do the same again: they enter nothing that differs."""
        if change.elsewhere or not change.functions or change.functions & set(self.reach.every):
            return set()
        return {name for name, entered in self.as_expected.items() if change.functions.isdisjoint(entered)}


class CellSelection(Record, frozen=True):
    """The selection of a cell's tests."""

    without: list[str]
    left_out: LeftOut | None = None
    """None if all tests run."""


EVERY_TEST = CellSelection(without=[])


def with_native(
    own: CodeChange, native: CodeChange, functions: Iterable[str], inlined: Mapping[str, Collection[str]]
) -> CodeChange:
    """What differs in a target's program or in the native build, whose `native` change is expressed by the names of the
    target's `functions`. `inlined`: as `hosts_of` says, for functions that the target lacks. Of any other such function
    it is unknown which tests enter it, and it keeps its name.
    """
    alike: dict[str, list[str]] = {}
    for name in functions:
        alike.setdefault(_whole(name), []).append(name)
    named = {name for one in native.functions for name in alike.get(_whole(one)) or inlined.get(one) or [one]}
    return CodeChange(
        functions=own.functions | named,
        elsewhere=[*own.elsewhere, *(f"{one} of the native build" for one in native.elsewhere)],
    )


def hosts_of(function: str, native: CodeMap, target: CodeMap) -> list[str]:
    """The functions of a target's object one of which is entered if the native build enters `function`, which the
    target has inlined: all of the object, unless the native build may enter its code in another way. Empty if unknown.
    """
    places = [name for name, code in native.objects.items() if function in code.functions]
    there = target.objects.get(places[0]) if len(places) == 1 else None
    if there is None:
        return []
    needed = {name for place, code in native.objects.items() if place != places[0] for name in code.needs}
    ways_in = needed & set(native.objects[places[0]].defines)
    # A function that only the native build has may be its way into this code.
    return sorted(there.functions) if ways_in <= set(there.defines) - {_whole(function)} else []


def _whole(function: str) -> str:
    """The function that a compiler has split or copied: `intsetResize` of `intsetResize.part.0`."""
    return function.partition(".")[0] or function


def added(old: CodeMap, new: CodeMap) -> set[str]:
    """The functions that only the second of two builds has."""
    before = {name for each in old.objects.values() for name in each.functions}
    return {name for each in new.objects.values() for name in each.functions} - before


def settled(
    noted: CellReach, found: Collection[str], by_chance: Collection[str], *, audited: bool
) -> tuple[CellReach, list[str]]:
    """A cell's record, without tests that passed and have a finding, and `KeptReach.excused`.

    `found`: tests, or examples of them, in which something known was found. `by_chance`: those of them that may end
    differently. `audited`: whether an audit followed. It continues after a test's first fault.
    """

    def is_in(names: Collection[str], test: str) -> bool:
        # An example has its test's name, with its own in brackets.
        return any(name == test or name.startswith(f"{test}[") for name in names)

    passed = {name: entered for name, entered in noted.tests.items() if not is_in(found, name)}
    excused = [name for name in noted.failed if not audited and is_in(found, name) and not is_in(by_chance, name)]
    return msgspec.structs.replace(noted, tests=passed), excused


def select(
    kept: Mapping[Cell, KeptReach], changes: Mapping[Cell, CodeChange], *, idle: bool
) -> dict[Cell, CellSelection]:
    """The tests of the cells with a kept record. `changes`: the differences of their programs since then. `idle`:
    whether a target need run no test if none reaches the change.
    """
    reached: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    agreeing: dict[str, set[str]] = {}
    """Suite -> its tests that passed on some target and that the change does not reach there."""
    for cell, one in kept.items():
        agreeing.setdefault(cell.suite, set()).update(one.unreached(changes[cell]) & one.reach.tests.keys())
        passed = set(one.reach.every).union(*one.reach.tests.values())
        reached.setdefault(cell.target, set()).update(changes[cell].functions & passed)
        known.setdefault(cell.target, set()).update(one.functions)
    return {
        cell: selected(one, changes[cell], reached[cell.target], agreeing[cell.suite])
        for cell, one in kept.items()
        # If no test reaches the change, that is no reason to run none: code that is in no program may be in a module.
        if (idle or reached[cell.target]) and changes[cell].functions <= known[cell.target]
    }


def not_entered(kept: KeptReach, change: CodeChange, functions: Iterable[str], now: CellReach) -> set[str]:
    """Differing code that the selected tests of a cell entered before but not this time, although the program still
    contains it. `functions`: all of the program. A record that may be incomplete proves nothing.
    """
    before = set().union(*kept.reach.tests.values()) & change.functions & set(functions)
    return before if now.problem else before - entered(now)


def entered(reach: CellReach) -> set[str]:
    """All functions that tests, or the servers between tests, of a cell entered."""
    return set(reach.every).union(*reach.tests.values(), *reach.failed.values(), *reach.skipped.values())


def selected(kept: KeptReach, change: CodeChange, reached: set[str], agreeing: set[str]) -> CellSelection:
    """The tests of one cell. `reached`: the part of the change that tests of its target reach, in all cells.
    `agreeing`: the suite's tests that passed on another target and that the change does not reach there.
    """
    tests = kept.reach.tests
    without = kept.unreached(change)
    if kept.compares:
        # The native build continued where the target stopped. If both agree, the target shows what the native build
        # enters.
        without -= set(kept.excused) - agreeing
    if tests.keys() <= without and len(without) < kept.reach.count:
        # Others run. If nothing else passes beside them, they prove nothing, and the shortest test must run.
        without -= {*sorted(tests, key=lambda name: len(tests[name]))[:1]}
    if not without or not tests:
        return EVERY_TEST
    return CellSelection(
        without=sorted(without),
        left_out=LeftOut(
            tests=len(without),
            of=kept.reach.count,
            functions=sorted(change.functions & reached),
            before=kept.run,
            known=len(without & set(kept.excused)),
        ),
    )
