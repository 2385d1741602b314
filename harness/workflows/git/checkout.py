"""Reads a server's git checkout: the files that differ from a revision, and that revision's own tree.

It never writes to the checkout or its index, and judges no commit.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.build.sources.tree_files import entries_of
from harness.core import untrusted_text
from harness.core.errors import InfrastructureError, PlumblineError, UsageError
from harness.judge.baseline import BaseRevision
from harness.record.run_record import CHANGES
from harness.workflows.git.base_search import BaseSearch
from harness.workflows.git.git_commands import Git

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SUBMODULES = ("--ignore-submodules=none",)
"""Git's options for submodules, which override the user's configuration."""
_READ = re.compile(r"(Makefile|(src|deps|modules)/(.*/)?(Makefile[^/]*|[^/]+\.(c|h|cc|cpp|hpp|S|inc|def|mk)))$")
"""What compilers and make read of a server."""


def enclosing_server(path: Path) -> Path:
    """The top folder of the server that a folder belongs to; the folder itself if it is in no server's work tree."""
    place = path.resolve()
    for folder in (place, *place.parents):
        if (folder / "src" / "version.h").is_file():
            return folder
        if (folder / ".git").exists():
            break
    return path


def revision_of(tree: Path) -> str:
    """The commit that a tree is at, with `+changes` behind it if files below the tree differ, untracked ones included.

    Empty for a tree that is in no checkout, without a commit, and without git: a run then has no revision.
    """
    if shutil.which("git") is None:
        return ""
    try:
        return Checkout(tree).revision()
    except PlumblineError:
        return ""


class ReplacedLines(NamedTuple):
    """Lines of a file, counted from 1, that differ from a revision's. An empty range begins at the line in front."""

    old: range
    new: range

    @property
    def moves(self) -> bool:
        """Whether the lines behind have other numbers."""
        return len(self.old) != len(self.new)

    @property
    def behind(self) -> tuple[int, int]:
        """The number of the first line behind, in the revision and now."""
        old, new = (each.stop if each else each.start + 1 for each in (self.old, self.new))
        return old, new


