"""Finds the base of a change: where HEAD left the branch that it will be merged into."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from harness.core.errors import UsageError
from harness.judge.baseline import BaseRevision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.workflows.git.git_commands import Git

_MAINLINE = re.compile(r"unstable|main|master|develop|trunk|(?:v|release[-/])?\d+(?:\.\d+)+")
"""Names of branches that changes are merged into: development, and releases such as `7.0`."""


class _RemoteBranch(NamedTuple):
    """A branch of a remote, as this clone knows it."""

    ref: str
    name: str
    """The name with its remote: `origin/7.0`."""
    own_name: str
    """Without it: `7.0`."""
    commit: str
    is_default: bool
    """Whether the remote's HEAD names it."""

    @property
    def is_mainline(self) -> bool:
        """Whether changes are merged into it. Other branches may be a change that was pushed."""
        return self.is_default or _MAINLINE.fullmatch(self.own_name) is not None


class _Fork(NamedTuple):
    """The commit at which HEAD left a branch. The smallest of several is the nearest."""

    distance: int
    """The number of commits from there to HEAD."""
    is_not_default: bool
    name: str
    """The branch."""
    commit: str

    @property
    def why(self) -> str:
        """The reason for taking it as the base."""
        if self.distance:
            return f"where HEAD branched off {self.name}"
        return f"{self.name} contains HEAD, so only uncommitted changes count"


class BaseSearch:
    """The search in one work tree."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def base(self, named: str = "") -> BaseRevision:
        """The merge base of HEAD and a named revision; without a name, of HEAD and the branch that it came from.

        That is the branch's upstream, unless this is its own pushed copy; else the nearest of all remotes' branches.
        Raises UsageError for an unknown revision, for histories without a common commit, and if no branch of a remote
        remains. HEAD is no substitute: it would hide committed changes.
        """
        if named:
            if self._git.commit(named) is None:
                raise UsageError(
                    f"no revision '{named}'",
                    where=str(self._git.path),
                    remedy="git log --oneline lists commits; after git fetch, try again",
                )
            return self._described(self._merge_base(named), f"where HEAD branched off {named}")
        if self._git.commit("HEAD") is None:
            raise UsageError("there is no commit to compare with", where=str(self._git.path), remedy="git commit")
        branches = self._remote_branches()
        upstream = self._symbolic("rev-parse", "--symbolic-full-name", "@{upstream}")
        copy = self._pushed_copy(upstream, branches)
        if upstream and copy is None:
            name = upstream.removeprefix("refs/remotes/").removeprefix("refs/heads/")
            commit = self._merge_base(upstream)
            fork = _Fork(self._distance(commit), is_not_default=False, name=f"its upstream {name}", commit=commit)
            return self._described(commit, fork.why)
        return self._nearest(branches, copy)

    def _pushed_copy(self, upstream: str, branches: Sequence[_RemoteBranch]) -> _RemoteBranch | None:
        """The upstream, if it is what was pushed of the current branch, and no branch that changes are merged into."""
        current = self._symbolic("symbolic-ref", "--quiet", "--short", "HEAD")
        same = (branch for branch in branches if branch.ref == upstream and branch.own_name == current)
        return next((branch for branch in same if not branch.is_mainline), None)

    def _remote_branches(self) -> list[_RemoteBranch]:
        """The branches of all remotes."""
        form = "%(refname)%00%(refname:lstrip=2)%00%(refname:lstrip=3)%00%(objectname)%00%(symref)"
        # Warnings about broken references have no such fields.
        lines = self._git.ask("for-each-ref", f"--format={form}", "refs/remotes").splitlines()
        rows = [row for line in lines if len(row := line.split("\0")) == 5]
        defaults = {row[4] for row in rows}
        return [
            _RemoteBranch(ref=ref, name=name, own_name=own_name, commit=commit, is_default=ref in defaults)
            for ref, name, own_name, commit, symbolic in rows
            if not symbolic
        ]

    def _nearest(self, branches: Sequence[_RemoteBranch], copy: _RemoteBranch | None) -> BaseRevision:
        """Where HEAD left the nearest branch. Of branches equally near, a remote's default branch is taken, then the
        first by name.

        A branch that contains HEAD counts only if changes are merged into it: any other may be the change itself, as it
        was pushed. Raises UsageError where no branch is left.
        """
        forks: dict[str, str] = {}
        for commit in {branch.commit for branch in branches}:
            found = self._git.run("merge-base", "HEAD", commit)
            if found.code == 0:
                forks[commit] = found.text.strip()
        distances = {fork: self._distance(fork) for fork in set(forks.values())}
        related = [branch for branch in branches if branch.commit in forks]
        near = [
            _Fork(distances[forks[branch.commit]], not branch.is_default, branch.name, forks[branch.commit])
            for branch in related
            if branch.is_mainline or distances[forks[branch.commit]]
        ]
        if not near:
            raise self._no_base([branch.name for branch in branches], related=bool(related))
        fork = min(near)
        of = f", the nearest of {len(near)} remote branches" if len(near) > 1 and fork.distance else ""
        instead = f"; its upstream {copy.name} is a pushed copy of this branch" if copy else ""
        return self._described(fork.commit, f"{fork.why}{of}{instead}")

    def _no_base(self, names: Sequence[str], *, related: bool) -> UsageError:
        shallow = self._git.ask("rev-parse", "--is-shallow-repository") == "true"
        if not names:
            why = "this clone has no remote branch"
        elif related:
            why = f"every remote branch contains HEAD, as after a push: {', '.join(names)}"
        else:
            why = f"no remote branch has a commit in common with HEAD: {', '.join(names)}"
        return UsageError(
            "no base to compare with",
            where=str(self._git.path),
            because=why + ("; the clone is shallow and lacks old commits" if shallow else ""),
            remedy=("git fetch --unshallow, or " if shallow else "")
            + "--base REVISION; --base HEAD checks only uncommitted changes",
        )

    def _distance(self, commit: str) -> int:
        return int(self._git.ask("rev-list", "--count", f"{commit}..HEAD"))

    def _merge_base(self, other: str) -> str:
        found = self._git.run("merge-base", "HEAD", other)
        if found.code != 0:
            raise UsageError(
                f"HEAD and {other} have no commit in common",
                where=str(self._git.path),
                because=found.text.strip() or "the clone may be shallow and lack old commits",
                remedy="git fetch --unshallow, or name another revision: --base REVISION",
            )
        return found.text.strip()

    def _symbolic(self, *words: str) -> str:
        """The symbolic name that git reports; empty if there is none."""
        found = self._git.run(*words)
        return found.text.strip() if found.code == 0 else ""

    def _described(self, revision: str, why: str) -> BaseRevision:
        commit, _, subject = self._git.ask("show", "--no-patch", "--format=%H %s", revision).partition(" ")
        return BaseRevision(commit=commit, subject=subject, why=why)
