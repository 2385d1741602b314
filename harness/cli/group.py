"""The command group: reads a command line, calls one function, and converts exceptions to documented exit codes."""

from __future__ import annotations

import shlex
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from harness.cli.commands import LazyCommands, PlumbGroup
from harness.cli.invocation import runnable
from harness.core.ci_streams import harmless_streams
from harness.core.errors import ExitCode, PlumblineError, is_machine_fault, is_misnamed, machine_fault, misnamed
from harness.core.processes import process
from harness.core.processes.supervisor import INTERRUPTED
from harness.core.untrusted_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group(
    cls=PlumbGroup,
    commands=LazyCommands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.version_option(package_name="plumbline", prog_name="plumb")
def plumb(debug: bool) -> None:
    """Find alignment and byte-order bugs in Redis and Valkey before hardware does."""
    del debug  # read by run(), which prints errors


def run(words: list[str], *, first: Callable[[], object] = int) -> int:
    """Run a command line and return its exit status. CI runners find no commands in its output.

    `first` is called before the command, and may raise the same exceptions.
    """

    def call() -> Any:
        first()
        code = plumb.main(args=words, prog_name="plumb", standalone_mode=False)
        _keep_limit()
        return code

    with harmless_streams():
        return _guarded(call, words)


def _keep_limit() -> None:
    """Enforce the limit of the cache, if the command used it."""
    cache = sys.modules.get("harness.core.cache")
    if cache is not None:
        # Only now: it takes as long to import as a short command runs.
        from harness.core.progress import Progress  # noqa: PLC0415
        from harness.workflows import cache_upkeep  # noqa: PLC0415

        cache_upkeep.keep_limit(cache.Cache(cache.default_root()), Progress().say)


def _guarded(call: Callable[[], Any], words: list[str]) -> int:
    """Run a command; convert its exception to a message and the documented exit code."""
    debug = "--debug" in words
    try:
        return _unless_stopped(int(call() or 0))
    except PlumblineError as error:
        if debug:
            traceback.print_exc()
        _tell(error)
        return int(error.exit_code)
    except click.ClickException as error:
        _tell_misuse(error)
        return int(ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort, process.StoppedError):
        click.echo(INTERRUPTED, err=True)
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - any other exception has a documented code, too
        return int(_unexpected(error, words))


def _unless_stopped(code: int) -> int:
    """The exit status of a command that ran to its end, even if Python ignored the exception of a signal."""
    process.refuse_after_stop()
    return code


def _unexpected(error: Exception, words: list[str]) -> ExitCode:
    """Print the message of an exception that no code expects; its exit code."""
    if process.has_stopped():
        click.echo(INTERRUPTED, err=True)
        return ExitCode.INTERRUPTED
    debug = "--debug" in words
    if debug:
        traceback.print_exc()
    if is_machine_fault(error):
        _tell(machine_fault(error))
        return ExitCode.INFRASTRUCTURE
    if is_misnamed(error):
        _tell(misnamed(error))
        return ExitCode.USAGE
    click.echo(visible(f"error: a bug in Plumbline: {type(error).__name__}: {error}"), err=True)
    if not debug:
        click.echo(visible(f"  try: {runnable('plumb --debug')} {shlex.join(words)}"), err=True)
    return ExitCode.HARNESS_BUG


def _tell_misuse(error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        # Without a command, `plumb` shows help. This is not a success: a script that lost the command's name must not
        # mistake it for a PASS.
        click.echo(error.format_message())
        return
    click.echo(visible(f"error: {error.format_message()}"), err=True)
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "plumb"
    click.echo(f"  try: {runnable(f'{where} --help')}", err=True)


def _tell(error: PlumblineError) -> None:
    # Only the remedy: the other parts may quote a server.
    error.remedy = runnable(error.remedy)
    click.echo(visible(str(error)), err=True)
