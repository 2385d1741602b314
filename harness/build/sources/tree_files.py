"""Walks, digests and copies the source files of a server's tree, without products of earlier builds.

A link out of the tree may lead to the same repository, or to an installed package. It is treated as its target, which
is digested and copied; a copy contains only links to its own files. A build therefore sees exactly the files in its
digest. Every other link out of the tree is refused: a tree from a stranger would copy the user's own files into builds
and reports. The module never writes to the tree that it reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.errors import InfrastructureError, RefusedTreeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BEHIND_LINKS = 50_000
"""The most files and folders that links out of a tree may lead to. A link to the root folder leads to more, none of
them compiled. Eighteen folders with two links each to the one before lead to 2^18."""
DEEPEST = 200
"""The most folders within one another. A stranger's archive can contain deeper ones than the system can name."""
LONGEST_BYTES = 2000
"""The length of the longest path in a tree, which has to be named in a copy, too (PATH_MAX is 4096)."""
LARGEST_BYTES = 1 << 30
"""The size of the largest file that is copied. A core dump or a sparse file may exceed the memory."""
SHOWN_CHARACTERS = 300
"""How much of such a path an error shows."""
ATTEMPTS = 5
"""How often a tree that changes during the copy is copied again."""

_PACKAGES = Path("/usr")
"""Where packages install what everybody may read. `autoreconf --install` leaves links to it."""

_PRODUCTS = re.compile(r"\.(o|a|d|so|dylib|gcda|gcno|gcov|rdb|aof|log|pyc|xo)$|^\.make-|^(release\.h|core|\.git)$")
_FOLDERS = {".git", ".github", ".plumbline", "__pycache__", "autom4te.cache"}
"""Folders that no build reads. An edit of the list of known findings does not require a new build."""


class TreeEntry(NamedTuple):
    """A file or link of a tree."""

    place: Path
    """Path relative to the tree's top, the same in the tree and its copy."""
    path: Path
    """The path that is read, which is elsewhere for a link out of the tree."""
    link: str
    """The text of the link in the copy; empty for a file."""


def entries_of(tree: Path) -> Iterator[TreeEntry]:
    """The tree's sources in a fixed order, without products of earlier builds.

    Raises RefusedTreeError when links out of the tree lead to more than MOST_BEHIND_LINKS files and folders, to a
    folder that contains the tree, or neither to its repository nor below /usr; and for paths that exceed DEEPEST or
    LONGEST_BYTES.
    """
    yield from _walk(tree, Path(), [(Path(os.path.realpath(tree)), Path())], itertools.count(1))


def _walk(folder: Path, place: Path, roots: list[tuple[Path, Path]], behind: Iterator[int]) -> Iterator[TreeEntry]:
    """The entries of a folder. `roots`: the top, and the linked folders on the way here, each with its place. `behind`
    counts what links out of the tree lead to.
    """
    if len(place.parts) > DEEPEST or len(os.fsencode(place)) > LONGEST_BYTES:
        raise RefusedTreeError(
            f"the tree has folders deeper than {DEEPEST} levels or {LONGEST_BYTES} bytes",
            where=str(folder)[:SHOWN_CHARACTERS] + "…",
            because="the system cannot name the files of their copy",
            remedy="remove them",
        )
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (PermissionError, FileNotFoundError):
        # An unreadable folder cannot be compiled either, and it may have just been removed.
        return
    for entry in found:
        path, here = folder / entry.name, place / entry.name
        if len(roots) > 1:
            _refuse_too_many(next(behind), path)
        if entry.is_symlink():
            # Links to folders and files are excluded by the names that exclude folders and files.
            if entry.name not in _FOLDERS and not _PRODUCTS.search(entry.name):
                yield from _behind(path, here, roots, behind)
        elif entry.is_dir():
            if entry.name not in _FOLDERS:
                yield from _walk(path, here, roots, behind)
        elif entry.is_file() and not _PRODUCTS.search(entry.name) and not _is_program(path):
            # Other entries are sockets or pipes left by a test run.
            yield TreeEntry(here, path, "")


def _refuse_too_many(number: int, path: Path) -> None:
    if number > MOST_BEHIND_LINKS:
        raise RefusedTreeError(
            f"links out of the tree lead to more than {MOST_BEHIND_LINKS} files and folders",
            where=str(path),
            because="they would have to be copied, because the build may use them",
            remedy="remove the link",
        )


def _behind(path: Path, place: Path, roots: list[tuple[Path, Path]], behind: Iterator[int]) -> Iterator[TreeEntry]:
    """The replacement of a link: another link to the same place in the copy, or the target's content from elsewhere."""
    try:
        real = Path(os.path.realpath(path, strict=True))
    except OSError:
        # The link is dangling, or points to itself.
        with contextlib.suppress(FileNotFoundError):
            yield TreeEntry(place, path, os.readlink(path))  # noqa: PTH115 - a Path's own drops a slash at its end
        return
    for root, root_place in reversed(roots):
        if real.is_relative_to(root):
            # The text may name the user's folder, or pass through another: the copy refers to its own files.
            inside = Path("/") / root_place / real.relative_to(root)
            yield TreeEntry(place, path, os.path.relpath(inside, Path("/") / place.parent))
            return
    if roots[0][0].is_relative_to(real):
        raise RefusedTreeError(
            "a link of the tree leads to a folder that contains the tree",
            where=f"{path} -> {real}",
            because="what links out of a tree lead to is copied with it, since a build may use it",
            remedy="remove the link",
        )
    if not _is_shared(real, roots[0][0]):
        raise RefusedTreeError(
            "a link of the tree leads out of it and of its repository",
            where=f"{path} -> {real}",
            because="a build and a report of a stranger's tree would contain files of yours",
            remedy=f"remove the link, or if you trust it, check a copy: cp -RL {shlex.quote(str(roots[0][0]))} COPY",
        )
    _refuse_too_many(next(behind), path)
    if real.is_dir():
        yield from _walk(real, place, [*roots, (real, place)], behind)
    elif real.is_file() and not _is_program(real):
        yield TreeEntry(place, real, "")


