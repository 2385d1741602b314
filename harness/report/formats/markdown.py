"""summary.md: a short summary, which GitHub shows for a job and people paste into issues."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from harness.core.byte_diff import described
from harness.core.finding import Verdict
from harness.core.model import level_text
from harness.core.untrusted_text import one_line
from harness.judge.verdict import is_noted_everywhere
from harness.report.finding import (
    by_place,
    by_reason,
    level_of,
    named_comparison,
    named_order,
    named_suspects,
    place_of,
    reported_by,
)
from harness.report.markdown_table import table
from harness.report.misaligned_sites import counters_text, sites
from harness.report.report_format import ReportFormat
from harness.report.verdict_sentence import sentence

if TYPE_CHECKING:
    from harness.core.finding import Finding, Witness
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict

MOST_BYTES = 900_000
"""GitHub rejects a job summary of more than 1 MiB as a whole. A longer summary is cut, and says so."""
OPEN_FINDINGS = 10
"""How many causes are shown open; the others are folded."""
SHOWN_WITNESSES = 3
SHOWN_SITES = 30
SHOWN_OUTPUT = 5
"""Lines of a program's output: the last ones."""
_SIGNS = {"PASS": "✅", "FAIL": "❌", "UNKNOWN": "⚠", "XFAIL": "☑", "SKIP": "⏭"}


def render(judgement: Judgement) -> str:
    """The document, GitHub-flavoured."""
    suites = list(dict.fromkeys(cell.suite for cell in judgement.cells))
    lines = [f"# {as_text(judgement.server)}: {signed(judgement.verdict)}", ""]
    rows = []
    for target in dict.fromkeys(cell.target for cell in judgement.cells):
        row = {cell.suite: _cell(cell) for cell in judgement.cells if cell.target == target}
        rows.append([as_text(target), *(row.get(suite, "") for suite in suites)])
    lines += [_facts(judgement), "", *table(["target", *map(as_text, suites)], rows)]
    unknown = by_reason(judgement.cells, Verdict.UNKNOWN)
    if unknown or judgement.remarks or judgement.base:
        lines.append("")
    lines += [f"- compared with BASE {as_text(judgement.base)}"] if judgement.base else []
    lines += [f"- {verdict} {as_text(cells)}: {as_text(reason)}" for verdict, cells, reason in unknown]
    lines += [f"- note: {as_text(remark)}" for remark in judgement.remarks]
    for target, counters in judgement.kernel_counters.items():
        lines += ["", f"{as_text(target)}: its kernel counted {counters_text(counters)}"]
    lines += _findings(judgement) + _misaligned_sites(judgement)
    return _cut([*lines, ""])


def _facts(judgement: Judgement) -> str:
    return (
        f"{as_text(sentence(judgement))} · policy {as_code(judgement.policy)} · "
        + (f"{as_code(level_text(judgement.optimisation))} · " if judgement.optimisation else "")
        + (f"environment `{judgement.environment}` · " if judgement.environment != "usual" else "")
        + (f"memory order `{judgement.memory_order}` · " if judgement.memory_order != "usual" else "")
        + (f"io `{judgement.io}` · " if judgement.io != "unix" else "")
        + (f"timeout multiplier {judgement.timeout_multiplier:g} · " if judgement.timeout_multiplier != 1 else "")
        + f"seed {judgement.seed} · {sum(judgement.stages.values()):.0f} s"
    )


def _cell(cell: CellVerdict) -> str:
    counts = f"{cell.passed} passed" + (f", {cell.failed} failed" if cell.failed else "")
    return f"{signed(cell.verdict)} <br>{counts}, {cell.seconds:.0f} s"


