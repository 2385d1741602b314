"""Scripts that run on a board until their connection ends, and answer questions: a line each way."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

from harness.core.processes import process
from harness.core.processes.capped_log import CappedLog
from harness.run.boards.remote_shell import ANSWER_SECONDS, MARK, REPORT, SAID, code_of, number_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import IO

    from harness.run.boards.remote_shell import RemoteShell

POLL_SECONDS = 0.02

# One line, as each script: the login shell may be csh, whose words cannot contain a line's end.
_SUPERVISE = " ".join(
    [
        'cd "$1" || { echo "' + MARK + ' lacking $1" >&2; exit 1; };',
        "shift; exec 3<&0;",
        # In a session of its own, a server ends with everything that it has started.
        "if command -v setsid >/dev/null 2>&1;",
        'then g=-; setsid "$@" </dev/null 3<&- 2>&1 & p=$!;',
        'else g=; "$@" </dev/null 3<&- 2>&1 & p=$!; fi;',
        f'echo "{MARK} pid $p" >&2;',
        "( while read -r what which <&3; do case $what in",
        "state) s=$(sed 's/.*) \\(.\\).*/\\1/' /proc/$p/stat 2>/dev/null || ps -o s= -p $p 2>/dev/null);",
        f'echo "{MARK} state $which $s" >&2;;',
        '*) kill -s "$what" "$p";; esac; done;',
        # The connection has ended. A program that was started just now may not be in its session yet.
        'kill -s KILL "$p" 2>/dev/null; if test "$g"; then kill -s KILL -- "-$p" 2>/dev/null; fi ) >/dev/null & w=$!;',
        'wait "$p"; c=$?;',
        'kill -s KILL "$w" 2>/dev/null; if test "$g"; then kill -s KILL -- "-$p" 2>/dev/null; fi;',
        REPORT,
    ]
)


class RemoteScript:
    """A script on a board that reads requests until its connection ends."""

    def __init__(self, shell: RemoteShell, script: str, *arguments: str, log: Path, said: Path) -> None:
        """`log` receives its output, `said` what it and the connection say."""
        self._shell = shell
        self._said = said
        self._asked = 0
        with log.open("wb") as output, said.open("wb") as errors:
            self.capped = CappedLog(output.fileno())
            self.process = process.start(
                shell.words(script, *arguments),
                output=output,
                errors=errors,
                requests=process.PIPE,
                environment=shell.image.environment,
            )

    def said(self, word: str, value: str = "") -> str | None:
        """The last line that begins with this word and value, without the word; None if there is none."""
        found = [rest for said, rest in SAID.findall(self._text()) if said == word and rest.startswith(value)]
        return found[-1] if found else None

    def _text(self) -> str:
        return self._said.read_bytes().decode("utf-8", "replace")

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs.

        Raises InfrastructureError if the connection has ended without it, or if it is none.
        """
        ended = self.process.poll()
        if status := self.said("end"):
            if (code := code_of(status)) is None:
                raise self._shell.misunderstood("end", status)
            return code
        if ended is not None:
            raise self._shell.lost(self._text(), status=f"{self._shell.board.start[0]} ended with {ended}")
        return None

    def awaited(self, *words: str, late: str) -> tuple[str, str]:
        """The first of these words that it says, and the rest of that line. `late`: the problem if it says none.

        Raises InfrastructureError if the connection ends before, or if it says none in time.
        """
        deadline = time.monotonic() + self._shell.image.deadline_seconds(ANSWER_SECONDS)
        while True:
            ended = self.process.poll()
            for word in words:
                if (rest := self.said(word)) is not None:
                    return word, rest
            if ended is not None:
                raise self._shell.lost(self._text(), status=f"{self._shell.board.start[0]} ended with {ended}")
            if time.monotonic() > deadline:
                raise self._shell.lost(self._text(), status=late)
            time.sleep(POLL_SECONDS)

    def ask(self, verb: str, *words: str) -> str | None:
        """The answer to a question, which may be empty; None if it has ended.

        Raises InfrastructureError if none comes in time.
        """
        self._asked += 1
        asked = f"{self._asked} "
        self.tell(" ".join([verb, str(self._asked), *words]))
        deadline = time.monotonic() + self._shell.image.deadline_seconds(ANSWER_SECONDS)
        while (answer := self.said(verb, asked)) is None:
            if self.poll() is not None:
                return None
            if time.monotonic() > deadline:
                raise self._shell.lost(self._text(), status="the board does not answer")
            time.sleep(POLL_SECONDS)
        return answer.removeprefix(asked)

    def tell(self, line: str) -> None:
        """Send it a line. Nothing happens if it has ended."""
        stream: IO[bytes] | None = self.process.stdin
        assert stream is not None
        if stream.closed:
            return
        with contextlib.suppress(OSError):
            stream.write(f"{line}\n".encode())
            stream.flush()

    def close(self) -> None:
        """End its input, after which it cleans up and ends; then the connection. Nothing happens if it is closed."""
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            return
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        process.ends_within(self.process, self._shell.image.deadline_seconds(ANSWER_SECONDS))
        process.kill_group(self.process)
        self.capped.close()


class RemoteProcess(RemoteScript):
    """A program that runs on a board until it ends, or the connection does. At that, the script there kills it."""

    def __init__(self, shell: RemoteShell, command: Sequence[str], *, folder: str, log: Path, said: Path) -> None:
        """Start it in a folder there. `log` receives both of its outputs, `said` what the connection says."""
        super().__init__(shell, _SUPERVISE, folder, *command, log=log, said=said)

    def pid(self) -> int:
        """Its process number there. Raises InfrastructureError if the machine does not tell it."""
        _, told = self.awaited("pid", late="the server's process number did not arrive")
        if not (number := number_in(told)):
            raise self._shell.misunderstood("pid", told)
        return number

    def state(self) -> str:
        """Its state there, as one letter of ps(1); empty if it has ended. Raises InfrastructureError without answer."""
        return self.ask("state") or ""

    def send_signal(self, number: int) -> None:
        """Send a signal to it. Nothing happens if it has ended."""
        self.tell(signal.Signals(number).name.removeprefix("SIG"))
