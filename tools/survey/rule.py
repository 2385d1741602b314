"""The rule that chooses the packages, applied to the indexes of Debian's archive. It starts nothing.

A source package fits if

1. it builds a binary package of section `libs` for amd64 that depends on the C or C++ library, and one of `libdevel`;
2. everything that it needs for its build and its tests is a tool that survey.toml lists, or one of at most
   `MOST_LIBRARIES` libraries, which are the other packages whose names end in `-dev`.

Those that fit are ordered by their dependants: binary packages of other sources that need one of theirs. The first ones
are chosen. Debian's survey of installed packages cannot be reached with apt, so the order is one of use by packages.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from harness.build.sources.debian_source import version_in
from harness.core.errors import UsageError
from tools.survey.document import SUITE, WRITTEN, NamedPackage, Package

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tools.survey.document import Survey

CHOSEN = 60
MOST_LIBRARIES = 2
PAIRS = (("sparc64", "armv7-time64"), ("armv5", "s390x"))
"""The pairs of targets, which packages without libraries take in turn. Each pair has a machine with strict alignment, a
big-endian one, one with 32 bits and one with 64 bits.
"""
WITH_LIBRARIES = PAIRS[1]
"""The pair of packages that need a library: Debian has libraries for these two. It has none for sparc64, and those for
armv7 were compiled with a `time_t` of 32 bits.
"""
TOOL_PREFIXES = ("debhelper-", "dh-", "dpkg-")
"""The beginnings of names of more tools: those with which Debian builds packages."""
_C_LIBRARY = re.compile(r"\b(libc6|libstdc\+\+6)\b")
_BUILD_ARCHITECTURE = "amd64"
_HERE = {"any", "linux-any", "amd64", "armel", "armhf", "s390x", "sparc64"}
"""The architectures of a dependency that hold here: those of the host, where builds run, and of the targets."""
_NEEDED_FOR_TESTS = "<!nocheck>"
_DEPENDENCY = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.+-]+)(?::\w+)?\s*(?:\([^)]*\))?\s*(?:\[(?P<places>[^\]]*)\])?\s*(?P<profiles>(?:<[^>]*>\s*)*)"
)


class Chosen(NamedTuple):
    """The rule's result."""

    considered: int
    """How many source packages the index has."""
    libraries: int
    """How many of them build a library in C or C++."""
    fitting: int
    """How many of those fit."""
    packages: tuple[Package, ...]
    """The first ones by dependants, then the named ones that are not among them."""


