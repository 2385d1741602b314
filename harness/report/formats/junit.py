"""junit.xml: one test case per cell, for CI systems. Valid for Jenkins' junit-10.xsd, the strictest schema."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from harness.core.byte_diff import described
from harness.core.ci_streams import in_markup
from harness.core.finding import Verdict, place_in_file
from harness.core.untrusted_text import visible
from harness.judge.verdict import CellVerdict
from harness.report.finding import in_cell
from harness.report.report_format import ReportFormat
from harness.report.verdict_sentence import unjudged

if TYPE_CHECKING:
    from harness.core.finding import Finding
    from harness.judge.findings import Judgement

_CHILDREN = {"FAIL": "failure", "UNKNOWN": "error", "XFAIL": "skipped", "SKIP": "skipped"}
"""Verdict -> element for a CI system. UNKNOWN is an error: the run showed nothing about the server."""


def render(judgement: Judgement) -> str:
    """The document, with its XML declaration."""
    all_cells = [*judgement.cells, *_besides(judgement)]
    root = ET.Element("testsuites", {"name": _text(judgement.server), **_counts(all_cells)})
    for cell in all_cells:
        named = {"name": f"{cell.target}/{cell.suite}", "skipped": str(_number([cell], "skipped"))}
        suite = ET.SubElement(root, "testsuite", {**named, **_counts([cell])})
        properties = ET.SubElement(suite, "properties")
        for name, value in _properties(judgement, cell).items():
            ET.SubElement(properties, "property", name=name, value=_text(value))
        case = ET.SubElement(suite, "testcase", classname=cell.target, name=cell.suite, time=f"{cell.seconds:.3f}")
        if cell.verdict in _CHILDREN:
            found = [finding for finding in judgement.findings if in_cell(finding, cell.target, cell.suite)]
            kinds = " ".join(dict.fromkeys(finding.kind for finding in found))
            child = ET.SubElement(case, _CHILDREN[cell.verdict], message=_text(cell.reason), type=kinds or cell.verdict)
            child.text = _text("\n\n".join(_finding_text(finding) for finding in found))
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n"


def _besides(judgement: Judgement) -> list[CellVerdict]:
    """Rows that count without being cells: compilers' warnings if they must fail, and what the run did not check."""
    warnings = [finding for finding in judgement.findings if finding.kind == "warning"]
    found = []
    for target in dict.fromkeys(target for finding in warnings for target in finding.targets):
        new = [one for one in warnings if target in one.targets and not one.known]
        verdict = Verdict.FAIL if new else Verdict.XFAIL
        found.append(_beside(target, "warnings", verdict, f"{len(new)} findings in what its compiler warns of"))
    if why := unjudged(judgement):
        found.append(_beside("changes", "unchecked", Verdict.UNKNOWN, "; ".join(why)))
    return found


def _beside(target: str, suite: str, verdict: Verdict, reason: str) -> CellVerdict:
    return CellVerdict(
        target=target, suite=suite, verdict=verdict, seconds=0.0, reason=reason, passed=0, failed=0, skipped=0
    )


def _counts(cells: list[CellVerdict]) -> dict[str, str]:
    return {
        "tests": str(len(cells)),
        "failures": str(_number(cells, "failure")),
        "errors": str(_number(cells, "error")),
        "time": f"{sum(cell.seconds for cell in cells):.3f}",
    }


def _number(cells: list[CellVerdict], child: str) -> int:
    return sum(_CHILDREN.get(cell.verdict) == child for cell in cells)


def _properties(judgement: Judgement, cell: CellVerdict) -> dict[str, str]:
    return {
        "server": judgement.server,
        "policy": judgement.policy,
        "optimisation": judgement.optimisation,
        "environment": judgement.environment,
        "memory-order": judgement.memory_order,
        "io": judgement.io,
        "seed": str(judgement.seed),
        "passed": str(cell.passed),
        "failed": str(cell.failed),
        "skipped": str(cell.skipped),
    }


def _finding_text(finding: Finding) -> str:
    place = f"{place_in_file(finding.file, finding.line)} in {finding.function}" if finding.file else ""
    differs = described(finding.difference) if finding.difference else ""
    told = (witness.output for witness in finding.witnesses)
    lines = (f"{finding.id}: {finding.title}", place, differs, finding.command, finding.replay, *told)
    return "\n".join(line for line in lines if line)


def _text(text: str) -> str:
    """The text with control characters as visible escapes. XML 1.0 excludes most, even escaped (section 2.2)."""
    return visible(text)


FORMAT = ReportFormat(name="junit", file="junit.xml", render=lambda _, judgement: render(judgement), guard=in_markup)
