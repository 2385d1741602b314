"""Which findings the entries of a known list fit, and which entries fit none.

A finding is known if an entry fits each occasion on which any of its witnesses saw it. One occasion that fits no entry
makes the finding new.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from harness.analysis.source_excerpt import line_at
from harness.judge.known.known_list import KnownFinding, KnownList, concerns
from harness.record import program_launch

if TYPE_CHECKING:
    import datetime
    from collections.abc import Collection, Sequence

    from harness.analysis.source_excerpt import Sources
    from harness.core.finding import Finding, Occasion, Witness


NO_SOURCES: Sources = {}
"""No source line is known."""


def match(
    known: KnownList,
    finding: Finding,
    server: str,
    today: datetime.date,
    *,
    release: str = "",
    sources: Sources = NO_SOURCES,
) -> list[KnownFinding]:
    """The unexpired entries that together fit all occasions of a finding; empty if one occasion fits none.

    `release`: as in `concerns`. `sources`: the lines around the places of the run's findings.
    """
    used: list[KnownFinding] = []
    for witness in finding.witnesses:
        for occasion in witness.occasions:
            fitting = [
                entry
                for entry in known.findings
                if entry.expires >= today
                and concerns(entry, server, release)
                and _fits(entry, finding.id, witness, occasion, sources)
            ]
            if not fitting:
                return []
            used += fitting[:1]
        if not witness.occasions:
            return []
    return [entry for number, entry in enumerate(used) if entry not in used[:number]]


def _fits(entry: KnownFinding, identity: str, witness: Witness, occasion: Occasion, sources: Sources) -> bool:
    return (
        any(fnmatch.fnmatchcase(name, entry.id) for name in (identity, occasion.id) if name)
        and witness.target in entry.targets
        and entry.suite in {"", witness.suite}
        and fnmatch.fnmatchcase(occasion.test, entry.test)
        and fnmatch.fnmatchcase(occasion.command, entry.command)
        and fnmatch.fnmatchcase(occasion.said or occasion.title, entry.said)
        and fnmatch.fnmatchcase(line_at(witness, sources), entry.line)
        and all(fnmatch.filter(occasion.functions, function) for function in entry.via)
    )


def _is_for_anything(entry: KnownFinding) -> bool:
    """Whether an entry says nothing about the findings that it fits, and so would excuse findings that nobody has seen
    yet.
    """
    patterns = (entry.id, entry.suite, entry.test, entry.command, entry.said, entry.line, *entry.via)
    return not any(pattern.strip("*?") for pattern in patterns)


_UNSEEN = " was not seen in this run"


def remarks(
    known: KnownList,
    found: Sequence[Finding],
    server: str,
    targets: Sequence[str],
    today: datetime.date,
    *,
    release: str = "",
    suites: Sequence[str] = (),
    part: bool = False,
    unjudged: Collection[tuple[str, str]] = (),
    sources: Sources = NO_SOURCES,
) -> list[str]:
    """Sentences on the list's upkeep: entries that expired, that fit anything, and that matched nothing in this run.

    `release`, `sources`: as in `match`. `part`: only some tests ran, so entries that matched nothing are not reported.
    `unjudged`: cells without a verdict, target and suite. Entries that one of them may match are not reported, either.
    """
    sentences = []
    for entry in known.findings:
        concerned = concerns(entry, server, release) and not set(entry.targets).isdisjoint(targets)
        about = f"known finding {entry.id} ({entry.release or entry.server})"
        if concerned and entry.expires < today:
            sentences.append(f"{about} expired on {entry.expires}: {entry.reason}")
            continue
        if concerned and _is_for_anything(entry):
            sentences.append(f"{about} fits every finding, whatever it is: give it an id, a test or a command")
        # Another command need not run the program.
        always = not (entry.conditional or entry.intermittent or entry.suite == program_launch.SUITE)
        silent = any(target in entry.targets and entry.suite in {"", suite} for target, suite in unjudged)
        due = concerned and not part and always and entry.suite in {"", *suites} and not silent
        if due and not any(fits_any(entry, finding, sources) for finding in found):
            sentences.append(f"{about}{_UNSEEN}")
    return sentences


def unseen_in(remark: str) -> str:
    """The id, or the glob, of the entry that a sentence of `remarks` reports as unmatched; empty for any other
    sentence.
    """
    found = re.match(rf"known finding (\S+) \(.*\){_UNSEEN}\Z", remark)
    return found[1] if found else ""


def fits_any(entry: KnownFinding, finding: Finding, sources: Sources) -> bool:
    """Whether an entry fits an occasion of a finding. `sources`: as in `match`."""
    return any(
        _fits(entry, finding.id, witness, occasion, sources)
        for witness in finding.witnesses
        for occasion in witness.occasions
    )
