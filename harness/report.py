"""The judgement as people and programs read it: a terminal table, findings.json, summary.md, junit.xml."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
from rich.markup import escape
from rich.table import Table

from harness import alignment, codec
from harness.model import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from harness.events import Counters
    from harness.judge import CellVerdict, Judgement
    from harness.model import Finding, Witness

_COLOURS = {"PASS": "green", "FAIL": "red", "UNKNOWN": "yellow", "XFAIL": "cyan", "SKIP": "dim"}
SHOWN_FRAMES = 12
SHOWN_WITNESSES = 6


def write(folder: Path, judgement: Judgement) -> None:
    """All the files of a report, beside the evidence."""
    (folder / "findings.json").write_bytes(codec.pretty(judgement))
    (folder / "summary.md").write_text(markdown(judgement))
    _junit(judgement).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)


def show(console: Console, judgement: Judgement) -> None:
    """The table of targets by suites, the findings under it, the verdict last."""
    suites = list(dict.fromkeys(cell.suite for cell in judgement.cells))
    table = Table(
        title=f"{escape(judgement.server)}  -{judgement.optimisation}  policy {judgement.policy}", title_justify="left"
    )
    table.add_column("target")
    for suite in suites:
        table.add_column(suite)
    for target in dict.fromkeys(cell.target for cell in judgement.cells):
        row = {cell.suite: _cell_text(cell) for cell in judgement.cells if cell.target == target}
        table.add_row(target, *[row.get(suite, "") for suite in suites])
    console.print(table)
    for cell in judgement.cells:
        if cell.verdict == Verdict.UNKNOWN.name:
            console.print(f"[yellow]UNKNOWN[/yellow] {cell.target}/{cell.suite}: {escape(cell.reason)}")
    worklist(console, judgement)
    for finding in judgement.findings if not alignment.is_audit(judgement.policy) else []:
        _show_finding(console, finding)
    for target, counters in judgement.kernel_counters.items():
        console.print(f"{target}: its kernel counted {counters_text(counters)}", markup=False)
    for remark in judgement.remarks:
        console.print(f"note: {remark}", markup=False)
    colour = _COLOURS[judgement.verdict]
    found = f"{len(judgement.findings)} finding{'' if len(judgement.findings) == 1 else 's'}"
    console.print(f"\n[{colour}]{judgement.verdict}[/{colour}]  {found}, seed {judgement.seed}, run {judgement.run}")


_FATES = {
    "kill": "kills even with the kernel's fixup on",
    "fixup": "SIGBUS, or a kernel's fixup repairs it",
    "rotated": "the same, and with neither it loads a rotated word",
    "hardware": "hardware does it",
    "": "",
}


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the porter's worklist: a source line with misaligned accesses, and what they come to where."""

    finding: Finding
    place: str
    witnesses: list[Witness]

    @property
    def count(self) -> int:
        """How often, on all targets together."""
        return sum(one.count for one in self.witnesses)


def sites(findings: list[Finding]) -> list[Site]:
    """Every source line that an audit saw misaligned accesses in: those that kill first, then by how often."""
    by_place: dict[tuple[str, str], list[tuple[Finding, Witness]]] = {}
    for finding in findings:
        for witness in finding.witnesses:
            if witness.detector == "audit":
                place = f"{witness.file}:{witness.line}"
                by_place.setdefault((finding.function, place), []).append((finding, witness))
    found = [
        Site(finding=pairs[0][0], place=place, witnesses=[witness for _, witness in pairs])
        for (_, place), pairs in by_place.items()
    ]
    order = list(_FATES)
    return sorted(found, key=lambda site: (min(order.index(one.fate) for one in site.witnesses), -site.count))


def worklist(console: Console, judgement: Judgement) -> None:
    """The misaligned sites of an audit as a table, and its totals as the kernel counts them."""
    listed = sites(judgement.findings)
    if not listed:
        return
    targets = list(judgement.counters)
    table = Table(title="\nmisaligned accesses, by source line", title_justify="left")
    for heading in ("function", "line", "origin", "access"):
        table.add_column(heading, overflow="fold")
    for target in targets:
        table.add_column(target, justify="right")
    for site in listed:
        shapes = dict.fromkeys(_short(one.access) for one in site.witnesses)
        by_target = {name: [one for one in site.witnesses if one.target == name] for name in targets}
        cells = [
            " ".join([str(sum(one.count for one in ones)), *dict.fromkeys(one.fate for one in ones)]) if ones else ""
            for ones in by_target.values()
        ]
        table.add_row(escape(site.finding.function), site.place, site.finding.origin, ", ".join(shapes), *cells)
    console.print(table)
    seen = dict.fromkeys(one.fate for site in listed for one in site.witnesses if one.fate)
    for fate in seen:
        console.print(f"  {fate}: {_FATES[fate]}", markup=False)
    for target, counters in judgement.counters.items():
        console.print(f"  {target}: {counters_text(counters)}", markup=False)


def _short(access: str) -> str:
    """`load 4` of `load of 4 bytes at 1 mod 4`."""
    return access.partition(" bytes at ")[0].replace(" of ", " ")


