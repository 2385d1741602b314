"""What the programs share that ask releases and store the answers: tools.found and tools.matrix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from harness.core.errors import ExitCode, PlumblineError

if TYPE_CHECKING:
    from collections.abc import Callable

servers = click.option("--server", "servers", multiple=True, help="Ask only this release or package; repeat for more.")
targets = click.option("--target", "targets", multiple=True, help="Ask only on this target; repeat for more.")
plan = click.option("--plan", is_flag=True, help="Print the commands, and ask nothing.")


def answers(flag: str, stored: Path) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that names the file of answers, passed as `path`. `stored`: the one that the project keeps."""
    return click.option(
        flag, "path", type=click.Path(path_type=Path, dir_okay=False), default=stored, help="The file of answers."
    )


def exit_with(work: Callable[[], int]) -> NoReturn:
    """Do the work and exit with its status; or with that of its exception, which is printed."""
    try:
        code = work()
    except PlumblineError as error:
        click.echo(str(error), err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise SystemExit(code)
