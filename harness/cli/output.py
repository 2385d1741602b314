"""Output of commands: documents on standard output, everything else on standard error."""

from __future__ import annotations

import codecs
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from harness.cli.invocation import runnable
from harness.core import json_codec
from harness.core.ci_streams import in_json, write_commands
from harness.core.untrusted_text import visible_json
from harness.judge.reproducer import stored_at
from harness.report import finding_list, terminal
from harness.report.formats import registry as formats

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement
    from harness.report.report_format import ReportFormat


def print_json(value: Any) -> None:
    """Print the document of `--json`, in which invisible characters are escapes. If standard output is not UTF-8, it is
    printed as ASCII without loss.
    """
    text = in_json(visible_json(json_codec.pretty(value).decode()))
    is_utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    click.echo(text if is_utf8 else _in_ascii(text), nl=False)


def _in_ascii(document: str) -> str:
    """The same JSON document: non-ASCII occurs only in strings, which may escape UTF-16 units (RFC 8259, 7)."""

    def escaped(character: re.Match[str]) -> str:
        return re.sub("(....)", r"\\u\1", character[0].encode("utf-16-be").hex())

    return re.sub(r"[^\x00-\x7f]", escaped, document)


def print_document(text: str, form: ReportFormat) -> None:
    """Print one format's document. The words of servers are made harmless for a CI system that reads the output."""
    if form.guard is None:
        write_commands(text, err=False)
    else:
        click.echo(form.guard(text), nl=False)


def show(judgement: Judgement, *, as_json: bool) -> None:
    """Print a judgement as JSON or as text."""
    if as_json:
        print_json(judgement)
    else:
        shown = msgspec.structs.replace(
            judgement,
            findings=[_pasteable(finding) for finding in judgement.findings],
            remarks=[runnable(remark) for remark in judgement.remarks],
        )
        terminal.show(_console(), shown)


def show_finding(finding: Finding, folder: Path) -> None:
    """Print one finding of a run folder as text, in full.

    The folder may have moved since the run was judged: the printed command names the reproducer where it is now.
    """
    here = stored_at(folder, finding.replay)
    if here is not None:
        finding = msgspec.structs.replace(finding, replay=f"plumb replay {shlex.quote(str(here))}")
    finding_list.show_whole(_console(), _pasteable(finding))


def _pasteable(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, replay=runnable(finding.replay))


def _console() -> Console:
    return Console(
        highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 140
    )


def annotate(folder: Path, judgement: Judgement, system: str | None) -> None:
    """Print annotations on standard error, which CI systems also read, because standard output may be a document."""
    if system:
        write_commands(formats.render(folder, judgement, system), err=True)