class Checkout:
    """A folder in a git work tree: its top, or a folder below it if the server is part of a larger repository."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for a folder that is not in a checkout, InfrastructureError without git."""
        self.path = path
        self._git = Git(path)
        found = self._git.run("rev-parse", "--is-inside-work-tree", "--absolute-git-dir")
        inside, _, files = found.text.rstrip("\n").partition("\n")
        why = "" if found.code == 0 and inside == "true" else found.text.strip()
        if not why and path.resolve().is_relative_to(files):
            # A commit can contain the files of another repository, which git takes for the folder's own, settings
            # included: its base would be what the commit's author wrote.
            why = f"{files} holds the files of a repository among others, and not in .git"
        if why:
            raise UsageError(
                "not a git checkout",
                where=str(path),
                because=why,
                remedy=f"plumb check --server {shlex.quote(str(path))}, which needs no base",
            )
        self.below = self._git.ask("rev-parse", "--show-prefix")
        """The folder's path in the work tree, with a slash at its end; empty for the top."""
        self._submodules_in: dict[str, dict[str, str]] = {}
        """Commit -> what `_submodules` says of it, for every file that is asked about."""

    def base(self, named: str = "") -> BaseRevision:
        """The merge base of HEAD and a named revision; without a name, of HEAD and the branch that it came from.

        Raises UsageError as BaseSearch.base does.
        """
        return BaseSearch(self._git).base(named)

    def revision(self) -> str:
        """The commit, and whether files below the folder differ from it: `revision_of`."""
        commit = self._git.commit("HEAD")
        if commit is None:
            return ""
        status = self._git.ask("status", "--porcelain", "--untracked-files=normal", *_SUBMODULES, "--", ".")
        return commit + (CHANGES if status or self._overlooked(commit) else "")

    def has(self, commit: str) -> bool:
        """Whether the repository has a commit."""
        return self._git.commit(commit) is not None

    def files(self) -> list[str]:
        """The files below the folder that git does not ignore, relative to it."""
        return self._git.names("ls-files", "--cached", "--others", "--exclude-standard", "-z")

    def changed(self, base: BaseRevision) -> list[str]:
        """Files below the folder that differ from a revision: committed since, uncommitted, untracked or removed.

        Paths are relative to the folder. Files that git ignores do not count (`unseen`), but those count that git was
        told to take for unchanged, and those of submodules: compilers read them. What links lead to counts under the
        links' names as well, also where it is beside the folder: compilers read it there. Bytes of a name that are not
        UTF-8 are escaped.
        """
        return sorted(map(untrusted_text.as_utf8, self.differing(base)))

    def differing(self, base: BaseRevision) -> set[str]:
        """The same, with the names of the files as they are."""
        found = self.named_by_git(base) | {*self._overlooked(base.commit)}
        changed = {file for name in found for file in self._files_of(name, base)}
        return changed | set(self._behind_links(changed, base.commit))

    def named_by_git(self, base: BaseRevision) -> set[str]:
        """The files of `differing` that git reports: not what links lead to, nor what git was told to overlook."""
        words = ["--name-only", "--no-renames", "--no-ext-diff", *_SUBMODULES, "-z", "--relative"]
        differing = self._git.names("diff", *words, base.commit)
        return {*differing, *self._git.names("ls-files", "--others", "--exclude-standard", "-z")}

    def changed_lines(self, base: BaseRevision, name: str) -> list[range]:
        """The lines of a file, counted from 1, that differ from a revision, piece by piece. A piece is empty if lines
        were only removed. No pieces mean that the lines are unknown, as those of a file whose name is not UTF-8.
        """
        return [one.new for one in self.replaced_lines(base, name)]

    def replaced_lines(self, base: BaseRevision, name: str) -> list[ReplacedLines]:
        """The same with the lines that they replace; these are empty for a file that the revision does not have."""
        for place, commit in self._submodules(base.commit).items():
            if name.startswith(f"{place}/") and (module := self._submodule(place)) is not None:
                return module.replaced_lines(_replaced(base, commit), name.removeprefix(f"{place}/"))
        if self._git.run("cat-file", "-e", f"{base.commit}:{self.below}{name}").code != 0:
            lines = (self.path / name).read_bytes().count(b"\n") if (self.path / name).is_file() else 0
            return [ReplacedLines(range(0), range(1, lines + 1))] if lines else []
        words = ["--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--text"]
        shown = self._git.ask("diff", *words, base.commit, "--", f":(literal){name}")
        found = re.findall(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", shown, re.MULTILINE)
        return [ReplacedLines(_lines(*numbers[:2]), _lines(*numbers[2:])) for numbers in found]

    def unseen(self) -> list[str]:
        """Sources that may differ from a revision without anyone noticing, and that a build may read: git ignores them,
        or links lead to them out of the repository. Paths are as those of `changed`.
        """
        ignored = self._git.names("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
        top = self._git.top()
        elsewhere = (name for name, real in self._outside() if not real.is_relative_to(top))
        return sorted(untrusted_text.as_utf8(name) for name in {*ignored, *elsewhere} if _READ.match(name))

    def _files_of(self, name: str, base: BaseRevision) -> list[str]:
        """The files that differ from a revision, for a name that git reports: more than one for a submodule. The
        submodule's own name stands for files that were removed with it, or that cannot be compared.
        """
        module = self._submodule(name)
        if module is None:
            return [name]
        commit = self._submodules(base.commit).get(name, "")
        known = commit and module.has(commit)
        files = module.differing(_replaced(base, commit)) if known else module.files()
        return [f"{name.rstrip('/')}/{file}" for file in files] or [name]

    def _submodules(self, revision: str) -> dict[str, str]:
        """The submodules below the folder in a commit: place -> their own commit."""
        if revision not in self._submodules_in:
            lines = self._git.names("ls-tree", "-r", "-z", revision)
            rows = (line.split(None, 3) for line in lines if line.startswith("160000 "))
            self._submodules_in[revision] = {place: commit for _, _, commit, place in rows}
        return self._submodules_in[revision]

    def _submodule(self, place: str) -> Checkout | None:
        """The work tree of a submodule below the folder; None if there is none, or if it was not fetched."""
        folder = self.path / place
        return Checkout(folder) if (folder / ".git").exists() and not folder.is_symlink() else None

    def _behind_links(self, changed: Collection[str], revision: str) -> Iterator[str]:
        """The names under which links lead to files that differ from a revision. `changed`: those of the folder."""
        for entry in entries_of(self.path):
            if entry.link:
                target = os.path.normpath(entry.place.parent / entry.link)
                behind = (name for name in changed if f"{name}/".startswith(f"{target}/"))
                yield from (f"{entry.place}{name.removeprefix(target)}" for name in behind)
        top = self._git.top()
        for name, real in self._outside():
            if real.is_relative_to(top) and self._differs(str(real.relative_to(top)), revision, below=""):
                yield name

    def _outside(self) -> Iterator[tuple[str, Path]]:
        """The files outside the folder to which links lead: name in the folder -> path."""
        for entry in entries_of(self.path):
            if not entry.link and entry.path != self.path / entry.place:
                yield entry.place.as_posix(), Path(os.path.realpath(entry.path))

    def _overlooked(self, revision: str) -> list[str]:
        """The files that differ from a revision among those that git was configured to ignore: `git update-index` with
        --assume-unchanged or --skip-worktree. Files that a sparse checkout lacks do not count.
        """
        lines = self._git.names("ls-files", "-v", "-z")
        marked = [line[2:] for line in lines if line[:1] == "S" or line[:1].islower()]
        return [name for name in marked if (self.path / name).is_file() and self._differs(name, revision)]

    def _differs(self, name: str, revision: str, *, below: str | None = None) -> bool:
        """Whether a file differs from a revision. `below`: where the name begins, as `self.below`, which it is."""
        place = f"{self.below if below is None else below}{name}"
        there = self._git.run("rev-parse", "--verify", "--quiet", f"{revision}:{place}")
        top = self._git.top()
        return there.code != 0 or there.text.strip() != self._git.ask("hash-object", "--", place, folder=top)

    def content(self, base: BaseRevision) -> str:
        """The identity of the folder's content in a revision, the same for every commit that has this content."""
        return self._git.ask("rev-parse", f"{base.commit}:{self.below.rstrip('/')}")

    def text(self, base: BaseRevision, name: str) -> str | None:
        """The content of a file of the folder in a revision, as it is; None if that has no such file."""
        place = f"{base.commit}:{self.below}{name}"
        if self._git.run("cat-file", "-e", place).code != 0:
            return None
        read = self._git.run("cat-file", "blob", place)
        if read.code != 0:
            raise InfrastructureError("git cat-file failed", where=place, because=read.text.strip())
        return read.text

    def write(self, base: BaseRevision, into: Path) -> Path:
        """Write a revision's whole tree into a folder, with a separate index. Returns the server's folder in it."""
        into.mkdir(parents=True)
        index = into.with_name(f"{into.name}.index")
        self._git.ask("read-tree", base.commit, index=index)
        self._git.ask("checkout-index", "--all", f"--prefix={into}/", index=index, folder=self._git.top())
        index.unlink()
        # Its links may lead anywhere in the repository, as in the checkout (harness.build.sources.tree_files).
        (into / ".git").mkdir(exist_ok=True)
        seconds = int(self._git.ask("show", "--no-patch", "--format=%ct", base.commit))
        tree = into / self.below
        for place, commit in self._submodules(base.commit).items():
            module = self._submodule(place)
            if module is not None and module.has(commit):
                shutil.rmtree(tree / place, ignore_errors=True)
                module.write(_replaced(base, commit), tree / place)
        # All files get the same time, so that make does not rebuild generated files that were committed.
        for path in tree.rglob("*"):
            os.utime(path, (seconds, seconds), follow_symlinks=False)
        return tree


def _lines(first: str, count: str) -> range:
    """Lines as git's diff writes them: a missing count is 1."""
    return range(int(first), int(first) + int(count or 1))


def _replaced(base: BaseRevision, commit: str) -> BaseRevision:
    """A base's commit of a submodule."""
    return BaseRevision(commit=commit, subject=base.subject, why=base.why)
