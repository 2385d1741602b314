"""The command group: reads a command line, calls one function, and converts exceptions to documented exit codes."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import click

from harness.cli.commands import LazyCommands, PlumbGroup
from harness.core.ci_streams import harmless_streams
from harness.core.errors import ExitCode, PlumblineError, is_machine_fault, machine_fault
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
    """Run a command line and return its exit status. No output of it is a command to a CI runner.

    `first` is called before the command, and may raise the same exceptions.
    """

    def call() -> Any:
        first()
        return plumb.main(args=words, prog_name="plumb", standalone_mode=False)

    with harmless_streams():
        return _guarded(call, debug="--debug" in words)


def _guarded(call: Callable[[], Any], *, debug: bool) -> int:
    """Run a command; convert its exception to a message and the documented exit code."""
    try:
        return _unless_stopped(int(call() or 0))
    except PlumblineError as error:
        if debug:
            traceback.print_exc()
        click.echo(visible(str(error)), err=True)
        return int(error.exit_code)
    except click.ClickException as error:
        click.echo(visible(f"error: {error.format_message()}"), err=True)
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "plumb"
        click.echo(f"  try: {where} --help", err=True)
        return int(ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort, process.StoppedError):
        click.echo(INTERRUPTED, err=True)
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - any other exception has a documented code, too
        return int(_unexpected(error, debug=debug))


def _unless_stopped(code: int) -> int:
    """The exit status of a command that ran to its end, even where Python ignored the exception of a signal."""
    process.refuse_after_stop()
    return code


def _unexpected(error: Exception, *, debug: bool) -> ExitCode:
    """Print the message of an exception that no code expects; its exit code."""
    if process.has_stopped():
        click.echo(INTERRUPTED, err=True)
        return ExitCode.INTERRUPTED
    if debug:
        traceback.print_exc()
    if is_machine_fault(error):
        click.echo(visible(str(machine_fault(error))), err=True)
        return ExitCode.INFRASTRUCTURE
    click.echo(visible(f"error: a bug in Plumbline: {type(error).__name__}: {error}"), err=True)
    click.echo("  try: the same command with --debug: plumb --debug …", err=True)
    return ExitCode.HARNESS_BUG
