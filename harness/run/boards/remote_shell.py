"""Runs commands on a board through its `sh`, and learns from `sh` alone how they ended.

The status of ssh says too little: 255 is a lost connection, a status of the program's own, and with some shells a
signal. Other transports have no status. So `sh` there writes lines of its own to standard error: the process number
when the program has started, its state when asked, and its status when it has ended. Without the last line, nothing is
known of the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.errors import InfrastructureError
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.run.boards.board_image import BoardImage

MARK = "plumbline:"
"""The first word of the lines that our scripts write."""
ANSWER_SECONDS = 20.0
"""How long the machine may take to answer a question, which is a line each way."""
COPY_SECONDS = 300.0
SAID = re.compile(rf"^{MARK} (\w+) (.*)\n", re.MULTILINE)
"""A whole line of a script: its first word, and the rest."""

# Each script is one line: the login shell may be csh, whose words cannot contain a line's end.
REPORT = f'n=; if test $c -gt 128; then n=$(kill -l $((c % 128)) 2>/dev/null); fi; echo "{MARK} end $c $n" >&2'
"""Reports the status `$c`, with its signal's name: on SPARC and MIPS, signals have other numbers than here."""
_RUN = f'"$@"; c=$?; {REPORT}'


class Ended(NamedTuple):
    """A command that has ended there."""

    code: int
    """Its status; negative for a signal."""
    output: bytes


def number_in(text: str) -> int | None:
    """The number that a machine reports; None if the text is something else."""
    return int(text) if re.fullmatch(r"\s*[0-9]{1,18}\s*", text) else None


def code_of(reported: str) -> int | None:
    """A status of `sh` as a code: above 128 it is a signal, which ksh adds to 256 instead of 128. None if it is no
    status. `reported`: the status and, if the shell tells it, the signal's name.
    """
    word, _, name = reported.partition(" ")
    if (status := number_in(word)) is None:
        return None
    if (named := f"SIG{name.strip().removeprefix('SIG')}") in signal.Signals.__members__:
        return -signal.Signals[named]
    number = status - (256 if status > 256 else 128)
    return -number if number in set(signal.Signals) else status


class RemoteShell:
    """The way to a board's `sh`."""

    def __init__(self, image: BoardImage) -> None:
        self.image = image
        self.board = image.board

    @property
    def shown(self) -> str:
        """The way, for messages."""
        return f"{self.image.file}: start = {shlex.join(self.board.start)}"

    def words(self, script: str, *arguments: str) -> list[str]:
        """The command line here that runs a script there, with arguments."""
        there = ["sh", "-c", script, "sh", *arguments]
        return [*self.board.start, *([shlex.join(there)] if self.board.words == "shell" else there)]

    def run(
        self, *command: str, requests: bytes = b"", deadline_seconds: float = ANSWER_SECONDS, quiet: bool = True
    ) -> Ended:
        """Run a command there to its end. `requests`: what it reads. `quiet`: without what it writes to standard error.

        Raises InfrastructureError if nothing is known of its end.
        """
        with tempfile.TemporaryFile() as input_, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            input_.write(requests)
            input_.seek(0)
            script = _RUN if quiet else _RUN.replace('"$@"', '"$@" 2>&1')
            started = process.start(
                self.words(script, *command),
                output=output,
                errors=errors,
                requests=input_,
                environment=self.image.environment,
            )
            expired = not process.ends_within(started, self.image.deadline_seconds(deadline_seconds))
            process.kill_group(started)
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
            output.seek(0)
            content = output.read()
        code = code_of(next((value for word, value in SAID.findall(said) if word == "end"), ""))
        if code is None:
            late = f"no answer within {self.image.deadline_seconds(deadline_seconds):.0f} s"
            raise self.lost(said, status=late if expired else f"{self.board.start[0]} ended with {started.returncode}")
        return Ended(code, content)

    def lost(self, said: str, *, status: str) -> InfrastructureError:
        """The error for a connection that has ended, or is silent. `said`: what came to standard error."""
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith(MARK)]
        return InfrastructureError(
            "the connection to the board was lost",
            where=self.shown,
            because="\n".join([*lines[-5:], status]),
            remedy=f"{self.image.check_command}, which checks each step",
        )

    def misunderstood(self, word: str, rest: str) -> InfrastructureError:
        """The error for a line that no script of ours writes. `word`: its first word."""
        return InfrastructureError(
            f"the board's answer to `{word}` cannot be read",
            where=self.shown,
            because=rest[:200],
            remedy=f"{self.image.check_command}, which checks each step",
        )

    def put(self, content: bytes | Path, place: str) -> None:
        """Copy a file there. Raises InfrastructureError if it does not arrive whole, as on a full disk."""
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        if self.board.put:
            with _as_file(content) as here:
                self._copy(self.board.put, {"{from}": str(here), "{to}": place})
        else:
            sent = content if isinstance(content, bytes) else content.read_bytes()
            self._run_script('cat > "$1"', place, requests=sent, what=f"{place} cannot be written there")
        arrived = self._run_script('wc -c < "$1"', place, what=f"{place} did not arrive there").output.strip()
        if arrived != str(size).encode():
            raise InfrastructureError(
                f"{place} did not arrive whole",
                where=self.shown,
                because=f"it has {size} bytes here, and {arrived.decode('utf-8', 'replace')[:80]} there",
                remedy=self.image.check_command,
            )

    def get(self, place: str) -> bytes:
        """A file from there. Raises FileNotFoundError if there is none."""
        if self.run("test", "-f", place).code != 0:
            raise FileNotFoundError(place)
        if not self.board.get:
            return self._run_script('cat "$1"', place, what=f"{place} cannot be read there").output
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder) / "file"
            self._copy(self.board.get, {"{from}": place, "{to}": str(here)})
            return here.read_bytes()

    def _run_script(self, script: str, *arguments: str, what: str, requests: bytes = b"") -> Ended:
        ended = self.run("sh", "-c", script, "sh", *arguments, requests=requests, deadline_seconds=COPY_SECONDS)
        if ended.code != 0:
            why = self.run("sh", "-c", 'df -k "${1%/*}" 2>&1; ls -ld "${1%/*}" 2>&1', "sh", *arguments).output
            raise InfrastructureError(
                what, where=self.shown, because=why.decode("utf-8", "replace").strip(), remedy="free space, or `folder`"
            )
        return ended

    def _copy(self, words: Sequence[str], values: Mapping[str, str]) -> None:
        process.run_successfully(
            with_values(words, values),
            problem="a file could not be copied",
            deadline_seconds=self.image.deadline_seconds(COPY_SECONDS),
            where=f"{self.image.file}: {shlex.join(words)}",
            remedy=f"{self.image.check_command}; or remove `put` and `get`: then files go through `start`",
            environment=self.image.environment,
        )


def with_values(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command of a board's file with values in their places."""
    filled = []
    for word in words:
        for place, value in values.items():
            word = word.replace(place, value)  # noqa: PLW2901
        filled.append(word)
    return filled


@contextlib.contextmanager
def _as_file(content: bytes | Path) -> Iterator[Path]:
    """The path of a file with the content."""
    if isinstance(content, Path):
        yield content
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def reserved_name() -> str:
    """The name of a folder that nothing else has."""
    return f"plumbline-{os.urandom(8).hex()}"
