"""A place: a clone of the checkout in a folder of its kind, with its own environment, and folders for the settings.

All of it is below two folders of /tmp with names of ten characters, and is removed together.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import string
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core import json_codec
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from tools.odd_places import start
from tools.odd_places.runs import FOLDERS, LENGTHS, TURKISH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.odd_places.runs import Run, Settings

TEMPORARY = Path("/tmp")  # noqa: S108 - a path of ten characters that every user reaches
OTHER_USER = 54321
"""No entry of passwd(5) has this number."""
STRANGER = 54322
"""The owner of a repository that is not the user's."""
SETUP_SECONDS = 1800.0
ODD = 'odd "it\'s" ö'
"""The name of an odd folder. It is short: the path of a socket has at most 107 bytes (unix(7))."""
GIT_CONFIGURATION = """\
[core]
	autocrlf = true
	hooksPath = {hooks}
[commit]
	gpgSign = true
[gpg]
	program = /bin/false
[init]
	defaultBranch = odd/branch
[status]
	short = true
[diff]
	noprefix = true
[color]
	ui = always
"""
HOOKS = ("pre-commit", "commit-msg", "pre-push", "pre-rebase", "post-checkout", "post-commit", "reference-transaction")
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
KEPT = ("PATH", "TERM")
"""The caller's variables that stay."""
LINK = "symbolic link"


class Place:
    """A clone and the folders beside it."""

    def __init__(self, run: Run, wheels: Path) -> None:
        """Make the folders. `wheels`: the packages of the environment."""
        self._base, self.aside = _new_folder(), _new_folder()
        self._wheels = wheels
        self.checkout = checkout_path(self._base, run.folder)
        """The path by which commands name the clone."""
        self._clone = self._base / "real" if run.folder == LINK else self.checkout
        hooks = self.aside / "hooks"
        for folder in (hooks, *(self.aside / kind / name for kind in ("home", "tmp") for name in ("usual", ODD))):
            folder.mkdir(parents=True)
        for name in HOOKS:
            hook = hooks / name
            hook.write_text(f"#!/bin/sh\necho 'the hook {name} fails' >&2\nexit 1\n", "utf-8")
            hook.chmod(0o755)
        configuration = self.aside / "configuration" / "git" / "config"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(GIT_CONFIGURATION.format(hooks=hooks), "utf-8")

    def provide(self, settings: Settings, log: Path) -> None:
        """Clone HEAD as the user of these settings would, and make the environment. Raises InfrastructureError."""
        variables = self.environment(settings)
        _successfully(["git", *NO_HOOKS, "clone", "--quiet", ROOT, self._clone], log, variables)
        if self._clone != self.checkout:
            self.checkout.symlink_to(self._clone.name)
        self.belong_to(settings)
        orders = start.Orders(folder=str(self.checkout), user=user_of(settings))
        wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self._wheels.as_uri(), "PIP_NO_COMPILE": "1"}
        _successfully(started(orders, ["bash", "-c", ". ci/setup"]), log, {**variables, **wheels})

    def belong_to(self, settings: Settings, *, again: bool = False) -> None:
        """Give all files to the user of these settings, except what an odd git finds in a stranger's hands.

        `again`: even if the folders are the user's, because there are new files below them.
        """
        if os.geteuid() != 0:
            return
        user = user_of(settings) or 0
        for top in (self._base, self.aside):
            if again or top.lstat().st_uid != user:
                _successfully(["chown", "--recursive", "--no-dereference", f"{user}:{user}", top])
        owner = STRANGER if settings.odd_git else user
        os.chown(self._clone / ".git", owner, owner)

    def environment(self, settings: Settings) -> dict[str, str]:
        """The variables of a process with these settings."""
        found = {
            name: value for name, value in os.environ.items() if name in KEPT or name.endswith(("_proxy", "_PROXY"))
        }
        found |= {"LANG": settings.locale, "TZ": settings.timezone}
        found["TMPDIR"] = str(self.aside / "tmp" / (ODD if settings.odd_temporary else "usual"))
        if settings.home != "missing":
            found["HOME"] = str(self.aside / "home" / (ODD if settings.home == "odd" else "usual"))
        if settings.locale == TURKISH:
            found["LOCPATH"] = str(self._locale())
        if settings.odd_git:
            found["XDG_CONFIG_HOME"] = str(self.aside / "configuration")
            found["GIT_CONFIG_GLOBAL"] = str(self.aside / "configuration" / "git" / "config")
        if settings.narrow_terminal:
            found["COLUMNS"] = str(start.COLUMNS)
        return found

    def remove(self) -> None:
        """Remove everything."""
        for folder in (self._base, self.aside):
            shutil.rmtree(folder, ignore_errors=True)

    def _locale(self) -> Path:
        """A folder with the Turkish locale, which few machines have."""
        folder = self.aside / "locales"
        if not folder.exists():
            folder.mkdir()
            language, _, encoding = TURKISH.partition(".")
            _successfully(["localedef", "-i", language, "-f", encoding, "--no-archive", folder / TURKISH])
        return folder


def checkout_path(base: Path, kind: str) -> Path:
    """The path of a clone of this kind below `base`, which has the shortest of LENGTHS."""
    path = str(base / FOLDERS[kind])
    return Path(path[: LENGTHS[kind]].ljust(LENGTHS[kind], "x") if kind in LENGTHS else path)


def user_of(settings: Settings) -> int | None:
    """The user to become."""
    return OTHER_USER if settings.other_user else None


def started(orders: start.Orders, words: Sequence[str]) -> list[str]:
    """The command that executes `words` so."""
    return [sys.executable, "-P", str(Path(start.__file__)), json_codec.encode(orders).decode(), *words]


def provide_wheels(folder: Path, log: Path) -> None:
    """Download the packages of requirements.txt, unless they are there. Raises InfrastructureError."""
    wanted = (ROOT / "requirements.txt").read_bytes()
    stamp = folder / "requirements.txt"
    if stamp.exists() and stamp.read_bytes() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    _successfully([*words, "--dest", folder, "-r", ROOT / "requirements.txt"], log)
    stamp.write_bytes(wanted)


def _new_folder() -> Path:
    for _ in range(100):
        folder = TEMPORARY / "".join(random.choices(string.ascii_lowercase, k=5))
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o755)
            # However this process ends.
            process.keep_folder(folder)
            return folder
    raise InfrastructureError(f"no new folder in {TEMPORARY}")


def _successfully(
    words: Sequence[str | Path], log: Path | None = None, variables: Mapping[str, str] | None = None
) -> None:
    process.run_successfully(
        words,
        problem=f"an odd place cannot be made: {words[0]} failed",
        log=log,
        folder=ROOT,
        deadline_seconds=SETUP_SECONDS,
        environment=os.environ if variables is None else variables,
    )
