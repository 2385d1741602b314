"""Runs git in a folder, without any of the configuration that would change its output or start other programs.

Filters of content are an exception: without those of LFS, each of its files would count as changed.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.core.errors import InfrastructureError
from harness.core.processes import environment, process

GIT_SECONDS = 120.0
_SETTINGS = (
    # Otherwise warnings about line ends, and signatures, would be part of the output.
    "core.safecrlf=false",
    "log.showSignature=false",
    # A stranger's repository brings its own configuration, and to read it means to run none of its programs.
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
)


class Git:
    """Git in one folder of a work tree."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, *words: str, index: Path | None = None, folder: Path | None = None) -> str:
        """What git prints, without the last line's end. Raises InfrastructureError when it fails.

        `index`: a file to use instead of the checkout's own. `folder`: where git runs instead.
        """
        return self._successful(*words, index=index, folder=folder).text.removesuffix("\n")

    def names(self, *words: str) -> list[str]:
        """The file names that git prints with `-z`, as Python names files: bytes that are not UTF-8 are surrogates.
        Raises InfrastructureError when git fails.
        """
        return [name for name in os.fsdecode(self._successful(*words).output).split("\0") if name]

    def run(self, *words: str, index: Path | None = None, folder: Path | None = None) -> process.Result:
        """The same with its exit status, which the caller judges. Raises InfrastructureError without git."""
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        command: list[str | Path] = ["git", "-C", folder or self.path, *settings, *words]
        return process.run(command, deadline_seconds=GIT_SECONDS, environment=_environment(index))

    def _successful(self, *words: str, index: Path | None = None, folder: Path | None = None) -> process.Result:
        result = self.run(*words, index=index, folder=folder)
        if result.code != 0:
            raise InfrastructureError(f"git {words[0]} failed", where=str(self.path), because=result.text.strip())
        return result

    def commit(self, revision: str) -> str | None:
        """The commit that a revision names; None if there is none."""
        found = self.run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        return found.text.strip() if found.code == 0 else None

    def top(self) -> Path:
        """The work tree's top folder."""
        return Path(os.path.realpath(self.ask("rev-parse", "--show-toplevel")))


def _environment(index: Path | None) -> dict[str, str]:
    own = {"GIT_INDEX_FILE": str(index)} if index else {}
    # Without locks an index is read and never refreshed.
    return environment.for_git(**own, GIT_OPTIONAL_LOCKS="0")
