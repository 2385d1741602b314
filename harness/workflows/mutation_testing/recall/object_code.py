"""Proves mutants equivalent: the files that one changes, compiled as the release compiles them, give the same objects.

The compiler's calls are recorded once, while the release is built for a target. Afterwards a mutant costs the
compilation of the files that contain its change; ccache has the result when a check builds the mutant. In a second
build, without optimisation, the linker reports the functions that nothing in the server refers to.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.build.toolchain import tool
from harness.build.workshop.build_plan import BuildPlan
from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.model import DEFAULT_OPTIMISATION, Record
from harness.core.processes import process

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from harness.build.workshop.build_directory import BuildDirectory
    from harness.core.model import SourceTree
    from harness.core.target_model import Target
    from harness.workflows.workbench import Workbench

BINUTILS_SECONDS = 60.0
SERVER_FOLDER = "src"
Comparison = Literal["invalid", "same", "different"]
"""The mutant does not compile; its objects are the release's; they are not."""


class CompiledUnit(Record, frozen=True):
    """One file that the makefiles compile."""

    folder: str
    """The folder in the tree in which the compiler runs."""
    words: list[str]
    """The compiler's arguments, as the makefile gives them."""
    object: str
    """The object file, in that folder."""
    sources: list[str]
    """Every file of the tree that it contains, by its path in the tree."""
    digest: str
    """Digest of the release's object without debug information, which contains only lines and names."""

    @property
    def place(self) -> str:
        """The object file in the tree."""
        return f"{self.folder}/{self.object}"


class UnreferencedFunction(Record, frozen=True):
    """A function that the linker omits if allowed, because nothing in the server refers to it."""

    folder: str
    """The folder of its unit."""
    object: str
    function: str


class ReleaseRecord(Record, frozen=True):
    """The stored data of a release for one target."""

    units: list[CompiledUnit]
    unreferenced: list[UnreferencedFunction]


_SECTIONS = (
    # With optimisation, a function may have been inlined at every call.
    "-O0",
    "-ffunction-sections",
    "-fdata-sections",
    "-Wl,--gc-sections",
    "-Wl,--print-gc-sections",
    # The makefile exports every function to modules, which get theirs by name from the server instead.
    "-Wl,--no-export-dynamic",
)
_REMOVED = re.compile(r"removing unused section '\.text\.(?:\S+\.)?(\w+)' in file '(?:(.*)/)?([^/']+?)'")


class ReleaseObjects:
    """The objects of a release for one target."""

    def __init__(self, bench: Workbench, tree: SourceTree, target: Target, stored: ReleaseRecord) -> None:
        self._bench = bench
        self.target = target
        self.tree = tree
        self.units = stored.units
        self._unreferenced = frozenset(stored.unreferenced)

    @classmethod
    def record(cls, bench: Workbench, tree: SourceTree, target: Target, stored: Path) -> ReleaseObjects:
        """Build a release for a target and record its units in a file, or read that. Raises BuildFailedError."""
        if not stored.is_file():
            with _workshop(bench, tree, target) as shop:
                units = _build(shop)
            with _workshop(bench, tree, target) as shop:
                unreferenced = _unreferenced(shop)
            write_whole(stored, json_codec.encode(ReleaseRecord(units=units, unreferenced=unreferenced)))
        return cls(bench, tree, target, json_codec.decode(stored.read_bytes(), ReleaseRecord))

    def containing(self, file: str) -> list[CompiledUnit]:
        """The units that contain a file."""
        return [unit for unit in self.units if file in unit.sources]

    def is_unreferenced(self, file: str, function: str) -> bool:
        """Whether nothing in the server refers to a function of a source file, which therefore never runs.

        False if it is not proved: for a header, whose functions have no object of their own, and for a name that the
        file gives a structure, too.
        """
        units = [unit for unit in self.containing(file) if unit.words[-1] == Path(file).name]
        if not file.endswith(".c") or not function or not units:
            return False
        if re.search(
            rf"\b(struct|union)\s+{re.escape(function)}\b", (self.tree.path / file).read_text("utf-8", "replace")
        ):
            return False
        return all(
            UnreferencedFunction(folder=unit.folder, object=unit.object, function=function) in self._unreferenced
            for unit in units
        )

    def compare(self, mutant: SourceTree, file: str) -> Comparison:
        """Compile a mutant's units that contain the file it changes, and compare their objects with the release's.

        Raises InfrastructureError for faults of the machine.
        """
        with _workshop(self._bench, mutant, self.target) as shop:
            for unit in self.containing(file):
                folder = shop.tree / unit.folder
                if shop.run([shop.compilers[0], *unit.words], folder=folder).code != 0:
                    return "invalid"
                if _digest(shop, folder / unit.object) != unit.digest:
                    return "different"
        return "same"


