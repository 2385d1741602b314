"""Keeps what a cell changes on a board, and puts it back when its connection ends: its folder, the alignment mode.

One script there does both. It also reads what the kernel tells of misaligned accesses: its counters, and its log.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.record import kernel_faults
from harness.run.boards.remote_process import RemoteScript
from harness.run.boards.remote_shell import MARK, number_in

if TYPE_CHECKING:
    from harness.record.cell_events import Counters
    from harness.run.boards.remote_shell import RemoteShell

_LINE_END = ";"
"""What stands for the end of a line in an answer, which is one line."""
# The mode is the only number of MIPS' file, and follows "User faults:" in ARM's.
_MODE = "sed 's/^User faults:[^0-9]*//' \"$switch\" 2>/dev/null | sed -n 's/^\\([0-9]\\).*/\\1/p'"
_KEEP = " ".join(
    [
        # Whoever ends it, the mode is put back.
        "trap '' HUP INT TERM PIPE;",
        'd=$1 counters=$2 switch=$3 m=$4; e=$(mkdir -m 700 "$d" 2>&1) ||',
        '{ echo "' + MARK + ' refused $e" >&2; exit 1; };',
        "old=;",
        'if test "$m" && test -w "$switch"; then old=$(' + _MODE + ");",
        'if test "$old" = "$m"; then old=; elif test "$old"; then echo "$m" 2>/dev/null >"$switch"; fi; fi;',
        f'n=$(dmesg 2>/dev/null | wc -l); echo "{MARK} made $old" >&2;',
        "while read -r what which p; do case $what in",
        f"counters) echo \"{MARK} counters $which $(tr '\\n' '{_LINE_END}' 2>/dev/null <\"$counters\")\" >&2;;",
        f'mode) echo "{MARK} mode $which $(' + _MODE + ')" >&2;;',
        f'log) echo "{MARK} log $which $(dmesg 2>/dev/null | tail -n +$((n + 1)) |',
        'grep -e "Alignment trap" -e "[[(]$p[])]" | tail -n 5 |',
        f"tr '\\n' '{_LINE_END}')\" >&2; n=$(dmesg 2>/dev/null | wc -l);;",
        "esac; done;",
        'if test "$old"; then echo "$old" >"$switch"; fi;',
        # A server that is being killed may still write.
        'rm -rf "$d" 2>/dev/null || { sleep 2; rm -rf "$d"; };',
        f'echo "{MARK} end $?" >&2',
    ]
)


class BoardKeeper:
    """The script of a cell on a board. While it runs, the folder is there, and the mode is the policy's."""

    def __init__(self, shell: RemoteShell, folder: str) -> None:
        """Make the folder there, and set the mode if its user may.

        Raises InfrastructureError if the folder cannot be made.
        """
        image = shell.image
        self._shell = shell
        self._logs = tempfile.TemporaryDirectory()
        mode = "" if image.mode is None else str(image.mode)
        self.script = RemoteScript(
            shell,
            _KEEP,
            folder,
            image.counting_file,
            image.switch_file,
            mode,
            log=Path(self._logs.name) / "log",
            said=Path(self._logs.name) / "said",
        )
        self._counts = bool(image.counting_file)
        self._mode: str | None = None
        """The mode that the counters' file had first."""
        try:
            word, told = self.script.awaited("made", "refused", late="its folder did not come about in time")
        except BaseException:
            self.close()
            raise
        if word == "refused":
            self.close()
            raise InfrastructureError(
                "the board's folder cannot be used",
                where=f"{image.file}: folder = {image.board.folder}",
                because=told,
                remedy="name a folder there that its user may write",
            )
        self.replaced_mode = told.strip()
        """The mode that it will put back; empty if it has set none."""

    def counters(self) -> Counters | None:
        """The kernel's counters of misaligned accesses; None if it has none, or its user may not read them.

        Raises InfrastructureError if the mode is no longer the one that the canaries saw.
        """
        if not self._counts:
            return None
        told = self._ask("counters").replace(_LINE_END, "\n")
        found = re.search(r"^User faults:\s*(\d)", told, re.MULTILINE)
        mode = found[1] if found else ""
        if self._mode is None:
            self._counts = bool(told)
            if not told:
                return None
            self._mode = mode
        if mode != self._mode:
            raise InfrastructureError(
                "the board's alignment mode has changed during the run",
                where=f"{self._shell.shown}: {self._shell.image.counting_file}",
                because=f"it was {self._mode}, and is {mode or 'not readable'}",
                remedy="let nothing else on the board set it, and start the run again",
            )
        return kernel_faults.read_counters(told)

    def mode(self) -> int | None:
        """The mode that its kernel has now; None if it has no modes, or its user may not read them.

        Raises InfrastructureError if the answer is no number.
        """
        if not (told := self._ask("mode")):
            return None
        if (mode := number_in(told)) is None:
            raise self._shell.misunderstood("mode", told)
        return mode

    def log_of(self, pid: int) -> list[str]:
        """The last new lines of the kernel's log about a process, or about alignment; empty if its user may not read
        them.
        """
        return [line for line in self._ask("log", str(pid)).split(_LINE_END) if line]

    def _ask(self, verb: str, *words: str) -> str:
        if (answer := self.script.ask(verb, *words)) is None:
            raise InfrastructureError("the board's script has ended", where=self._shell.shown, remedy="run again")
        return answer

    def close(self) -> None:
        """Put the mode back, and remove the folder."""
        self.script.close()
        self._logs.cleanup()
