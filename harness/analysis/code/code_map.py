"""The machine code of all objects of a build, and the differences between two builds.

Equal code may behave differently: a name that it refers to may have another meaning, or another function may now be at
a distance that the assembler has written. Both count as differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.code.elf_object import RECIPE, ObjectCode, read_object
from harness.core.digests import sha256_of
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class CodeMap(Record, frozen=True):
    """All objects of a build."""

    objects: dict[str, ObjectCode]
    """Path below the folder of the build -> the object."""
    link: list[str]
    """The command that links them."""
    recipe: str
    """RECIPE of the release that made the digests."""


class CodeChange(Record, frozen=True):
    """The differences between two builds."""

    functions: frozenset[str]
    """Functions of the first build whose code differs in the second, or that the second lacks."""
    elsewhere: list[str]
    """Objects whose named data differ, and those that one of the builds lacks; the link, if that differs; names that a
    library defined for the first build and an object defines for the second.
    """


def read_objects(
    folder: Path, link: Sequence[str], known: CodeMap | None = None, *, without: Path | None = None
) -> CodeMap | None:
    """The code of all objects below a folder; None if there are none or one cannot be read, as with -flto.

    `known`: another build's, whose equal objects are not read again. `without`: a folder whose objects do not count.
    """
    by_digest = {}
    if known is not None and known.recipe == RECIPE:
        by_digest = {each.sha256: each for each in known.objects.values()}
    objects: dict[str, ObjectCode] = {}
    for path in sorted(folder.rglob("*.o")):
        if without is not None and path.is_relative_to(without):
            continue
        digest = sha256_of(path)
        found = by_digest.get(digest) or read_object(path, digest)
        if found is None:
            return None
        objects[path.relative_to(folder).as_posix()] = found
    return CodeMap(objects=objects, link=list(link), recipe=RECIPE) if objects else None


def differences(old: CodeMap, new: CodeMap) -> CodeChange:
    """The differences between two builds."""
    functions: set[str] = set()
    elsewhere = [] if (old.link, old.recipe) == (new.link, new.recipe) else ["the link"]
    for name in sorted(old.objects.keys() | new.objects.keys()):
        before, after = old.objects.get(name), new.objects.get(name)
        if before is None or after is None:
            elsewhere.append(name)
        elif before.sha256 != after.sha256:
            functions |= {one for one, digest in before.functions.items() if after.functions.get(one) != digest}
            functions |= _led_astray(before, after)
            if before.data != after.data:
                elsewhere.append(name)
    renamed, taken = _other_meanings(old, new)
    return CodeChange(functions=frozenset(functions | renamed), elsewhere=[*elsewhere, *taken])


def altered_objects(old: CodeMap, new: CodeMap) -> list[str]:
    """The objects of the second build that the first lacks, or whose functions or data differ there."""
    found = []
    for name, after in sorted(new.objects.items()):
        before = old.objects.get(name)
        if before is None or (before.functions, before.data) != (after.functions, after.data):
            found.append(name)
    return found


def _other_meanings(old: CodeMap, new: CodeMap) -> tuple[set[str], list[str]]:
    """Names whose meaning may differ in the second build although the references to them are equal: functions that
    another object defines, which may be weak, and names that only libraries defined before.
    """
    before = {name for each in old.objects.values() for name in each.defines}
    needed = {name for each in old.objects.values() for name in each.needs}
    renamed: set[str] = set()
    taken: set[str] = set()
    for place, each in new.objects.items():
        there = old.objects.get(place)
        appeared = set(each.defines).difference(there.defines if there is not None else ())
        renamed |= appeared & before
        taken |= (appeared & needed) - before
    return renamed, sorted(taken)


def _led_astray(before: ObjectCode, after: ObjectCode) -> set[str]:
    """Functions of an object that refer by distance to a local function, where another function is now.

    A call of a local function may consist of a distance only, so the caller's code does not change.
    """

    def seen_from(places: Sequence[tuple[int, int, str, bool]]) -> dict[str, dict[int, str]]:
        return {
            name: {there - here: other for where, there, other, is_local in places if is_local and where == section}
            for section, here, name, _ in places
        }

    # Only the order of sections counts: the compiler determines it.
    now = seen_from(after.places)
    return {
        name
        for name, old in seen_from(before.places).items()
        if any(now.get(name, {}).get(distance, other) != other for distance, other in old.items())
    }
