"""A build's tree that is kept for the next build in its place, which compiles only what a change concerns.

Make compares times, and a changed file may have an old one. Here contents decide: an object stays if every file of the
tree that its compiler read has the same content as then, and if nothing else differs. A build restarts after any other
change: a file that is new, gone or no C source below src, another compiler or flag, another package on the host, a
product that was altered, or a product that is made in an unknown way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.compiler_output import Compilation, compilations, prerequisites
from harness.build.sources.tree_files import copy_file
from harness.core import json_codec
from harness.core.digests import files_below, sha256_of
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.build.sources.tree_files import SourceFile

NAME = "kept.json"
PACKAGES = Path("/var/lib/dpkg/status")
"""Its time changes with every package: a header of the C library may have, too."""
OWN_HEADERS = Path("/usr/local/include")
"""Headers that no package installed. The host's compiler reads them before those of packages."""
_COMPILED = re.compile(r"^src/.*\.[ch]$")
_SOURCES = "src"
"""The folder of the objects that the server's own makefile compiles. The libraries' have their own makefiles."""
_KNOWN_PRODUCTS = re.compile(r"\.[oad]$|^src/(release\.h|Makefile\.dep)$|(^|/)\.make-[^/]*$")
"""Files that a change of C sources can alter only through a compiler."""
_ELF = b"\x7fELF"


class OutputBlock(Record, frozen=True):
    """What make printed between two lines that name folders: with `--output-sync=target`, of one target."""

    objects: list[str]
    """The objects that the block's compilers made."""
    text: str


class KeptTree(Record, frozen=True):
    """The known state of a kept tree. All paths are relative to it."""

    recipe: str
    """A digest of everything apart from the sources that determines what make does."""
    sources: dict[str, str]
    """Source -> digest."""
    products: dict[str, str]
    """What make made -> digest."""
    reads: dict[str, list[str]]
    """Object -> the files of the tree that its compiler read."""
    output: list[OutputBlock]
    """What make printed for all of it."""


def machine_state() -> str:
    """A text that changes whenever a package or a header of the host does."""
    headers = [f"{name} {_state(status)}" for name, _, status in files_below(OWN_HEADERS)]
    try:
        return "\n".join([_state(PACKAGES.stat()), *headers])
    except OSError:
        return "\n".join(headers)


def _state(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns} {status.st_size}"


def take(work: Path) -> KeptTree | None:
    """The known state of the tree in a work folder; None if there is none. From here on, the tree does not count as
    kept.
    """
    place = work / NAME
    try:
        return json_codec.decode(place.read_bytes(), KeptTree)
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        place.unlink(missing_ok=True)


def put(work: Path, kept: KeptTree) -> None:
    """Store the known state of the tree in a work folder."""
    (work / NAME).write_bytes(json_codec.encode(kept))


def digests(sources: Iterable[SourceFile]) -> dict[str, str]:
    """The `KeptTree.sources` of these."""
    return {source.entry.place.as_posix(): source.sha256 for source in sources}


def bring_up_to_date(kept: KeptTree, tree: Path, sources: Sequence[SourceFile], programs: Iterable[str]) -> bool:
    """Give a kept tree other sources, and remove every object that they concern, and the `programs`.

    False if these cannot be determined: the tree must be rebuilt, and may be damaged.
    """
    now = digests(sources)
    changed = {place for place in now if kept.sources.get(place) != now[place]}
    if now.keys() != kept.sources.keys() or not all(map(_COMPILED.search, changed)):
        return False
    found = {name: path for name, path, _ in files_below(tree) if name not in now}
    for name, path in found.items():
        if name not in kept.products:
            # Drivers of units, and anything else that was compiled after the server.
            path.unlink()
    # The units' programs rename a symbol of an object.
    altered = {name for name, digest in kept.products.items() if name not in found or _digest(found[name]) != digest}
    stale = altered | {name for name, read in kept.reads.items() if not changed.isdisjoint(read)}
    if not altered <= kept.reads.keys() or any(_folder(name) != _SOURCES for name in stale):
        return False
    for name in [*stale, *(str(PurePosixPath(name).with_suffix(".d")) for name in stale), *programs]:
        (tree / name).unlink(missing_ok=True)
    for source in sources:
        copy_file(source, tree)
    return True


