"""Output streams in which no CI runner finds a command, whatever is written to them.

GitHub's runner reads the output of a step line by line, and executes everything that looks like a workflow command:
`::NAME` at the beginning of a line, after blanks, and `##[NAME]` anywhere in it (actions/runner,
src/Runner.Common/ActionCommand.cs). A server's log, a compiler's output and a test's message are untrusted text. The
escapes apply everywhere, not only in GitHub jobs, so the output is always the same, and a job may print a log that was
written elsewhere.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


class EscapedStream:
    r"""A text stream in front of another. A backslash breaks every command: `##\[error]`, `:\:error`.

    It remembers how the current line began, because a command may arrive in several pieces. It has no `buffer`, by
    which click would bypass it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream
        """For Plumbline's own commands: see `write_commands`."""
        self._opening = ""
        """Visible text of the line so far: empty, `:` for a single colon, `-` for anything else."""
        self._hashes = 0

    def write(self, text: str | bytes) -> int:
        """Write text with its commands broken. Returns the length of `text`, because all of it is accepted."""
        if isinstance(text, bytes):
            if not text:
                # In this way click tests whether a stream accepts bytes.
                raise TypeError("a stream for text")
            text = text.decode("utf-8", "replace")  # click's completions are bytes
        self.unguarded.write("".join(map(self._escaped, text)))
        return len(text)

    def _escaped(self, character: str) -> str:
        command = (character == "[" and self._hashes >= 2) or (character == ":" and self._opening == ":")
        self._hashes = self._hashes + 1 if character == "#" else 0
        if character in _LINE_ENDS:
            self._opening = ""
        elif self._opening:
            self._opening = "-"
        elif not character.isspace() and character.isprintable():
            self._opening = ":" if character == ":" else "-"
        return f"\\{character}" if command else character

    def flush(self) -> None:
        """Flush the stream behind it."""
        self.unguarded.flush()

    def isatty(self) -> bool:
        """Whether the stream behind it is a terminal."""
        return self.unguarded.isatty()

    def fileno(self) -> int:
        """The descriptor behind it."""
        return self.unguarded.fileno()

    def writable(self) -> bool:
        """Always true."""
        return True

    @property
    def encoding(self) -> str:
        """The same as that of the stream behind it."""
        return self.unguarded.encoding

    @property
    def errors(self) -> str | None:
        """The same as that of the stream behind it."""
        return self.unguarded.errors


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Every character that some reader treats as the end of a line."""


@contextlib.contextmanager
def harmless_streams() -> Iterator[None]:
    """Send all output through escaping streams meanwhile."""
    before = sys.stdout, sys.stderr
    # A stream that was closed at the start of the process is None.
    sys.stdout, sys.stderr = (cast("TextIO", stream and EscapedStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def write_commands(text: str, *, err: bool) -> None:
    """Print lines that a program is meant to obey: annotations, or a script for a shell."""
    stream = sys.stderr if err else sys.stdout
    stream.flush()
    unguarded = stream.unguarded if isinstance(stream, EscapedStream) else stream
    unguarded.write(text)
    unguarded.flush()


def in_json(text: str) -> str:
    """The same JSON document without a command. In JSON, a number sign occurs only in strings."""
    return text.replace("##[", r"#\u0023[")


def in_markup(text: str) -> str:
    """The same XML or HTML document without a command."""
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1&#58;", text.replace("##[", "#&#35;["))
