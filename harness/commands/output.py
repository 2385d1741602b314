"""What commands print: documents on standard output, all else on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from harness import codec
from harness import report as reporting
from harness.report import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge import Judgement


def print_json(value: Any) -> None:
    """The one document of a command's `--json`."""
    click.echo(codec.pretty(value).decode(), nl=False)


def show(judgement: Judgement, *, as_json: bool) -> None:
    """A judgement, for a program or for a person."""
    if as_json:
        print_json(judgement)
    else:
        console = Console(
            highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 140
        )
        terminal.show(console, judgement)


def annotate(folder: Path, judgement: Judgement, system: str | None) -> None:
    """On standard error, which CI systems read as well: standard output may be a document."""
    if system:
        told = reporting.render(folder, judgement, system)
        click.echo(told, nl=False, err=True)