def counters_text(counters: Counters) -> str:
    """As /proc/cpu/alignment names them."""
    named = {
        "User": counters.user,
        "Skipped": counters.skipped,
        "Half": counters.half,
        "Word": counters.word,
        "DWord": counters.dword,
        "Multi": counters.multi,
    }
    return "  ".join(f"{name}: {number}" for name, number in named.items())


def _cell_text(cell: CellVerdict) -> str:
    colour = _COLOURS[cell.verdict]
    counts = (
        f"{cell.passed}✓" + (f" {cell.failed}✗" if cell.failed else "") + (f" {cell.skipped}–" if cell.skipped else "")
    )
    return f"[{colour}]{cell.verdict}[/{colour}] {counts} [dim]{cell.seconds:.0f}s[/dim]"


def _show_finding(console: Console, finding: Finding) -> None:
    console.print()
    console.print(
        f"[bold red]{escape(finding.id)}[/bold red]  {escape('known: ' + finding.known) if finding.known else ''}"
    )
    console.print(f"  {finding.title}  ({finding.occurrences}×)", markup=False)
    # What an audit saw stands in its table: here only where nothing else saw it.
    told = [one for one in finding.witnesses if one.detector != "audit"] or finding.witnesses[:SHOWN_WITNESSES]
    for witness in told:
        place = f"{witness.file}:{witness.line}" if witness.file else witness.test
        detail = "  ".join(part for part in (witness.instruction, witness.access, _seen_by(witness)) if part)
        console.print(f"    {witness.target:<12} {place}  {detail}", markup=False)
        if witness.kernel:
            console.print(f"    {'':<12} its kernel said {witness.kernel}", markup=False)
    if len(told) < len(finding.witnesses):
        console.print(f"    {'':<12} and {len(finding.witnesses) - len(told)} more of the audit", markup=False)
    first = finding.witnesses[0]
    if len(first.backtrace) > 1:
        chain = [f"{frame.function} ({frame.file}:{frame.line})" for frame in first.backtrace[:SHOWN_FRAMES]]
        console.print("    stack        " + " ← ".join(chain), markup=False)
    console.print(f"    origin       {finding.origin}", markup=False)
    if finding.command:
        console.print(f"    command      {finding.command}", markup=False)
    console.print(f"    replay       {finding.replay}", markup=False)


def _seen_by(witness: Witness) -> str:
    """What saw it, where it was not the kernel's rule; what has no place in the code tells that by its kind."""
    if not witness.file or witness.detector == "signal":
        return ""
    return f"[{witness.detector} {witness.count}×, {witness.fate}]" if witness.fate else f"[{witness.detector}]"


def markdown(judgement: Judgement) -> str:
    """The same for a job summary."""
    suites = list(dict.fromkeys(cell.suite for cell in judgement.cells))
    lines = [f"# {judgement.server}: {judgement.verdict}", "", f"| target | {' | '.join(suites)} |"]
    lines.append("|---|" + "---|" * len(suites))
    for target in dict.fromkeys(cell.target for cell in judgement.cells):
        row = {cell.suite: cell.verdict for cell in judgement.cells if cell.target == target}
        lines.append(f"| {target} | {' | '.join(row.get(suite, '') for suite in suites)} |")
    lines += [
        f"\n{target}: its kernel counted {counters_text(counters)}"
        for target, counters in judgement.kernel_counters.items()
    ]
    for finding in judgement.findings:
        lines += ["", f"## {finding.id}", "", finding.title, ""]
        lines += [
            f"- {witness.target}: "
            + " ".join(
                part
                for part in (
                    f"`{witness.file}:{witness.line}`",
                    f"`{witness.instruction}`" if witness.instruction else "",
                    witness.access,
                    _seen_by(witness),
                    f"(its kernel said: {witness.kernel})" if witness.kernel else "",
                )
                if part
            )
            for witness in finding.witnesses
        ]
        lines += [f"- origin: {finding.origin}", f"- command: `{finding.command}`", f"- replay: `{finding.replay}`"]
    return "\n".join([*lines, ""])


def _xml_text(text: str) -> str:
    """Without the control characters that XML 1.0 cannot hold, even escaped."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", text)


def _junit(judgement: Judgement) -> ET.ElementTree[ET.Element]:
    suites = ET.Element("testsuites", name=judgement.server)
    for cell in judgement.cells:
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=f"{cell.target}/{cell.suite}",
            tests="1",
            failures=str(int(cell.verdict == "FAIL")),
            errors=str(int(cell.verdict == "UNKNOWN")),
            time=str(cell.seconds),
        )
        case = ET.SubElement(suite, "testcase", classname=cell.target, name=cell.suite, time=str(cell.seconds))
        if cell.verdict in {"FAIL", "UNKNOWN"}:
            texts = [f"{f.id}: {f.title}\n{f.replay}" for f in judgement.findings if cell.target in f.targets]
            kind = "failure" if cell.verdict == "FAIL" else "error"
            ET.SubElement(case, kind, message=_xml_text(cell.reason)).text = _xml_text("\n\n".join(texts))
    return ET.ElementTree(suites)
