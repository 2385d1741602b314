"""The console script: a supervisor, and below it the command line, which is imported once signals are handled.

However a command ends, it has one documented exit status, prints no traceback, and leaves no process behind.
"""

from __future__ import annotations

import os
import signal
import sys

# Nothing else is imported here, because signals have no handler before `main`.

BISECTION_STOPS = 255
"""The exit status by which `git bisect run` stops: it says nothing about the tree."""
_INTERRUPTED = 2
"""ExitCode.INTERRUPTED, which is not imported yet."""
_HARNESS_BUG = 3
_INFRASTRUCTURE = 7
_NOTHING_LEFT = "error: the operating system refuses: no more memory or processes"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line under a supervisor; run `arguments`, if given, in this process without one."""
    if arguments is not None:
        from harness.cli import group  # noqa: PLC0415 - see below

        sys.exit(group.run(arguments))
    from harness.core.processes import environment  # noqa: PLC0415

    environment.forget_the_callers_python()
    _forget_the_callers_signals()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
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
    try:
        code = supervisor.supervise(lambda: sys.exit(_never_findings(words)), killed=killed, again=_again)
    except (MemoryError, OSError) as error:
        supervisor.say(f"{_NOTHING_LEFT}\n  because: {error or 'no memory'}")
        code = _INFRASTRUCTURE
    os._exit(code)


def _never_findings(words: list[str]) -> int:
    """The exit status of a command line. An error in its last steps must not have Python's status 1, which would mean
    findings.
    """
    try:
        return _supervised(words)
    except MemoryError:
        # Even the message of an error needs memory.
        os.write(2, f"{_NOTHING_LEFT}\n".encode())
        os._exit(_INFRASTRUCTURE)
    except Exception:  # noqa: BLE001 - the interpreter would print the same, and exit with 1
        import traceback  # noqa: PLC0415 - only after a bug

        traceback.print_exc()
        os._exit(_HARNESS_BUG)


def _forget_the_callers_signals() -> None:
    """Undo what the caller ignores or blocks, as daemons and some CI launchers do.

    It would pass to every process below: ends of children would be lost, and a server with a blocked SIGBUS would hang.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Python itself ignores SIGPIPE and SIGXFSZ, and restores them in new processes. nohup ignores SIGHUP on purpose.
    own = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP}
    for number in signal.valid_signals() - own:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _again() -> str:
    """The same command line with a traceback; empty if it already requests one."""
    # Only after a bug: this takes time.
    import shlex  # noqa: PLC0415

    from harness.cli.invocation import program  # noqa: PLC0415

    words = sys.argv[1:]
    return "" if "--debug" in words else f"{program()} --debug {shlex.join(words)}"


def _supervised(words: list[str]) -> int:
    from harness.core import standard_streams  # noqa: PLC0415
    from harness.core.processes import process_tree, supervisor  # noqa: PLC0415

    streams = standard_streams.Streams()
    try:
        code = _command(words)
    except (KeyboardInterrupt, Exception) as error:
        from harness.core.processes import process  # noqa: PLC0415 - as in `_command`

        # An exception may wrap the KeyboardInterrupt of a signal.
        if not isinstance(error, KeyboardInterrupt) and not process.has_stopped():
            raise
        supervisor.say(supervisor.INTERRUPTED)
        code = _INTERRUPTED
    except SystemExit as ended:
        # Completion raises it.
        code = ended.code if isinstance(ended.code, int) else 0
    for number in process_tree.STOPPING:
        signal.signal(number, signal.SIG_IGN)
    # After a KeyboardInterrupt inside eval(), such as namedtuple's, `python -m` ends by SIGINT although it was handled.
    # The next evaluation of a text takes that back (CPython, Python/pythonrun.c, run_eval_code_obj).
    eval("None")  # noqa: S307 - a constant
    return streams.finish(code)


def _command(words: list[str]) -> int:
    from harness.core.processes import process  # noqa: PLC0415 - a signal may come while this is imported

    process.stop_on_signals()
    from harness.cli import group  # noqa: PLC0415 - and this takes longest
    from harness.core.processes import temporary_folder  # noqa: PLC0415

    return group.run(words, first=temporary_folder.confine)


if __name__ == "__main__":
    main()
