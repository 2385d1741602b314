"""report.html: one file that needs no network, script or tool, and follows the reader's light or dark mode.

The page contains data from a server, which may be hostile. Everything is escaped, and the page's own policy forbids
the browser to run or load anything.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
import msgspec
from markupsafe import Markup

from harness.analysis import source_excerpt
from harness.core.ci_streams import in_markup
from harness.core.finding import Verdict
from harness.core.model import level_text
from harness.core.untrusted_text import visible
from harness.isa import rules
from harness.judge.verdict import is_noted_everywhere
from harness.record import run_folder
from harness.report import chart
from harness.report.finding import (
    SUSPECTS_ARE,
    VALUES_ARE,
    by_place,
    by_reason,
    comparison_rows,
    in_cell,
    level_of,
    place_of,
)
from harness.report.history import history
from harness.report.misaligned_sites import FATES, counters_text, named_counters, sites, targets_of
from harness.report.report_format import ReportFormat
from harness.report.verdict_sentence import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.analysis.source_excerpt import Excerpts, Listing
    from harness.core.finding import Finding, Witness
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict
    from harness.record.run_record import RunRecord

OPEN_FINDINGS = 1
"""How many findings are unfolded at first."""
SHOWN_SITES = 200
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_SIGNS = {"PASS": "✓", "FAIL": "✗", "UNKNOWN": "?", "XFAIL": "~", "SKIP": "–"}


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of source, or of a listing."""

    number: int
    text: str
    marks: str
    """The targets that show a finding on this line; empty for a line of context."""


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring lines of one file."""

    file: str
    lines: list[SourceLine]


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """The instructions around the one that misbehaved."""

    target: str
    place: str
    listing: Listing


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a finding has another one's cause, or may have."""

    text: str
    start: str
    """The title of the other one."""
    anchor: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its source lines, instructions and stack, as the page shows them."""

    finding: Finding
    anchor: str
    level: str
    hunks: list[Hunk]
    code: list[Code]
    stack: Witness | None
    """The witness whose stack is shown."""
    relation: Relation | None
    """Its relation to the finding to read before it; None if it shows a cause most directly."""
    is_open: bool


def render(folder: Path, judgement: Judgement, run: RunRecord, *, shows_history: bool = True) -> str:
    """The document. `folder`: the run folder, for excerpts and neighbouring runs. Links are relative to it.

    Without `shows_history` the page does not name its neighbours.
    """
    listed = sites(judgement.findings)
    return (
        environment()
        .get_template("page.html.jinja")
        .render(
            judgement=judgement,
            titles={name: target.title for name, target in run.machines.items()},
            run=run,
            sentence=sentence(judgement),
            is_audit=rules.is_audit(judgement.policy),
            suites=list(dict.fromkeys(cell.suite for cell in judgement.cells)),
            rows=rows_of(judgement),
            unknown=by_reason(judgement.cells, Verdict.UNKNOWN),
            shown=_shown(judgement, source_excerpt.read(folder)),
            filters=(filters := _filters(judgement.findings)),
            nothing=_choices_of_nothing(judgement.findings, filters),
            sites=listed[:SHOWN_SITES],
            sites_left_out=len(listed) - len(listed[:SHOWN_SITES]),
            site_targets=targets_of(listed),
            fates=FATES,
            kernel_counters={target: counters_text(one) for target, one in judgement.kernel_counters.items()},
            counters={target: named_counters(one) for target, one in judgement.counters.items()},
            charts={
                "Time by stage": chart.stages(judgement),
                "Time by target": chart.cells(judgement),
                "Misaligned source lines by target": chart.misaligned_sites(judgement),
            },
            history=history(folder) if shows_history else [],
            by_place=by_place,
            place_of=place_of,
            status_of=status_of,
            suspects_are=SUSPECTS_ARE,
            values_are=VALUES_ARE,
            comparison_rows=comparison_rows,
            link=link,
        )
    )


def status_of(finding: Finding) -> str:
    """Whether a finding fails the run, in one word: `new`, `known` or `everywhere`."""
    return "everywhere" if is_noted_everywhere(finding) else "known" if finding.known else "new"


def _values(finding: Finding) -> dict[str, list[str]]:
    """Property -> a finding's values of it."""
    return {
        "status": [status_of(finding)],
        "kind": [finding.kind],
        "target": finding.targets,
    }


def _filters(findings: list[Finding]) -> dict[str, list[str]]:
    """Property -> its values, where findings differ in it. The page needs no script to filter by them."""
    values: dict[str, list[str]] = {}
    for finding in findings:
        for name, ones in _values(finding).items():
            values.setdefault(name, []).extend(ones)
    # The names become part of a style sheet, which has no escapes that a template could apply.
    several = {name: [one for one in dict.fromkeys(ones) if _PLAIN.fullmatch(one)] for name, ones in values.items()}
    return {name: ones for name, ones in several.items() if len(ones) > 1}


def _choices_of_nothing(findings: list[Finding], filters: dict[str, list[str]]) -> list[list[str]]:
    """The choices of two or three properties (`kind-hang`) that no finding has; of three, not those that two decide."""
    kept = [{f"{name}-{one}" for name, ones in _values(each).items() for one in ones} for each in findings]
    found: list[list[str]] = []
    for number in (2, 3):
        for names in itertools.combinations(filters, number):
            for values in itertools.product(*(filters[name] for name in names)):
                choice = [f"{name}-{one}" for name, one in zip(names, values, strict=True)]
                known = any(set(other) <= set(choice) for other in found)
                if not known and not any(set(choice) <= has for has in kept):
                    found.append(choice)
    return found


