"""The tables of docs/MATRIX.md, made of measurements/matrix.json, the catalog and docs/found."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from harness.build.sources.server_package import package_named
from harness.core.finding import Verdict
from harness.plan.catalog import Catalog
from harness.report.formats.markdown import as_text
from harness.report.markdown_table import table
from tools import bugs
from tools.matrix import document
from tools.matrix.document import SERVERS, WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tools.bugs import Bug
    from tools.checks import CellFinding
    from tools.matrix.document import Matrix, MatrixCell, Way

LONGEST_REMARK = 160
"""In characters. measurements/matrix.json has the whole."""
COMPARED: Way = "gcc"
"""The way that all others are compared with: GCC, with the GNU C library."""
_PAGE = re.compile(r"docs/found/([a-z0-9-]+)\.md")


def bugs_of(server: str, finding: CellFinding, known: Mapping[str, Bug]) -> list[str]:
    """The bugs of docs/found that a finding is: those that its known entry names, and those whose checks it fits.

    A package is taken for any release of its family, because its own need not be in the catalog.
    """
    package = package_named(server)

    def concerned(bug: Bug) -> bool:
        has = {*bug.has, *bug.by_source}
        return any(name.startswith(f"{package.family}-") for name in has) if package else server in has

    def fits(bug: Bug) -> bool:
        return any(
            check.suite in finding.suites
            and (package is not None or not check.servers or server in check.servers)
            and any(check.shown(finding.id, said) for said in finding.said or (finding.title,))
            # A glob that takes every finding says nothing without the test.
            and (
                check.finding != "*"
                or any(fnmatchcase(test, f"*{part}*") for test in finding.tests for part in check.tests)
            )
            for check in bug.checks
        )

    named = [name for name in _PAGE.findall(finding.known) if name in known]
    return sorted({*named, *(bug.name for bug in known.values() if concerned(bug) and fits(bug))})


class _Page:
    """The data of all tables."""

    def __init__(self, matrix: Matrix, catalog: Catalog, known: Mapping[str, Bug]) -> None:
        self.matrix, self.catalog, self.known = matrix, catalog, known

    def server_tables(self) -> list[str]:
        """For each server a heading, its answered cells, and how many promised ones have no answer."""
        lines: list[str] = []
        for server in SERVERS:
            lines += [f"### {server}", "", *self.server_rows(server), ""]
        return lines[:-1]

    def server_rows(self, server: str) -> list[str]:
        """A row for each answer: the verdict, and what proves that the check looked."""
        asked = [
            document.Question(server=server, way=way, target=target.name)
            for target in document.machines(self.catalog)
            for way in document.possible_ways(self.catalog, server, target)
        ]
        rows = [self._row(cell) for one in asked for cell in self.matrix.answers(one)]
        heads = ["target", "made by", "tier", "verdict", "findings", "canaries"]
        heads += ["tests passed / failed / skipped", "others", "remark"]
        lines = table(heads, rows) if rows else []
        promised = [one for one in asked if document.promised(self.catalog, one)]
        if missing := Counter(one.way for one in promised if self.matrix.of(one) is None):
            counts = ", ".join(f"{missing[way]} of `{way}`" for way in WAYS if way in missing)
            lines += [*([""] if rows else []), f"Promised, and without an answer: {counts}."]
        return lines or ["The weekly workflow asks all of its cells."]

    @staticmethod
    def _row(cell: MatrixCell) -> tuple[object, ...]:
        new = sum(not one.known for one in cell.findings)
        findings = [f"{len(cell.findings) - new} known"] if new < len(cell.findings) else []
        findings += [f"{new} new"] if new else []
        tests = cell.tests
        worst = "; ".join(f"{one.suite}: {one.reason}" for one in cell.suites if one.verdict is Verdict.UNKNOWN)
        remark = textwrap.shorten((cell.reason or worst).replace("\n", "; "), LONGEST_REMARK, placeholder=" …")
        return (
            f"`{cell.question.target}`",
            cell.question.way,
            cell.question.tier,
            cell.verdict.value if cell.verdict is Verdict.PASS else f"**{cell.verdict.value}**",
            ", ".join(findings),
            cell.canaries,
            f"{tests['passed']} / {tests['failed']} / {tests['skipped']}",
            len(cell.beside),
            as_text(remark),
        )

    def state(self) -> list[str]:
        """How much was asked, and how much of that with the newest state of Plumbline."""
        every = document.questions()
        promised = [one for one in every if document.promised(self.catalog, one)]
        asked = [one for one in self.matrix.cells if one.verdict is not Verdict.UNKNOWN]
        others = len(every) - len(promised)
        kept = len({one.question for one in asked}.intersection(promised))
        # In any tier.
        beyond = len({one.question.of_quick for one in asked}.intersection(every).difference(promised))
        old = sum(one.commit != self.matrix.commit for one in asked)
        unnamed = sum(not one.commit for one in asked)
        lines = [f"{kept} of {len(promised)} promised cells have a verdict, and {beyond} of the {others} others."]
        if old:
            lines.append(f"Of {len(asked)} answers, {old} are from an earlier state of Plumbline than the newest one.")
        if unnamed:
            lines.append(f"This repository does not contain the state of {unnamed}.")
        return [" ".join(lines)]

    def difference_rows(self) -> list[str]:
        """What servers made otherwise showed, and the one that GCC and the GNU C library made did not."""
        rows: dict[tuple[str, str], list[MatrixCell]] = {}
        titles: dict[str, CellFinding] = {}
        compared = 0
        for cell in self.matrix.cells:
            asked = cell.question
            usual = self.matrix.of(_like(asked, COMPARED)) if asked.way not in {COMPARED, "shipped"} else None
            # A cell that is UNKNOWN did not look everywhere, so what it lacks says nothing.
            if usual is None or usual.verdict is Verdict.UNKNOWN or cell.verdict is Verdict.UNKNOWN:
                continue
            compared += 1
            there = {one.id for one in usual.findings}
            for finding in cell.findings:
                if finding.id not in there:
                    rows.setdefault((finding.id, asked.server), []).append(cell)
                    titles[finding.id] = finding
        lines = [f"{compared} cells could be compared.", ""]
        told = [
            (f"`{identity}`", as_text(titles[identity].title), server, self._where(cells), self._links(cells, identity))
            for (identity, server), cells in sorted(rows.items())
        ]
        return lines + (
            table(["finding", "what it says", "server", "where", "bug"], told) if told else ["None differs."]
        )

    def finding_rows(self) -> list[str]:
        """A row for each finding and server."""
        rows: dict[tuple[str, str], list[MatrixCell]] = {}
        for cell in self.matrix.cells:
            for finding in cell.findings:
                rows.setdefault((finding.id, cell.question.server), []).append(cell)
        return table(
            ["finding", "server", "where", "bug"],
            [
                (f"`{identity}`", server, self._where(cells), self._links(cells, identity))
                for (identity, server), cells in sorted(rows.items())
            ],
        )

    def _where(self, cells: list[MatrixCell]) -> str:
        """The targets of each way."""
        by_way: dict[str, list[str]] = {}
        for cell in cells:
            by_way.setdefault(cell.question.way, []).append(cell.question.target)
        return "; ".join(f"{way}: {', '.join(dict.fromkeys(targets))}" for way, targets in by_way.items())

    def _links(self, cells: list[MatrixCell], identity: str) -> str:
        found = [(cell, one) for cell in cells for one in cell.findings if one.id == identity]
        names = sorted({name for cell, one in found for name in bugs_of(cell.question.server, one, self.known)})
        if names:
            return ", ".join(f"[{name}](found/{name}.md)" for name in names)
        reasons = sorted({one.known for _, one in found if one.known})
        return as_text("; ".join(reasons)) if reasons else "**none yet**"


def _like(asked: document.Question, way: Way) -> document.Question:
    return document.Question(server=asked.server, way=way, target=asked.target, tier=asked.tier)


def tables(
    matrix: Matrix | None = None, catalog: Catalog | None = None, known: Mapping[str, Bug] | None = None
) -> dict[str, Callable[[], list[str]]]:
    """The tables of docs/MATRIX.md by their marks; of the stored data by default."""
    made = _Page(
        document.read() if matrix is None else matrix,
        catalog or Catalog(),
        bugs.read_bugs() if known is None else known,
    )
    return {
        "state": made.state,
        "differences": made.difference_rows,
        "servers": made.server_tables,
        "findings": made.finding_rows,
    }
