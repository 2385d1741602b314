"""The keeper: a process that outlives the harness by a moment, and kills what it left behind.

It reads `+PGID` and `-PGID` lines on standard input, and `=PID` for a process that has no group of its own. When the
pipe closes, however the harness ended (SIGKILL included), it kills all that is still registered, and exits. It refuses
everything else by ignoring it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Register and deregister process groups until the harness is gone."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    processes: set[int] = set()
    for line in sys.stdin:
        sign, number = line[:1], line[1:].strip()
        if not number.isdigit():
            continue
        if sign == "+":
            groups.add(int(number))
        elif sign == "-":
            groups.discard(int(number))
            processes.discard(int(number))
        elif sign == "=":
            processes.add(int(number))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