@functools.cache
def environment(*folders: Path) -> jinja2.Environment:
    """The environment for all pages: templates of this folder and of `folders`, with escaping and a common style.

    Templates are compiled once for all pages of a command.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (Path(__file__).parent / "page.css").read_text("utf-8")
    made.globals.update(
        style=Markup(style),  # noqa: S704 - our own file
        version=importlib.metadata.version("plumbline"),
        signs=_SIGNS,
        level_text=level_text,
    )
    return made


@functools.cache
def _beginning() -> str:
    """The beginning of every page, up to the policy that forbids it to run or load anything."""
    template = (Path(__file__).parent / "base.html.jinja").read_text("utf-8")
    before, policy, after = template.partition('<meta http-equiv="Content-Security-Policy"')
    return before + policy + after.partition("\n")[0]


def is_harmless(page: Path) -> bool:
    """Whether a page begins as all pages do, so that a browser runs and loads nothing of it, whoever wrote the rest."""
    expected = _beginning().encode()
    with page.open("rb") as stream:
        return stream.read(len(expected)) == expected


def _harmless(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def link(*parts: str) -> str:
    """A relative address of a file in this run or a neighbouring one. No text can change it into another address."""
    return "./" + quote(os.fsencode("/".join(parts)))


def rows_of(judgement: Judgement) -> Mapping[str, dict[str, tuple[CellVerdict, int]]]:
    """Target -> suite -> the cell and its number of findings."""
    rows: dict[str, dict[str, tuple[CellVerdict, int]]] = {}
    for cell in judgement.cells:
        found = sum(in_cell(finding, cell.target, cell.suite) for finding in judgement.findings)
        rows.setdefault(cell.target, {})[cell.suite] = (cell, found)
    return rows


def _by_cause(judgement: Judgement) -> list[tuple[Finding, Relation | None]]:
    """The findings, each cause's together, with their relation to the first of it."""
    found: list[tuple[Finding, Relation | None]] = []
    for cause, findings in judgement.findings_by_cause():
        found.append((findings[cause.start], None))
        for text, ids in (
            (f"Shares {cause.shared} with", cause.members),
            ("May follow from", cause.followers),
        ):
            relation = Relation(text=text, start=cause.title, anchor=anchor_of(cause.start))
            found += [(findings[one], relation) for one in ids]
    return found


def _shown(judgement: Judgement, excerpts: Excerpts) -> list[Shown]:
    shown: list[Shown] = []
    for finding, relation in _by_cause(judgement):
        anchor = anchor_of(finding.id)
        taken = {one.anchor for one in shown}
        shown.append(
            Shown(
                finding=finding,
                anchor=f"{anchor}-{len(shown)}" if anchor in taken else anchor,
                level=level_of(finding),
                hunks=hunks_of(finding, excerpts),
                code=[
                    Code(target=witness.target, place=place_of(witness), listing=listing)
                    for witness in source_excerpt.chosen(finding)
                    if (listing := excerpts.listings.get(source_excerpt.place_key(witness)))
                ],
                stack=stack_of(finding),
                relation=relation,
                is_open=len(shown) < OPEN_FINDINGS,
            )
        )
    return shown


def anchor_of(identity: str) -> str:
    """A finding's anchor in the page."""
    return "finding-" + re.sub(r"[^A-Za-z0-9_.-]+", "_", identity)


def stack_of(finding: Finding) -> Witness | None:
    """The witness whose stack is shown: the first one with a stack."""
    return next((one for one in finding.witnesses if len(one.backtrace) > 1), None)


def hunks_of(finding: Finding, excerpts: Excerpts) -> list[Hunk]:
    """The lines around every place where a target shows the finding; neighbouring lines share a hunk."""
    hunks: list[Hunk] = []
    for file in dict.fromkeys(witness.file for witness in finding.witnesses):
        source = excerpts.sources.get(file, {})
        marked: dict[int, list[str]] = {}
        for witness in finding.witnesses:
            if witness.file == file:
                marked.setdefault(witness.line, []).append(witness.target)
        near = source_excerpt.SOURCE_LINES
        wanted = [number for number in sorted(source) if any(abs(number - place) <= near for place in marked)]
        for number in wanted:
            marks = ", ".join(dict.fromkeys(marked.get(number, [])))
            line = SourceLine(number=number, text=source[number], marks=marks)
            if hunks and hunks[-1].file == file and hunks[-1].lines[-1].number == number - 1:
                hunks[-1].lines.append(line)
            else:
                hunks.append(Hunk(file=file, lines=[line]))
    return [_dedented(hunk) for hunk in hunks]


def _dedented(hunk: Hunk) -> Hunk:
    """The hunk without the common indentation, which would take most of a phone's width."""
    texts = textwrap.dedent("\n".join(line.text.expandtabs(8) for line in hunk.lines)).split("\n")
    lines = [msgspec.structs.replace(line, text=text) for line, text in zip(hunk.lines, texts, strict=True)]
    return Hunk(file=hunk.file, lines=lines)


FORMAT = ReportFormat(
    name="html",
    file="report.html",
    render=lambda folder, judgement: render(folder, judgement, run_folder.read_run(folder)),
    shows_folder=True,
    guard=in_markup,
)
