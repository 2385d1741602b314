"""Renders port.html: the report as one file, with the frame and style of report.html in the same folder."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import source_excerpt
from harness.report.formats.page import anchor_of, environment, hunks_of, link, rows_of, stack_of
from harness.workflows.porting import items
from harness.workflows.porting.document import BLOCKERS
from harness.workflows.porting.sections import (
    ANY_POLICY,
    RANK_TITLES,
    RESULTS,
    SENTENCES,
    hint_groups,
    region_groups,
    rows_of_solaris,
)

if TYPE_CHECKING:
    from harness.judge.findings import Judgement
    from harness.workflows.porting.document import PortReport

OPEN_ITEMS = 1
"""Number of items that are unfolded initially."""


def render(folder: Path, report: PortReport, judgement: Judgement) -> str:
    """The document. `folder` is the run folder, which has the excerpts; links are relative to it."""
    excerpts = source_excerpt.read(folder)
    findings = {finding.id: finding for finding in judgement.findings}
    counted = items.counts(report)
    return (
        environment(Path(__file__).parent)
        .get_template("port.html.jinja")
        .render(
            report=report,
            sentence=SENTENCES[report.verdict],
            blockers=sum(counted[rank] for rank in BLOCKERS),
            counted={rank: number for rank, number in counted.items() if number},
            rank_titles=RANK_TITLES,
            groups=[(rank, list(each)) for rank, each in itertools.groupby(report.items, key=lambda one: one.rank)],
            opened=[one for one in report.items if one.rank != "note"][:OPEN_ITEMS],
            levels={"build": "error", "start": "error", "fault": "error", "value": "error", "strict": "warning"},
            results=RESULTS,
            suites=list(dict.fromkeys(cell.suite for cell in report.cells)),
            rows=rows_of(judgement),
            titles={port.target: port.title for port in report.targets},
            findings=findings,
            hunks={one.id: hunks_of(one, excerpts) for one in judgement.findings},
            stacks={one.id: stack_of(one) for one in judgement.findings},
            anchor_of=anchor_of,
            link=link,
            hint_groups=hint_groups(report),
            region_groups=region_groups(report),
            solaris=rows_of_solaris(report),
            any_policy=ANY_POLICY,
        )
    )
