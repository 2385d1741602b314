"""The tables of a sample: by operator, by file and by suite. Markdown, for the terminal and for docs/RECALL.md."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from harness.report.markdown_table import table
from harness.workflows.mutation_testing.recall.document import JUDGED, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.workflows.mutation_testing.generator.mutants import Mutant
    from harness.workflows.mutation_testing.recall.document import MutantOutcome, NewFinding, RecallDocument

_WRONG_VALUE = "wrong-result-"
_MOST_FINDINGS = 3
_LONGEST_CODE = 100
_WEAKEST = 10


def summary_of(document: RecallDocument) -> str:
    """One sentence: how many are found, and what did not count."""
    dropped = ", ".join(f"{len(document.of(state))} {state}" for state in ("equivalent", "invalid", "unjudged"))
    return f"found: {share_of(document.outcomes)}; beside them {dropped}"


def by_operator(document: RecallDocument) -> list[str]:
    """A row for each operator that made a mutant of the sample."""
    return _grouped("operator", document.outcomes, lambda outcome: outcome.mutant.operator)


def by_file(document: RecallDocument) -> list[str]:
    """A row for each file that a judged mutant changes."""
    judged = document.of(*JUDGED)
    return _grouped("file", judged, lambda outcome: outcome.mutant.file)


def _grouped(head: str, outcomes: Iterable[MutantOutcome], key: Callable[[MutantOutcome], str]) -> list[str]:
    groups: dict[str, list[MutantOutcome]] = collections.defaultdict(list)
    for outcome in outcomes:
        groups[key(outcome)].append(outcome)
    rows = []
    for name, members in sorted(groups.items()):
        states = collections.Counter(outcome.state for outcome in members)
        counts = [states[state] for state in ("equivalent", "invalid", "unjudged")]
        rows.append((f"`{name}`", str(share_of(members)), states["survived"], _not_reached(members), *counts))
    return table([head, "found", "survived", "of these not reached", "equivalent", "invalid", "unjudged"], rows)


def _not_reached(members: Iterable[MutantOutcome]) -> str:
    """How many survivors no test executes: these lack a test, and the others a check of what a test sees."""
    recorded = [outcome.reached for outcome in members if outcome.state == "survived" and outcome.reached is not None]
    return str(recorded.count(False)) if recorded else "–"


def by_suite(document: RecallDocument) -> list[str]:
    """A row for each suite that ran: the mutants that it ran on, and those that it found."""
    ran: collections.Counter[str] = collections.Counter()
    found: collections.Counter[str] = collections.Counter()
    for outcome in document.of(*JUDGED):
        ran.update(outcome.suites)
        found.update({suite for evidence in outcome.found_by for suite in evidence.suites})
    return table(["suite", "mutants", "found"], [(f"`{suite}`", ran[suite], found[suite]) for suite in sorted(ran)])


def weakest(document: RecallDocument) -> list[str]:
    """The pairs of a suite and an operator with the lowest share found; among equal pairs, those with the most mutants
    first.
    """
    ran: collections.Counter[tuple[str, str]] = collections.Counter()
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for outcome in document.of(*JUDGED):
        operator = outcome.mutant.operator
        ran.update((suite, operator) for suite in outcome.suites)
        found.update((suite, operator) for suite in {each for by in outcome.found_by for each in by.suites})
    pairs = sorted(ran, key=lambda pair: (found[pair] / ran[pair], -ran[pair], pair))[:_WEAKEST]
    rows = [(f"`{suite}`", f"`{operator}`", ran[suite, operator], found[suite, operator]) for suite, operator in pairs]
    return table(["suite", "operator", "mutants", "found"], rows)


def by_evidence(document: RecallDocument) -> list[str]:
    """How many of the found mutants that change a function have a finding that names it, by the kind of evidence.

    A header's mutants do not count, because they usually change a structure, which is compiled elsewhere.
    """
    changed = [each for each in document.of("found") if each.mutant.function and each.mutant.file.endswith(".c")]
    rows = []
    for title, placed in (("a place in the code", True), ("a wrong value alone", False)):
        members = [each for each in changed if any(map(_has_place, each.found_by)) == placed]
        rows.append((title, len(members), sum(map(_names_function, members))))
    return table(["what the findings show", "mutants of a function", "a finding names it"], rows)


def _has_place(finding: NewFinding) -> bool:
    """Whether a finding's identity contains a function: that of a wrong value contains the name of a test."""
    return not finding.finding.startswith(_WRONG_VALUE)


def _names_function(outcome: MutantOutcome) -> bool:
    placed = [each.finding for each in outcome.found_by if _has_place(each)]
    return any(f"-{outcome.mutant.function}-" in f"{identity}-" for identity in placed)


def found_rows(document: RecallDocument) -> list[str]:
    """A row for each mutant that was found, with what found it."""
    rows = []
    for outcome in document.of("found"):
        suites = sorted({suite for evidence in outcome.found_by for suite in evidence.suites})
        named = [evidence.finding for evidence in outcome.found_by[:_MOST_FINDINGS]]
        more = len(outcome.found_by) - len(named)
        rows.append(
            (
                f"`{outcome.mutant.name}`",
                ", ".join(outcome.targets),
                ", ".join(suites),
                ", ".join(f"`{name}`" for name in named) + (f" and {more} more" if more else ""),
            )
        )
    return table(["mutant", "targets", "suites", "findings"], rows)


def survivor_rows(document: RecallDocument, said: Mapping[str, str]) -> list[str]:
    """A row for each survivor, with its reason."""
    rows = [
        (f"`{outcome.mutant.name}`", outcome.mutant.place, change_of(outcome.mutant), said.get(outcome.mutant.name, ""))
        for outcome in document.of("survived")
    ]
    return table(["survivor", "place", "change", "why, or the test that finds it"], rows)


def change_of(mutant: Mutant) -> str:
    """The change on one line, as code that fits into the cell of a table."""
    return f"{_as_code(mutant.before)} becomes {_as_code(mutant.after)}"


def _as_code(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    if not line:
        return "nothing"
    shown = line if len(line) <= _LONGEST_CODE else f"{line[:_LONGEST_CODE]} …"
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def outcome_line(outcome: MutantOutcome) -> str:
    """The line that a run prints as soon as a mutant is done."""
    return f"{outcome.state:10} {outcome.mutant.name} ({outcome.mutant.place}, {outcome.seconds:.0f} s): {outcome.why}"


def text_of(document: RecallDocument) -> str:
    """The tables of a run, and its totals."""
    return "\n".join([*by_operator(document), "", *by_suite(document), "", summary_of(document)])


def mutant_counts(mutants: Sequence[Mutant]) -> list[str]:
    """A row for each operator: its mutants, and the files that they change."""
    counts = collections.Counter(mutant.operator for mutant in mutants)
    files = {name: len({mutant.file for mutant in mutants if mutant.operator == name}) for name in counts}
    return table(["operator", "mutants", "files"], [(f"`{name}`", counts[name], files[name]) for name in counts])
