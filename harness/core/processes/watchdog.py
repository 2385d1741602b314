"""The watchdog: a process that outlives the harness for a moment, and cleans up what the harness left behind.

It reads lines on standard input: `+PGID` and `-PGID` for a process group, `=PID` for a process without its own group,
`?TOKEN` for all processes whose token has this prefix (harness.core.processes.process_tree), `/PATH` for a temporary
folder. When the pipe closes, however the harness ended (SIGKILL included), it kills all registered processes, removes
the folders and exits. It ignores any other line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    # It is started as a script, which needs no installed package.
    sys.path[0] = str(Path(__file__).parents[3])

from harness.core.processes import process_tree
from harness.core.processes.process_tree import STOPPING


def main() -> None:
    """Register and deregister until the harness has ended."""
    for ignored in STOPPING:
        signal.signal(ignored, signal.SIG_IGN)
    kept: dict[str, set[str]] = {"+": set(), "=": set(), "?": set(), "/": set()}
    for line in sys.stdin:
        sign, word = line[:1], line[1:].rstrip("\n")
        if sign in {"+", "-", "="} and not word.isdigit():
            continue
        if sign == "-":
            kept["+"].discard(word)
            kept["="].discard(word)
        elif word:
            kept.get(sign, set()).add(word)
    for group in kept["+"]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(group), signal.SIGKILL)
    process_tree.kill(int(number) for number in kept["="])
    if kept["?"]:
        process_tree.kill_until_none(lambda: _marked(tuple(kept["?"])))
    for folder in kept["/"]:
        shutil.rmtree(f"/{folder}", ignore_errors=True)


def _marked(tokens: tuple[str, ...]) -> list[process_tree.Process]:
    everything = process_tree.processes().values()
    return [process for process in everything if process_tree.token_of(process.pid).startswith(tokens)]


if __name__ == "__main__":
    main()
