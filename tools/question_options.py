"""Options shared by the programs that check releases and commits, and store the answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from harness.core.errors import ExitCode, PlumblineError, UsageError
from harness.core.strict_toml import near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

servers = click.option("--server", "servers", multiple=True, help="Ask only this release or package; repeat for more.")
targets = click.option("--target", "targets", multiple=True, help="Ask only on this target; repeat for more.")
plan = click.option("--plan", is_flag=True, help="Print the commands, and ask nothing.")


def histories(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that names clones of public histories, passed as `histories`."""
    return click.option(
        "--git",
        "histories",
        multiple=True,
        required=required,
        type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
        metavar="CLONE",
        help="A clone of a public history, bare or not; repeat for more.",
    )


def answers(flag: str, stored: Path) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that names the file of answers, passed as `path`. `stored`: the one that the project keeps."""
    return click.option(
        flag, "path", type=click.Path(path_type=Path, dir_okay=False), default=stored, help="The file of answers."
    )


def refuse_unknown(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise UsageError for a name of this kind that is not known, with the names near it."""
    for name in names:
        if name not in known:
            near = ", ".join(near_names(name, known)) or ", ".join(dict.fromkeys(known))
            raise UsageError(f"no {kind} '{name}' can be asked", where=f"--{kind}", remedy=f"one of these: {near}")


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