def _workshop(bench: Workbench, tree: SourceTree, target: Target) -> AbstractContextManager[BuildDirectory]:
    """The same place for a release and its mutants, so that paths in objects are the same."""
    tools = bench.catalog.toolchain_of(target)
    plan = BuildPlan(tree=tree, target=target, tools=tools, optimisation=DEFAULT_OPTIMISATION)
    return bench.builder.workshop(plan, what=f"objects of {plan.title}", kind="objects")


def _build(shop: BuildDirectory) -> list[CompiledUnit]:
    """Make the server through a compiler that records its calls."""
    calls = shop.work / "calls"
    calls.mkdir()
    recorder = shop.work / "recording-gcc"
    # Each call has its own file, because make runs several at a time; and one with the files that it reads.
    recorder.write_text(
        "#!/bin/sh\n"
        f"calls={shlex.quote(str(calls))} compiler={shlex.quote(str(shop.compilers[0]))}\n"
        'for word do case $word in -c) printf "%s\\0" "$PWD" "$@" >"$calls/$$.call"\n'
        '"$compiler" "$@" -MMD -MF "$calls/$$.files"; exit; esac done\n'
        'exec "$compiler" "$@"\n',
        "utf-8",
    )
    recorder.chmod(0o755)
    made = shop.make([shop.binary.name], compiler=recorder)
    if made.code != 0 or not shop.binary.is_file():
        raise shop.failure(made, because="the build that records the compiler's calls failed")
    units = [unit for call in sorted(calls.glob("*.call")) if (unit := _unit(shop, call)) is not None]
    # Lua's functions are hidden: the linker has made local symbols of theirs.
    contained = _symbols(shop, shop.binary)
    # From an archive, the linker takes only objects to which something refers: Lua's archive also contains its
    # compiler.
    defined = {unit.place: _symbols(shop, shop.tree / unit.place, "--extern-only") for unit in units}
    # A symbol that compilers add to many objects, as SPARC's for the address of its data, does not show that one is
    # linked.
    times = collections.Counter(symbol for symbols in defined.values() for symbol in symbols)
    return [unit for unit in units if any(times[each] == 1 and each in contained for each in defined[unit.place])]


def _unit(shop: BuildDirectory, call: Path) -> CompiledUnit | None:
    """The file that a call compiled; None for a call that only tested the compiler, and whose object is gone."""
    where, *words = call.read_bytes().decode().removesuffix("\0").split("\0")
    folder = Path(where)
    output = words[words.index("-o") + 1] if "-o" in words else f"{Path(words[-1]).stem}.o"
    if not (folder / output).is_file():
        return None
    listed = call.with_suffix(".files").read_text("utf-8").replace("\\\n", " ").partition(":")[2].split()
    top = os.path.realpath(shop.tree)
    paths = (os.path.realpath(folder / name) for name in listed)
    return CompiledUnit(
        folder=os.path.relpath(os.path.realpath(folder), top),
        words=words,
        object=output,
        sources=sorted(os.path.relpath(path, top) for path in paths if path.startswith(f"{top}{os.sep}")),
        digest=_digest(shop, folder / output),
    )


def _unreferenced(shop: BuildDirectory) -> list[UnreferencedFunction]:
    """Make the server without the functions that nothing refers to, and return these."""
    made = shop.make([shop.binary.name], compiler=shop.wrapper("gcc", _SECTIONS, suffix="-sections"))
    if made.code != 0 or not shop.binary.is_file():
        raise shop.failure(made, because="the build without optimisation failed, which tells what nothing refers to")
    found = []
    for line in made.text.splitlines():
        if removed := _REMOVED.search(line):
            function, folder, file = removed.groups()
            archived = re.fullmatch(r"[^(]+\.a\((.+)\)", file)
            found.append(
                UnreferencedFunction(
                    # Makefiles link in the folder in which they compile the server, and name libraries relative to it.
                    folder=os.path.normpath(f"{SERVER_FOLDER}/{folder or ''}"),
                    object=archived[1] if archived else file,
                    function=function,
                )
            )
    return found


def _symbols(shop: BuildDirectory, file: Path, *options: str) -> set[str]:
    """The symbols that an object or a program defines, except `main`, which each program has."""
    listed = process.run_successfully(
        [tool(shop.tools, "nm"), *options, "--defined-only", "--format=posix", file],
        problem="an object's symbols cannot be listed",
        where=str(file),
        deadline_seconds=BINUTILS_SECONDS,
    )
    return {line.split()[0] for line in listed.text.splitlines() if len(line.split()) > 1} - {"main"}


def _digest(shop: BuildDirectory, file: Path) -> str:
    """The digest of an object's content without debug information."""
    stripped = shop.work / "stripped.o"
    process.run_successfully(
        [tool(shop.tools, "objcopy"), "--strip-debug", file, stripped],
        problem="an object's debug information cannot be removed",
        where=str(file),
        deadline_seconds=BINUTILS_SECONDS,
    )
    return hashlib.sha256(stripped.read_bytes()).hexdigest()
