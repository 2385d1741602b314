"""Streams that no CI system's runner obeys, whatever is written to them.

GitHub's runner reads what a step prints, line by line, and obeys what looks like a workflow command: `::NAME` at a
line's beginning, behind blanks, and `##[NAME]` anywhere in a line (actions/runner, src/Runner.Common/ActionCommand.cs).
A server's log, a compiler's words and a test's message are other people's text. It is so everywhere and not in GitHub's
jobs alone: one text, wherever it is printed, and logs are shown again in jobs.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


class EscapedStream:
    r"""A text stream in front of another: a backslash breaks what would be a command, `##\[error]` and `:\:error`.

    It keeps in mind how the present line began, for a command may come in several pieces. It has no `buffer`: click
    would write past it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream
        """For commands of our own: see `write_commands`."""
        self._opening = ""
        """`` while the line has shown nothing, `:` if that is all it has shown, `-` for anything more."""
        self._hashes = 0

    def write(self, text: str | bytes) -> int:
        """Write what cannot be obeyed. Returns how many characters of `text` were taken: all."""
        if isinstance(text, bytes):
            if not text:
                # click asks in this way whether a stream is one for bytes.
                raise TypeError("a stream for text")
            text = text.decode("utf-8", "replace")  # what click completes words with
        self.unguarded.write("".join(map(self._taken, text)))
        return len(text)

    def _taken(self, character: str) -> str:
        obeyed = (character == "[" and self._hashes >= 2) or (character == ":" and self._opening == ":")
        self._hashes = self._hashes + 1 if character == "#" else 0
        if character in _LINE_ENDS:
            self._opening = ""
        elif self._opening:
            self._opening = "-"
        elif not character.isspace() and character.isprintable():
            self._opening = ":" if character == ":" else "-"
        return f"\\{character}" if obeyed else character

    def flush(self) -> None:
        """Have it written."""
        self.unguarded.flush()

    def isatty(self) -> bool:
        """Whether a person sees it."""
        return self.unguarded.isatty()

    def fileno(self) -> int:
        """The descriptor behind it."""
        return self.unguarded.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    @property
    def encoding(self) -> str:
        """Of the stream behind it."""
        return self.unguarded.encoding

    @property
    def errors(self) -> str | None:
        """Of the stream behind it."""
        return self.unguarded.errors


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Whatever any reader takes for one."""


@contextlib.contextmanager
def harmless_streams() -> Iterator[None]:
    """Have everything that is printed meanwhile go through it."""
    before = sys.stdout, sys.stderr
    # One that was closed before we were started is None.
    sys.stdout, sys.stderr = (cast("TextIO", stream and EscapedStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def write_commands(text: str, *, err: bool) -> None:
    """Print lines of our own that a program is meant to obey: annotations, a shell's script."""
    stream = sys.stderr if err else sys.stdout
    stream.flush()
    unguarded = stream.unguarded if isinstance(stream, EscapedStream) else stream
    unguarded.write(text)
    unguarded.flush()


def in_json(text: str) -> str:
    """A JSON document that says the same, and has no command: a number sign stands in strings alone."""
    return text.replace("##[", r"#\u0023[")


def in_markup(text: str) -> str:
    """The same for XML and HTML."""
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1&#58;", text.replace("##[", "#&#35;["))
