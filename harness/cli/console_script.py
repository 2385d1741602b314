"""The console script: a supervisor, and under it the command line itself, imported when signals can come.

Whatever it is told, and however it ends: one documented exit status, no traceback, nothing left that runs.
"""

from __future__ import annotations

import os
import signal
import sys

# Nothing else is imported here: signals have no handler of ours before `main`.

BISECTION_STOPS = 255
"""What `git bisect run` takes for no answer about the tree."""
_INTERRUPTED = 2
"""ExitCode's, which is not imported yet."""


def main(arguments: list[str] | None = None) -> None:
    """Carry out the command line, or `arguments`, in this process, unsupervised."""
    if arguments is not None:
        from harness.cli import group  # noqa: PLC0415 - see below

        sys.exit(group.run(arguments))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: os._exit(_INTERRUPTED))
    from harness.core import standard_streams  # noqa: PLC0415
    from harness.core.errors import InfrastructureError  # noqa: PLC0415
    from harness.core.processes import supervisor  # noqa: PLC0415

    words = sys.argv[1:]
    closed = standard_streams.open_closed_descriptors()
    try:
        standard_streams.refuse_closed(closed)
    except InfrastructureError as error:
        supervisor.say(str(error))
        sys.exit(error.exit_code)
    killed = BISECTION_STOPS if "--bisect" in words else None
    os._exit(supervisor.supervise(lambda: sys.exit(_supervised(words)), killed=killed))


def _supervised(words: list[str]) -> int:
    from harness.core import standard_streams  # noqa: PLC0415
    from harness.core.processes import supervisor  # noqa: PLC0415

    streams = standard_streams.Streams()
    try:
        code = _command(words)
    except KeyboardInterrupt:
        supervisor.say(supervisor.INTERRUPTED)
        code = _INTERRUPTED
    except SystemExit as ended:
        # Completion ends so.
        code = ended.code if isinstance(ended.code, int) else 0
    for number in supervisor.STOPPING:
        signal.signal(number, signal.SIG_IGN)
    return streams.finish(code)


def _command(words: list[str]) -> int:
    from harness.core.processes import process  # noqa: PLC0415 - a signal may come while this is imported

    process.stop_on_signals()
    from harness.cli import group  # noqa: PLC0415 - and this takes longest
    from harness.core.processes import temporary_folder  # noqa: PLC0415

    return group.run(words, first=temporary_folder.confine)


if __name__ == "__main__":
    main()