def _findings(judgement: Judgement) -> list[str]:
    """Each cause with the finding that shows it most directly. Its other findings are folded."""
    lines = []
    for number, (cause, findings) in enumerate(judgement.findings_by_cause()):
        known = "on every machine" if is_noted_everywhere(findings[cause.start]) else "known"
        heading = f"{as_text(cause.title)}, {as_text(cause.where)}" + (f" ({known})" if cause.known else "")
        body = [*_finding(findings[cause.start]), ""]
        for why, ids in (
            (f"The same cause: they share {as_text(cause.shared)}", cause.members),
            ("May follow from this", cause.followers),
        ):
            if ids:
                lines_of_others = [f"- {as_text(one)}: {as_text(findings[one].title)}" for one in ids]
                body += [f"<details><summary>{why}: {len(ids)}</summary>", "", *lines_of_others, "", "</details>", ""]
        if number < OPEN_FINDINGS:
            lines += ["", f"## {heading}", "", *body]
        else:
            lines += ["", f"<details><summary>{heading}</summary>", "", *body, "</details>"]
    return lines


def _finding(finding: Finding) -> list[str]:
    lines = [
        f"**{level_of(finding)}** · {as_code(finding.id)} · {finding.occurrences}× · origin {as_text(finding.origin)}",
        "",
    ]
    if finding.known:
        lines += [f"Known: {as_text(finding.known)}", ""]
    for target in finding.targets:
        here = by_place([witness for witness in finding.witnesses if witness.target == target])
        lines += [f"- {as_text(target)}: {said}" for one in here[:SHOWN_WITNESSES] if (said := _witness(one))]
        if len(here) > SHOWN_WITNESSES:
            lines.append(f"- {as_text(target)}: and {len(here) - SHOWN_WITNESSES} more instructions or lines")
    if said := named_order(finding):
        lines.append(f"- {as_text(said)}")
    if finding.suspects:
        lines.append(f"- {as_text(named_suspects(finding))}")
    if finding.comparison:
        lines.append(f"- {as_text(named_comparison(finding))}")
    if finding.command:
        lines.append(f"- command: {as_code(finding.command)}")
    return [*lines, f"- replay: {as_code(finding.replay)}"]


def _witness(witness: Witness) -> str:
    parts = (
        as_code(place_of(witness)),
        as_code(witness.instruction),
        as_text(witness.access),
        as_text(reported_by(witness)),
    )
    kernel = f"(its kernel said: {as_text(witness.kernel)})" if witness.kernel else ""
    differs = f"({as_text(described(witness.difference))})" if witness.difference else ""
    unlike = f"(unlike on the host, {as_text(witness.unlike)})" if witness.unlike else ""
    told = "; ".join(witness.output.splitlines()[-SHOWN_OUTPUT:])
    output = f"(output: {as_code(told)})" if told else ""
    return " ".join(part for part in (*parts, kernel, differs, unlike, output) if part)


def _misaligned_sites(judgement: Judgement) -> list[str]:
    listed = sites(judgement.findings)
    if not listed:
        return []
    targets = list(judgement.counters)
    rows = []
    for site in listed[:SHOWN_SITES]:
        counts = [
            f"{site.count_on(name)} {' '.join(site.fates_on(name))}" if site.fates_on(name) else "" for name in targets
        ]
        rows.append((as_text(site.function), as_text(site.place), ", ".join(site.shapes), *counts))
    lines = ["", "## Misaligned accesses, by source line", ""]
    lines += table(["function", "line", "access", *targets], rows, numbers_from=3)
    if len(listed) > SHOWN_SITES:
        lines.append(f"\n… and {len(listed) - SHOWN_SITES} lines more: report.html has them all.")
    return lines + [""] + [f"- {name}: {counters_text(counters)}" for name, counters in judgement.counters.items()]


def signed(verdict: str) -> str:
    """A verdict with its symbol."""
    return f"{_SIGNS[verdict]} {verdict}"


def as_text(text: str) -> str:
    """The text escaped against HTML, images, links, table cells and emphasis. `_` inside words is harmless (GFM)."""
    plain = html.escape(one_line(text), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))", r"\\\1", plain)


def as_code(text: str) -> str:
    """A code span around any text (CommonMark 6.1): its fences are longer than those in the text. Not for tables."""
    if not text:
        return ""
    plain = one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", plain)), default=0) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _cut(lines: list[str]) -> str:
    taken: list[str] = []
    size = 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > MOST_BYTES:
            return "\n".join([*taken, "", "… cut: report.html and findings.json have the rest.", ""])
        taken.append(line)
    return "\n".join(taken)


FORMAT = ReportFormat(name="markdown", file="summary.md", render=lambda _, judgement: render(judgement))