def _is_shared(real: Path, top: Path) -> bool:
    """Whether a tree may lead to a file or folder outside it: in its repository, but not git's own, or in a package."""
    repository = next((folder for folder in (top, *top.parents) if (folder / ".git").exists()), top)
    within = real.relative_to(repository) if real.is_relative_to(repository) else None
    return real.is_relative_to(_PACKAGES) or (within is not None and ".git" not in within.parts)


def _is_program(path: Path) -> bool:
    if not os.access(path, os.X_OK):
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


def source_files(tree: Path) -> Iterator[Path]:
    """The paths of the tree's sources, links included, in a fixed order."""
    for entry in entries_of(tree):
        yield tree / entry.place


class SourceFile(NamedTuple):
    """A file or link of a tree, as it was read."""

    entry: TreeEntry
    content: bytes
    """The text of a link."""
    executable: bool

    @property
    def digest_input(self) -> bytes:
        """Unambiguous: different lists of files never have the same input."""
        kind = "link" if self.entry.link else "program" if self.executable else "file"
        return os.fsencode(self.entry.place) + f"\0{kind}\0{len(self.content)}\0".encode() + self.content

    @property
    def sha256(self) -> str:
        """The digest of only this file."""
        return hashlib.sha256(self.digest_input).hexdigest()


def read_sources(tree: Path) -> Iterator[SourceFile]:
    """The tree's sources in a fixed order. Raises RefusedTreeError for an unreadable file."""
    for entry in entries_of(tree):
        if (read := _read(entry)) is not None:
            yield SourceFile(entry, *read)


def digest_of(tree: Path) -> str:
    """SHA-256 over the sources' names, contents and executable bits: uncommitted changes count.

    Raises RefusedTreeError for an unreadable file.
    """
    return digest_of_sources(read_sources(tree))


def digest_of_sources(sources: Iterable[SourceFile]) -> str:
    """The digest of a tree that consists of these sources."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.digest_input)
    return digest.hexdigest()


def copy_tree(tree: Path, destination: Path) -> str:
    """Copy the sources with times and modes, so that make sees the same state as for the user: the digest of the copy.

    The digest covers the bytes that were written, even if the tree changes meanwhile. Raises RefusedTreeError for an
    unreadable file.
    """
    digest = hashlib.sha256()
    for source in read_sources(tree):
        copy_file(source, destination)
        digest.update(source.digest_input)
    return digest.hexdigest()


def copy_file(source: SourceFile, destination: Path) -> None:
    """Write a file or link into a copy of its tree, which may already contain a file of that name."""
    entry = source.entry
    copy = destination / entry.place
    if not _is_copied(source, copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        if entry.link:
            copy.symlink_to(entry.link)
        else:
            copy.write_bytes(source.content)
    else:
        with contextlib.suppress(FileNotFoundError):
            if _stamp(copy) == _stamp(entry.path) and (entry.link or _is_executable(copy) == source.executable):
                return
    with contextlib.suppress(FileNotFoundError):
        shutil.copystat(entry.path, copy, follow_symlinks=False)
    if not entry.link:
        # The mode at the time of reading.
        mode = copy.stat().st_mode
        copy.chmod(mode | 0o111 if source.executable else mode & ~0o111)


def _stamp(path: Path) -> tuple[int, int]:
    """The properties of a file that make and a later build see besides its content: its time, and its mode."""
    status = path.lstat()
    return status.st_mtime_ns, status.st_mode


def _is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o111)


def _is_copied(source: SourceFile, copy: Path) -> bool:
    """Whether the copy has this content."""
    try:
        if source.entry.link:
            return os.fsencode(os.readlink(copy)) == source.content  # noqa: PTH115 - Path's drops a slash at its end
        return not copy.is_symlink() and copy.read_bytes() == source.content
    except OSError:
        return False


def copy_at_rest(tree: Path, destination: Path) -> str:
    """Copy the state of a tree at one moment, although it may be edited meanwhile: the digest of the copy.

    Raises InfrastructureError for a tree that never stops changing.
    """
    for _ in range(ATTEMPTS):
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir(parents=True)
        digest = copy_tree(tree, destination)
        if digest == digest_of(tree):
            return digest
    raise InfrastructureError(
        f"the tree changed while it was copied, {ATTEMPTS} times",
        where=str(tree),
        because="a mixture of two states would match no version of the tree",
        remedy="run again while nothing writes to it, or check a separate tree: git worktree add",
    )


def _read(entry: TreeEntry) -> tuple[bytes, bool] | None:
    """An entry's content and executable bit; None if it has disappeared, as editors' files do."""
    if entry.link:
        return os.fsencode(entry.link), False
    try:
        with entry.path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            _refuse_too_large(status.st_size, entry.path)
            return stream.read(), bool(status.st_mode & 0o111)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise UsageError("a file of the tree cannot be read", where=str(entry.path), because=str(error)) from error


def _refuse_too_large(size: int, path: Path) -> None:
    if size > LARGEST_BYTES:
        raise RefusedTreeError(
            f"a file of the tree is larger than {LARGEST_BYTES >> 20} MB",
            where=str(path),
            because="it is copied and digested with the tree, since a build may use it",
            remedy="remove it from the tree",
        )
