"""Renders port.md: the report for an issue, a wiki or an email."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING

from harness.core.model import level_flags
from harness.report.formats.markdown import as_code, as_text, signed
from harness.report.markdown_table import table
from harness.workflows.porting.sections import (
    ANY_POLICY,
    HERE_ALONE,
    RANK_TITLES,
    RESULTS,
    SENTENCES,
    SOLARIS,
    assumptions,
    hint_groups,
    lines_text,
    region_groups,
    rows_of_solaris,
)

if TYPE_CHECKING:
    from harness.workflows.porting.document import PortingItem, PortReport

MOST_DETAIL = 8
MOST_ROWS = 40


def render(report: PortReport) -> str:
    """The document in GitHub-flavoured Markdown."""
    names = ", ".join(port.target for port in report.targets)
    lines = [
        f"# Porting {as_text(report.server)} to {names}: {signed(report.verdict)}",
        "",
        SENTENCES[report.verdict],
        "",
    ]
    lines += _fix_first(report) + _steps(report) + _suites(report) + _solaris(report) + _regions(report)
    lines += _hints(report) + _makefiles(report)
    built = as_code(" ".join([*level_flags(report.optimisation), *map(shlex.quote, report.settings.words)]))
    lines += ["", f"Run: {as_code(report.run)} · {built} · seed {report.seed}", ""]
    return "\n".join(lines)


def _fix_first(report: PortReport) -> list[str]:
    lines = ["## What to fix first", ""]
    for rank, each in itertools.groupby(report.items, key=lambda one: one.rank):
        lines += [f"### {RANK_TITLES[rank]}", ""]
        for one in each:
            lines += _item(one)
        lines.append("")
    return lines if report.items else [*lines, "Nothing.", ""]


def _item(item: PortingItem) -> list[str]:
    place = f" at {as_code(item.place)}" if item.place else ""
    lines = [f"- **{as_text(item.title)}**{place} ({', '.join(item.targets)})"]
    lines += [f"  - {as_code(f'{item.place}  {item.source}')}"] if item.source else []
    lines += [f"  - {as_code(one)}" for one in item.detail[:MOST_DETAIL]]
    if len(item.detail) > MOST_DETAIL:
        lines.append(f"  - and {len(item.detail) - MOST_DETAIL} more")
    lines += [f"  - fix: {as_text(item.remedy)}"] if item.remedy else []
    return lines + ([f"  - reproduce: {as_code(item.replay)}"] if item.replay else [])


def _steps(report: PortReport) -> list[str]:
    rows = [
        (port.target, step.name, RESULTS[step.result], as_text(step.detail))
        for port in report.targets
        for step in port.steps
    ]
    return ["## From source to a running server", "", *table(["target", "step", "", ""], rows), ""]


def _suites(report: PortReport) -> list[str]:
    rows = []
    for cell in report.cells:
        counts = f"{cell.passed} passed" + (f", {cell.failed} failed" if cell.failed else "")
        rows.append((cell.target, cell.suite, signed(cell.verdict), counts, as_text(cell.reason)))
    headings = ["target", "suite", "verdict", "", ""]
    return ["## Suites, with misaligned accesses let through", "", *table(headings, rows), ""]


def _solaris(report: PortReport) -> list[str]:
    lines = []
    for target, rows in rows_of_solaris(report).items():
        lines += [f"## Solaris: -xmemalign on {target}", ""]
        if not rows:
            lines += [ANY_POLICY, ""]
            continue
        cells = []
        for row in rows:
            default = " (the compiler's default)" if row.default else ""
            figures = (row.apart, row.repaired, row.signal, row.unsure or "")
            cells.append((f"{row.policy}{default}", row.acts_as, *figures))
        headings = ["policy", "acts as", "well", "repaired", "SIGBUS", "unsure"]
        lines += [
            *table(headings, cells, numbers_from=2),
            "",
            "Source lines with misaligned accesses in the audit, by what would happen to them.",
            "Unsure: it would be worse at misaligned addresses other than those that the audit recorded.",
            "Programs compiled by GCC request no repair: SIGBUS at all of them.",
        ]
        lines.append("")
    return lines


def _regions(report: PortReport) -> list[str]:
    lines: list[str] = []
    for heading, rows in region_groups(report).items():
        title = heading if heading == HERE_ALONE else f"not compiled: {heading}"
        cells = []
        for row in rows[:MOST_ROWS]:
            one = row.region
            place = _cell(f"{one.file}:{one.first}" + (f"-{one.last}" if one.last > one.first else ""))
            cells.append((place, _cell(one.condition), ", ".join(row.targets), _cell(one.excerpt)))
        lines += [f"## Code {title}", "", *table(["lines", "condition", "targets", ""], cells)]
        lines += [*([f"\n… and {len(rows) - MOST_ROWS} more: port.html"] if len(rows) > MOST_ROWS else []), ""]
    return lines


def _hints(report: PortReport) -> list[str]:
    groups = [group for group in hint_groups(report) if group.origin == "server"]
    bundled = [group for group in hint_groups(report) if group.origin != "server"]
    if not groups and not bundled:
        return []
    lines = [
        "## Compiler hints",
        "",
        "These are not findings: most of these pointers are aligned. **Seen** marks lines that the audit confirms.",
        "",
    ]
    if groups:
        rows = [
            (_cell(group.file), _cell(group.warning), lines_text(group.lines), lines_text(group.seen))
            for group in groups[:MOST_ROWS]
        ]
        lines += table(["file", "warning", "lines", "seen"], rows)
    if bundled:
        number = sum(len(group.lines) for group in bundled)
        lines += ["", f"And {number} in {len({group.file for group in bundled})} files that it bundles."]
    return [*lines, ""]


def _makefiles(report: PortReport) -> list[str]:
    lines = []
    for heading, kinds in (
        ("Makefiles: by the machine's name", ("machine",)),
        (f"Makefiles: {SOLARIS}", (SOLARIS,)),
        ("Makefiles: warnings that are errors", ("warnings are errors",)),
    ):
        if found := assumptions(report, *kinds):
            lines += (
                [f"## {heading}", ""]
                + [f"- {as_code(f'{one.file}:{one.line}')} {as_code(one.text)}" for one in found]
                + [""]
            )
    return lines


def _cell(text: str) -> str:
    """Code in a table, where even a code span ends at a bar (GFM, 4.10)."""
    return as_code(text).replace("|", "\\|")
