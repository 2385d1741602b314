"""Reads a server's git checkout: the base revision, the files that changed since, and the base's own tree.

It never writes to the checkout or its index, and judges no commit.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.core.errors import InfrastructureError, UsageError
from harness.core.processes import environment, process
from harness.judge.baseline import BaseRevision

GIT_SECONDS = 120.0
UPSTREAMS = ("origin/HEAD", "origin/unstable", "origin/main", "origin/master")
"""Candidates for the default branch of the remote, in order of preference."""


class Checkout:
    """A folder in a git work tree: its top, or a folder below it if the server is part of a larger repository."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for a folder that is not in a checkout, InfrastructureError without git."""
        self.path = path
        found = self._git("rev-parse", "--is-inside-work-tree")
        if found.code != 0 or found.text.strip() != "true":
            raise UsageError(
                "not a git checkout",
                where=str(path),
                because=found.text.strip(),
                remedy="plumb check --server PATH takes any source tree, and compares with nothing",
            )
        self.below = self._ask("rev-parse", "--show-prefix")
        """The folder's path in the work tree, with a slash at its end; empty for the top."""

    def base(self, since: str = "") -> BaseRevision:
        """The merge base of HEAD and `since`, or of HEAD and the remote's default branch if `since` is empty.

        Raises UsageError for an unknown revision, for histories without a common commit, and where no default branch
        is known. HEAD is no substitute: it would hide committed changes.
        """
        if since:
            if self._commit(since) is None:
                raise UsageError(
                    f"no revision '{since}'", where=str(self.path), remedy="git log --oneline, or git fetch, and again"
                )
            return self._fork(since)
        for upstream in UPSTREAMS:
            if self._commit(upstream) is not None:
                return self._fork(upstream)
        if self._commit("HEAD") is None:
            raise UsageError("there is no commit to compare with", where=str(self.path), remedy="git commit")
        raise UsageError(
            "no base to compare with",
            where=str(self.path),
            because=f"no default branch of a remote is known: there is none of {', '.join(UPSTREAMS)}",
            remedy="--since REVISION; with --since HEAD what is not committed yet is the change",
        )

    def changed(self, base: BaseRevision) -> list[str]:
        """Files below the folder that differ from a revision: committed since, uncommitted, untracked or removed.

        Paths are relative to the folder. Files that git ignores do not count.
        """
        differing = self._ask("diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", "--relative", base.commit)
        untracked = self._ask("ls-files", "--others", "--exclude-standard", "-z")
        return sorted({name for name in [*differing.split("\0"), *untracked.split("\0")] if name})

    def content(self, base: BaseRevision) -> str:
        """The identity of the folder's content in a revision, the same for every commit that has this content."""
        return self._ask("rev-parse", f"{base.commit}:{self.below.rstrip('/')}")

    def text(self, base: BaseRevision, name: str) -> str | None:
        """The content of a file of the folder in a revision, as it is; None if that has no such file."""
        place = f"{base.commit}:{self.below}{name}"
        if self._git("cat-file", "-e", place).code != 0:
            return None
        read = self._git("cat-file", "blob", place)
        if read.code != 0:
            raise InfrastructureError("git cat-file failed", where=place, because=read.text.strip())
        return read.text

    def write(self, base: BaseRevision, into: Path) -> Path:
        """Write a revision's whole tree into a folder, with a separate index. Returns the server's folder in it."""
        into.mkdir(parents=True)
        index = into.with_name(f"{into.name}.index")
        self._ask("read-tree", base.commit, index=index)
        self._ask("checkout-index", "--all", f"--prefix={into}/", index=index, folder=self._top())
        index.unlink()
        seconds = int(self._ask("show", "--no-patch", "--format=%ct", base.commit))
        tree = into / self.below
        # All files get the same time, so that make does not rebuild generated files that were committed.
        for path in tree.rglob("*"):
            os.utime(path, (seconds, seconds), follow_symlinks=False)
        return tree

    def _top(self) -> Path:
        return Path(self._ask("rev-parse", "--show-toplevel"))

    def _fork(self, other: str) -> BaseRevision:
        found = self._git("merge-base", "HEAD", other)
        if found.code != 0:
            raise UsageError(
                f"HEAD and {other} have no commit in common",
                where=str(self.path),
                because=found.text.strip() or "the clone may be a shallow one, which lacks old commits",
                remedy="git fetch --unshallow, or name another revision: --since REVISION",
            )
        return self._described(found.text.strip(), f"where HEAD left {other}")

    def _described(self, revision: str, why: str) -> BaseRevision:
        commit, _, subject = self._ask("show", "--no-patch", "--format=%H %s", revision).partition(" ")
        return BaseRevision(commit=commit, subject=subject, why=why)

    def _commit(self, revision: str) -> str | None:
        found = self._git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        return found.text.strip() if found.code == 0 else None

    def _ask(self, *words: str, index: Path | None = None, folder: Path | None = None) -> str:
        result = self._git(*words, index=index, folder=folder)
        if result.code != 0:
            raise InfrastructureError(f"git {words[0]} failed", where=str(self.path), because=result.text.strip())
        return result.text.removesuffix("\n")

    def _git(self, *words: str, index: Path | None = None, folder: Path | None = None) -> process.Result:
        # Otherwise warnings about line ends, and signatures, would be part of the output.
        quiet = ["-c", "core.safecrlf=false", "-c", "log.showSignature=false"]
        command: list[str | Path] = ["git", "-C", folder or self.path, *quiet, *words]
        return process.run(command, deadline_seconds=GIT_SECONDS, environment=_environment(index))


def _environment(index: Path | None) -> dict[str, str]:
    own = {"GIT_INDEX_FILE": str(index)} if index else {}
    # Without locks an index is read and never refreshed.
    return environment.for_git(**own, GIT_OPTIONAL_LOCKS="0")
