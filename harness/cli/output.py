"""What commands print: documents on standard output, all else on standard error."""

from __future__ import annotations

import codecs
import re
import sys
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from harness.core import json_codec
from harness.core.ci_streams import in_json, write_commands
from harness.report import terminal
from harness.report.formats import registry as reporting

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement
    from harness.report.report_format import ReportFormat


def print_json(value: Any) -> None:
    """The one document of a command's `--json`; in ASCII, without a loss, for a terminal that is not UTF-8."""
    text = in_json(json_codec.pretty(value).decode())
    everywhere = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    click.echo(text if everywhere else _in_ascii(text), nl=False)


def _in_ascii(document: str) -> str:
    """The same JSON document. What is not ASCII stands in strings, and can be UTF-16's units there (RFC 8259, 7)."""

    def escaped(character: re.Match[str]) -> str:
        return re.sub("(....)", r"\\u\1", character[0].encode("utf-16-be").hex())

    return re.sub(r"[^\x00-\x7f]", escaped, document)


def print_document(text: str, form: ReportFormat) -> None:
    """Print one format's document, with a server's words made harmless to a CI system that reads the output."""
    if form.guard is None:
        write_commands(text, err=False)
    else:
        click.echo(form.guard(text), nl=False)


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
        write_commands(reporting.render(folder, judgement, system), err=True)
