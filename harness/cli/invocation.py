"""The program that the user called, for commands in messages: a user who pastes such a command runs this `plumb`.

Stored documents say `plumb`, because people read them on other machines. Only what a command prints for the person who
called it names the program's path.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

PLAIN = "plumb"
_COMMAND = re.compile(rf"(?<![\w./-]){PLAIN}(?= (?:--)?[a-z])")
"""`plumb`, followed by a command or an option."""


def runnable(text: str) -> str:
    """A message for the terminal, in which each command begins with the words that run this program from the current
    folder.
    """
    return _COMMAND.sub(lambda _: program(), text)


@cache
def program() -> str:
    """How a shell in the current folder calls this program: `plumb` if the shell finds it by that name."""
    called = Path(sys.argv[0])
    if called.parent.resolve() == Path(__file__).resolve().parent:
        # python -m harness.cli
        called = Path(sys.executable).with_name(PLAIN)
        if not called.is_file():
            return shlex.join([_from_here(Path(sys.executable)), "-m", "harness.cli"])
    if called.name != PLAIN or not called.is_file():
        # Another program that calls `main`, such as pytest.
        return PLAIN
    found = shutil.which(PLAIN)
    return PLAIN if found and called.samefile(found) else shlex.quote(_from_here(called))


def _from_here(path: Path) -> str:
    """The path of a file, from the current folder if it is below that. A path that the user typed stays as it is."""
    if not path.is_absolute():
        return str(path) if path.parent.parts else f"./{path}"
    whole = Path(os.path.normpath(path))
    # `..` behind a link leads elsewhere than the text says.
    if not (whole.is_file() and whole.samefile(path)):
        whole = path
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)
