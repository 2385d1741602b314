"""The findings of a judgement by name: a selection of them, one line each, and one finding whole."""

from __future__ import annotations

import fnmatch
import shlex
from typing import TYPE_CHECKING

from harness.core.errors import NothingSelectedError, UsageError
from harness.core.finding import place_in_file
from harness.core.strict_toml import near_names
from harness.core.untrusted_text import one_line, visible
from harness.report.finding import by_place, place_of
from harness.report.terminal import show_finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement

WIDEST_COLUMN = 48
"""A longer entry of a column pushes the rest of its line to the right."""


def chosen(
    judgement: Judgement,
    *,
    kinds: Sequence[str] = (),
    targets: Sequence[str] = (),
    suites: Sequence[str] = (),
    new: bool = False,
) -> list[Finding]:
    """The findings that match the globs, in the judgement's order. `new`: only those that the known list lacks.

    Compiler warnings that are not findings (`--warnings note`) are included only if a kind is given. Raises
    NothingSelectedError for a glob that matches nothing in the run.
    """
    every = [*judgement.findings, *(judgement.warnings if kinds else [])]
    wanted_kinds = _matching("kind", kinds, (finding.kind for finding in every))
    wanted_targets = _matching("target", targets, (cell.target for cell in judgement.cells))
    wanted_suites = _matching("suite", suites, (cell.suite for cell in judgement.cells))
    return [
        finding
        for finding in every
        if finding.kind in wanted_kinds
        and (not new or not finding.known)
        and any(one.target in wanted_targets and one.suite in wanted_suites for one in finding.witnesses)
    ]


def _matching(option: str, patterns: Sequence[str], present: Iterable[str]) -> set[str]:
    names = sorted(set(present))
    matching: set[str] = set()
    for pattern in patterns or ["*"]:
        matched = fnmatch.filter(names, pattern)
        if names and not matched:
            raise NothingSelectedError(
                f"no {option} of the run matches '{pattern}'",
                where=f"--{option}",
                remedy=f"the run has: {', '.join(names)}",
            )
        matching.update(matched)
    return matching


def lines_of(findings: Sequence[Finding]) -> list[str]:
    """A line for each finding: id, kind, targets, place, title, and the reason if it is known."""
    rows = [
        [finding.id, finding.kind, ",".join(finding.targets), _place(finding), one_line(finding.title)]
        + ([f"known: {one_line(finding.known)}"] if finding.known else [])
        for finding in findings
    ]
    # The title is the last column of most rows: it is not padded.
    widths = [min(WIDEST_COLUMN, max(len(row[column]) for row in rows)) for column in range(4)] if rows else []
    return [
        "  ".join([*(one_line(text).ljust(width) for text, width in zip(row, widths, strict=False)), *row[4:]])
        for row in rows
    ]


def _place(finding: Finding) -> str:
    if finding.file or not finding.witnesses:
        return place_in_file(finding.file, finding.line)
    return place_of(finding.witnesses[0])


def named(judgement: Judgement, pattern: str, *, run: Path, list_all: bool = False) -> Finding:
    """The one finding, or noted compiler warning, whose id is `pattern`, fits it as a glob, or begins with it.

    Raises UsageError if there is none or more than one. `run`: the judgement's folder, for the message, which has all
    ids with `list_all`, else near ones.
    """
    by_id = {finding.id: finding for finding in [*judgement.warnings, *judgement.findings]}
    matching = [pattern] if pattern in by_id else fnmatch.filter(by_id, pattern)
    matching = matching or [identity for identity in by_id if identity.startswith(pattern)]
    if len(matching) == 1:
        return by_id[matching[0]]
    if matching:
        raise UsageError(
            f"'{pattern}' matches {len(matching)} findings", where=str(run), remedy=f"one of: {', '.join(matching)}"
        )
    near = near_names(pattern, by_id)
    remedy = f"did you mean {' or '.join(near)}? All: " if near else ""
    raise UsageError(
        f"no finding '{pattern}'",
        where=str(run),
        because=f"the run has: {', '.join(by_id) or 'no finding'}" if list_all else "",
        remedy=f"{remedy}plumb findings {shlex.quote(str(run))}",
    )


def show_whole(console: Console, finding: Finding) -> None:
    """Print everything that a judgement says about a finding."""

    def line(label: str, text: str) -> None:
        console.print(f"    {label:<12} {text}", markup=False)

    show_finding(console, finding, whole=True)
    for witness in by_place(finding.witnesses):
        console.print()
        line("seen in", one_line(", ".join(witness.cells) or f"{witness.target}/{witness.suite}"))
        line("evidence", one_line(witness.evidence))
        for occasion in witness.occasions:
            line("test", one_line(occasion.test))
            if occasion.command:
                line("command", one_line(occasion.command))
            for text in visible(occasion.said or occasion.title).splitlines():
                line("", text)