def paragraphs(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of an index, as field -> value. Lines that continue a value are joined by line feeds."""
    fields: dict[str, str] = {}
    name = ""
    for line in itertools.chain(text.splitlines(), [""]):
        if not line.strip():
            if fields:
                yield fields
            fields = {}
        elif line[0] in " \t":
            fields[name] = f"{fields[name]}\n{line.strip()}".strip()
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()


def needed(fields: Mapping[str, str]) -> list[str]:
    """What a source package needs for its build and its tests here: of alternatives, the first.

    A dependency that a build profile removes is left out, such as those of manuals, unless only `nocheck` removes it.
    """
    named: dict[str, None] = {}
    for field in ("Build-Depends", "Build-Depends-Arch"):
        for one in fields.get(field, "").replace("\n", " ").split(","):
            found = _DEPENDENCY.match(one.partition("|")[0].strip())
            if found and _holds(found["places"] or "") and found["profiles"].strip() in {"", _NEEDED_FOR_TESTS}:
                named[found["name"]] = None
    return list(named)


def _holds(places: str) -> bool:
    """Whether a dependency that is restricted to architectures holds for the host or a target."""
    words = places.split()
    if any(word.startswith("!") for word in words):
        return "!linux-any" not in words
    return not words or bool(_HERE & {*words})


def parted(fields: Mapping[str, str], survey: Survey) -> tuple[list[str], list[str]]:
    """What a source package needs: libraries, and what is neither a library nor a tool."""
    others = [name for name in needed(fields) if name not in survey.tools and not name.startswith(TOOL_PREFIXES)]
    return [one for one in others if one.endswith("-dev")], [one for one in others if not one.endswith("-dev")]


def builds_library(source: Mapping[str, str], binaries: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a source package builds a shared library in C or C++, and what one compiles with it."""
    sections: defaultdict[str, list[str]] = defaultdict(list)
    for line in source.get("Package-List", "").splitlines():
        name, kind, section, *_ = [*line.split(), "", "", ""]
        if kind == "deb":
            sections[section].append(name)
    return bool(sections["libdevel"]) and any(
        binary.get("Architecture") == _BUILD_ARCHITECTURE
        and _C_LIBRARY.search(f"{binary.get('Depends', '')} {binary.get('Pre-Depends', '')}")
        for name in sections["libs"]
        if (binary := binaries.get(name)) is not None
    )


def dependants(binaries: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Source package -> how many binary packages of others need one of its binary packages.

    Alternatives count, and what other packages only provide does not.
    """
    source_of = {name: (fields.get("Source") or name).split()[0] for name, fields in binaries.items()}
    needing: defaultdict[str, set[str]] = defaultdict(set)
    for name, fields in binaries.items():
        for field in ("Depends", "Pre-Depends"):
            for one in re.split(r"[,|]", fields.get(field, "").replace("\n", " ")):
                found = _DEPENDENCY.match(one.strip())
                source = source_of.get(found["name"], "") if found else ""
                if source and source != source_of[name]:
                    needing[source].add(name)
    return {source: len(names) for source, names in needing.items()}


def size_bytes(source: Mapping[str, str]) -> int:
    """The size of the files of a source package."""
    return sum(int(line.split()[1]) for line in source.get("Files", "").splitlines() if line)


def choose(
    sources: Mapping[str, Iterable[Mapping[str, str]]],
    packages: Iterable[Mapping[str, str]],
    survey: Survey,
    *,
    count: int = CHOSEN,
) -> Chosen:
    """Apply the rule to the indexes. `sources`: suite -> the paragraphs of its source packages, of `SUITE` and of those
    of named packages; `packages`: those of the binary packages of `SUITE`.

    Raises UsageError for a named package that its suite lacks.
    """
    newest = {suite: _newest(paragraphs) for suite, paragraphs in sources.items()}
    every = newest[SUITE]
    binaries = {fields["Package"]: fields for fields in packages}
    numbers = dependants(binaries)
    with_library = [fields for fields in every.values() if builds_library(fields, binaries)]
    fitting = [fields for fields in with_library if _fits(fields, survey)]
    first = sorted(fitting, key=lambda fields: (-numbers.get(fields["Package"], 0), fields["Package"]))[:count]
    given = {one.name: one for one in survey.named}
    drawn = {fields["Package"] for fields in first}
    added = [_named(one, newest) for one in survey.named if one.name not in drawn]
    pairs = itertools.cycle(PAIRS)
    chosen = []
    for fields in [*first, *added]:
        name = fields["Package"]
        found, _ = parted(fields, survey)
        # A named package has its targets even where the rule chooses it: the report is about one of them.
        wanted = given.get(name, NamedPackage(name=name))
        chosen.append(
            Package(
                name=name,
                version=fields["Version"],
                dependants=numbers.get(name, 0),
                size_bytes=size_bytes(fields),
                libraries=tuple(found),
                targets=wanted.targets or (WITH_LIBRARIES if found else next(pairs)),
                suite=SUITE if name in drawn else wanted.suite,
                configure=wanted.configure,
                make=wanted.make,
                named=name not in drawn,
            )
        )
    return Chosen(len(every), len(with_library), len(fitting), tuple(chosen))


def _newest(paragraphs: Iterable[Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Name -> the newest version of a source package. What is kept for another package's sake alone is left out."""
    every: dict[str, Mapping[str, str]] = {}
    for fields in paragraphs:
        if fields.get("Extra-Source-Only") == "yes":
            continue
        there = every.get(fields["Package"])
        if (
            there is None
            or version_in(f"Version: {there['Version']}\nVersion: {fields['Version']}") != there["Version"]
        ):
            every[fields["Package"]] = fields
    return every


def _fits(source: Mapping[str, str], survey: Survey) -> bool:
    found, others = parted(source, survey)
    return len(found) <= MOST_LIBRARIES and not others


def _named(one: NamedPackage, newest: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Mapping[str, str]:
    found = newest[one.suite].get(one.name)
    if found is None:
        raise UsageError(f"Debian {one.suite} has no source package {one.name}", where=str(WRITTEN))
    return found