class MadeTree:
    """A tree in which make has just succeeded."""

    def __init__(self, tree: Path, output: str, compilers: Sequence[Path], before: KeptTree | None) -> None:
        """`output` is make's; `before` is the known state of the tree before make, if it was kept."""
        self._tree = tree
        self._before = before
        self._calls: dict[str, Compilation] = {}
        """Object -> how it was made this time."""
        self._blocks = []
        for text in re.split(r"^(?=make(?:\[\d+\])?: Entering directory )", output, flags=re.MULTILINE):
            found = compilations(text, tuple(map(str, compilers)))
            made = {name: call for call in found if (name := _object(call, tree))}
            self._calls |= made
            self._blocks.append(OutputBlock(objects=list(made), text=text))

    @property
    def output(self) -> list[OutputBlock] | None:
        """What make would have printed for the whole tree; None if outputs of several objects are one."""
        old = self._before.output if self._before is not None else []
        again = [block for block in old if not self._calls.keys().isdisjoint(block.objects)]
        if any(len(block.objects) > 1 for block in again):
            return None
        return [*(block for block in old if block not in again), *self._blocks]

    def known(
        self, sources: Mapping[str, str], recipe: str, preprocess: Callable[[Path, list[str]], str]
    ) -> KeptTree | None:
        """Its known state; None if that does not suffice to keep it.

        `preprocess` runs a compiler in a folder and returns what it prints.
        """
        if not all(name.isprintable() for name in sources):
            # A record cannot contain every name that a file may have, such as one that is not UTF-8.
            return None
        tree, output = self._tree, self.output
        products = {name: _digest(path) for name, path, _ in files_below(tree) if name not in sources}
        if output is None or not all(_KNOWN_PRODUCTS.search(name) or _is_elf(tree / name) for name in products):
            return None
        reads = self._reads(products, preprocess)
        known = sources.keys() | products.keys()
        # The record of a compiler that read nothing, or a file outside of the tree, is unreliable.
        if not reads or any(not read or not known.issuperset(read) for read in reads.values()):
            return None
        return KeptTree(recipe=recipe, sources=dict(sources), products=products, reads=reads, output=output)

    def _reads(
        self, products: Mapping[str, str], preprocess: Callable[[Path, list[str]], str]
    ) -> dict[str, list[str]] | None:
        """Object -> the files that its compiler read; None if it is unknown how an object was made."""
        tree, before = self._tree, self._before
        reads: dict[str, list[str]] = {}
        unknown: dict[str, Compilation] = {}
        for name in (name for name in products if name.endswith(".o")):
            beside = PurePosixPath(name).with_suffix(".d")
            same = before is not None and before.products.get(name) == products[name] and name not in self._calls
            if before is not None and same:
                reads[name] = before.reads[name]
            elif name not in self._calls:
                return None
            elif str(beside) in products:
                rule = (tree / beside).read_text("utf-8", "replace")
                reads[name] = _resolved(prerequisites(rule), str(beside.parent))
            else:
                unknown[name] = self._calls[name]
        return reads | _asked(unknown, tree, preprocess)


def _digest(path: Path) -> str:
    return f"link to {path.readlink()}" if path.is_symlink() else sha256_of(path)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(_ELF)) == _ELF


def _folder(name: str) -> str:
    return str(PurePosixPath(name).parent)


def _object(call: Compilation, tree: Path) -> str:
    """The object that a compiler made, relative to the tree; empty for none in it."""
    words = call.words
    if "-o" in words[:-1]:
        name = words[words.index("-o") + 1]
    elif source := _source(call):
        name = f"{Path(source).stem}.o"
    else:
        return ""
    whole = os.path.normpath(Path(call.folder) / name)
    return os.path.relpath(whole, tree) if Path(whole).is_relative_to(tree) else ""


def _source(call: Compilation) -> str:
    """The file that a compiler compiled; empty if it does not say."""
    found = [word for word in call.words if re.search(r"\.(c|cc|cpp|S|s)$", word) and not word.startswith("-")]
    return found[0] if len(found) == 1 else ""


def _resolved(names: Iterable[str], folder: str) -> list[str]:
    """Paths below the tree, of paths that a compiler wrote in a folder of the tree."""
    return sorted({os.path.normpath(f"{folder}/{name}") if name[0] != "/" else name for name in names})


def _asked(
    unknown: Mapping[str, Compilation], tree: Path, preprocess: Callable[[Path, list[str]], str]
) -> dict[str, list[str]]:
    """The files that the compilers of these objects read, according to the compilers: one call for all objects of a
    folder with the same flags.
    """
    alike: dict[tuple[str, ...], dict[str, str]] = {}
    for name, call in unknown.items():
        source, words = _source(call), call.words
        if not source:
            return {name: []}
        dropped = {source, "-c", "-o", words[words.index("-o") + 1] if "-o" in words[:-1] else "-c"}
        flags = [word for word in words if word not in dropped]
        alike.setdefault((call.folder, *flags), {})[source] = name
    reads: dict[str, list[str]] = {name: [] for name in unknown}
    for (folder, *flags), named in alike.items():
        printed = preprocess(Path(folder), [*flags, "-MM", *named]).replace("\\\n", " ")
        for line in printed.splitlines():
            files = prerequisites(line)
            if files and files[0] in named:
                reads[named[files[0]]] = _resolved(files, os.path.relpath(folder, tree))
    return reads
