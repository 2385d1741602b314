"""Findings from warnings that a target's compiler gives and the oracle's does not.

Only warnings on alignment and width count. The oracle's machine accepts any address and has longer words, so its
compiler is silent where a target's compiler warns. A warning from both compilers says nothing about the target.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from harness.analysis import symbols
from harness.core.finding import Finding, Frame, Occasion, Verdict, Witness
from harness.core.target_model import ORACLE
from harness.record.compiler_warnings import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.target_model import Target
    from harness.record.compiler_warnings import CompilerReport, Diagnostic
    from harness.record.run_record import RunRecord

KIND = "warning"
SUITE = "warnings"
"""The suite name in a finding's witnesses."""
_KINDS = re.compile(
    # These exclude warnings that depend on what an optimiser happens to know about a value.
    r"cast-align.*|address-of-packed-member|format(?!-(overflow|truncation)).*|overflow|shift-(count|overflow|negative).*"
    r"|int-to-pointer-cast|pointer-to-int-cast"
)


def of_targets_alone(run: RunRecord, reports: Mapping[str, CompilerReport]) -> list[Finding]:
    """A finding for each function and kind of warning that the oracle's compiler does not have, by identity."""
    if ORACLE not in reports or reports[ORACLE].problem:
        return []
    everywhere = {_site(one) for one in reports[ORACLE].warnings}
    groups: dict[str, list[tuple[str, Diagnostic]]] = {}
    for target, report in reports.items():
        for one in report.warnings:
            if _KINDS.fullmatch(one.warning) and _site(one) not in everywhere:
                groups.setdefault(_identity(one), []).append((target, one))
    return [_finding(run, identity, groups[identity]) for identity in sorted(groups)]


def remarks(reports: Mapping[str, CompilerReport], findings: Sequence[Finding]) -> list[str]:
    """The number of warnings of each kind on each target, and the reports that are incomplete."""
    sentences = []
    shown = [(witness.target, finding.title.partition(" ")[0]) for finding in findings for witness in finding.witnesses]
    for target in reports:
        counts = Counter(kind for name, kind in shown if name == target)
        if counts:
            kinds = ", ".join(f"{number} of {kind}" for kind, number in counts.most_common())
            sentences.append(
                f"{target}: compiler warnings that the native build does not have: {kinds} (findings.json: warnings)"
            )
    return sentences + problems(reports)


def looked_at(target: Target) -> bool:
    """Whether to collect a target's compiler warnings. Targets that differ only in detector or machine share another's
    compiler.
    """
    return not target.emulator.has_kernel and not target.emulator.detector


def unanswered(run: RunRecord, reports: Mapping[str, CompilerReport]) -> list[str]:
    """A sentence for each compiler whose report is missing or incomplete. With one of them, the run cannot pass."""
    checked = [name for name in run.targets if looked_at(run.machines[name]) and name != ORACLE]
    why = {
        name: reports[name].problem if name in reports else "not collected" for name in [*checked, ORACLE] if checked
    }
    return [f"NOT CHECKED: the compiler warnings of {name}: {problem}" for name, problem in why.items() if problem]


def verdicts(findings: Sequence[Finding]) -> list[Verdict]:
    """FAIL for each new warning. The findings contain warnings only if warnings must fail."""
    return [Verdict.FAIL for finding in findings if finding.kind == KIND and not finding.known]


def problems(reports: Mapping[str, CompilerReport]) -> list[str]:
    """A sentence for each compiler whose warnings are incomplete, with the reason."""
    incomplete = [(target, report.problem) for target, report in reports.items() if report.problem]
    return [f"{target}: the list of its compiler warnings is incomplete: {problem}" for target, problem in incomplete]


def _site(one: Diagnostic) -> tuple[str, int, str]:
    return one.file, one.line, one.warning


def _identity(one: Diagnostic) -> str:
    return f"{KIND}-{one.warning}-" + re.sub(r"[^A-Za-z0-9_.]+", "_", one.function or one.file)


def _finding(run: RunRecord, identity: str, diagnostics: list[tuple[str, Diagnostic]]) -> Finding:
    first = diagnostics[0][1]
    title = f"{first.warning} in {first.function or first.file}: {first.text}"
    targets = list(dict.fromkeys(target for target, _ in diagnostics))
    return Finding(
        id=identity,
        kind=KIND,
        title=title,
        function=first.function,
        file=first.file,
        line=first.line,
        instruction="",
        access="",
        origin=_origin(first.file),
        targets=targets,
        command="",
        replay=f"plumb check --server {run.server} --target {targets[0]} --suite canary --warnings fail",
        known="",
        witnesses=[_witness(target, one, title) for target, one in diagnostics],
        occurrences=len(diagnostics),
    )


def _witness(target: str, one: Diagnostic, title: str) -> Witness:
    frame = Frame(function=one.function or "??", file=one.file, line=one.line, origin=_origin(one.file), pc=0)
    return Witness(
        target=target,
        suite=SUITE,
        file=one.file,
        line=one.line,
        instruction="",
        access="",
        test="",
        evidence=f"{FOLDER}/{target}.json",
        backtrace=[frame],
        detector="compiler",
        occasions=[Occasion(test="", command="", title=title, said=one.text, functions=(frame.function,))],
    )


def _origin(file: str) -> str:
    """The origin of a file. A relative path is in the tree; an absolute path belongs to the system."""
    return symbols.place_in_tree(file)[1] if file.startswith("/") else symbols.origin_in_tree(file)
