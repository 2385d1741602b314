"""The judgement on a terminal: the table of targets by suites, the misaligned sites, the findings, the verdict last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from harness.core.byte_diff import described
from harness.core.finding import Verdict, place_in_file
from harness.core.model import level_text
from harness.core.target_model import DEFAULT_FAMILY
from harness.core.untrusted_text import one_line
from harness.isa import rules
from harness.judge.verdict import is_noted_everywhere
from harness.report.finding import (
    SHOWN_SUSPECTS,
    by_place,
    by_reason,
    comparison_lines,
    in_cell,
    place_of,
    reported_by,
    seen_early,
    suspect_lines,
)
from harness.report.misaligned_sites import FATES, counters_text, sites
from harness.report.verdict_sentence import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from harness.core.finding import Finding, Frame
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict

_COLOURS = {"PASS": "green", "FAIL": "red", "UNKNOWN": "yellow", "XFAIL": "cyan", "SKIP": "dim"}
SHOWN_FRAMES = 12
SHOWN_OUTPUT = 8
"""Lines of a program's output that a list of findings shows: the last ones."""
SHOWN_WITNESSES = 6
SHOWN_IDS = 6
SHOWN_CHARACTERS = 300
"""Length of the part of a command that a list of findings shows; `plumb show` shows all of it."""


def show(console: Console, judgement: Judgement) -> None:
    """Print the whole judgement."""
    console.print(_cells_table(judgement))
    for verdict, cells, reason in by_reason(judgement.cells, Verdict.UNKNOWN, Verdict.SKIP):
        colour = _COLOURS[verdict]
        console.print(f"[{colour}]{verdict}[/{colour}] {_escaped(f'{cells}: {reason}')}")
    for target, counters in judgement.kernel_counters.items():
        console.print(f"{one_line(target)}: its kernel counted {one_line(counters_text(counters))}", markup=False)
    _show_misaligned_sites(console, judgement)
    if rules.is_audit(judgement.policy):
        _show_others(console, judgement)
    else:
        _show_causes(console, judgement)
    if judgement.base:
        console.print(f"compared with BASE {one_line(judgement.base)}", markup=False)
    for remark in judgement.remarks:
        console.print(f"note: {one_line(remark)}", markup=False)
    colour = _COLOURS[judgement.verdict]
    if any(cell.verdict == Verdict.XFAIL for cell in judgement.cells):
        console.print("XFAIL: every failure (✗) is known or on every machine; ✓ passed, – skipped", markup=False)
    console.print(
        f"\n[{colour}]{judgement.verdict}[/{colour}]: {_escaped(sentence(judgement))}; "
        f"seed {judgement.seed}, run {_escaped(judgement.run)}",
        soft_wrap=True,
    )


def _escaped(text: str) -> str:
    """A server's text, escaped for the terminal and for rich."""
    return escape(one_line(text))


def _show_misaligned_sites(console: Console, judgement: Judgement) -> None:
    listed = sites(judgement.findings)
    if not listed:
        return
    targets = list(judgement.counters)
    table = Table(title="\nmisaligned accesses, by source line", title_justify="left")
    for heading in ("function", "line", "origin", "access"):
        table.add_column(heading, overflow="fold")
    for target in targets:
        table.add_column(_escaped(target), justify="right")
    for site in listed:
        cells = [
            " ".join([str(site.count_on(name)), *site.fates_on(name)]) if site.fates_on(name) else ""
            for name in targets
        ]
        words = (site.function, site.place, site.finding.origin, ", ".join(site.shapes), *cells)
        table.add_row(*map(_escaped, words))
    console.print(table)
    for fate in dict.fromkeys(one.fate for site in listed for one in site.witnesses if one.fate):
        console.print(f"  {fate}: {FATES[fate]}", markup=False)
    for target, counters in judgement.counters.items():
        console.print(f"  {one_line(target)}: {one_line(counters_text(counters))}", markup=False)


def _cells_table(judgement: Judgement) -> Table:
    """Targets by suites."""
    table = Table(title=_settings_text(judgement), title_justify="left")
    suites = list(dict.fromkeys(cell.suite for cell in judgement.cells))
    for heading in ("target", *map(_escaped, suites)):
        table.add_column(heading)
    for target in dict.fromkeys(cell.target for cell in judgement.cells):
        row = {cell.suite: _cell_text(judgement, cell) for cell in judgement.cells if cell.target == target}
        table.add_row(_escaped(target), *[row.get(suite, "") for suite in suites])
    return table


def _settings_text(judgement: Judgement) -> str:
    """The server, and how it was built and run where that is unusual."""
    level = [_escaped(level_text(judgement.optimisation))] if judgement.optimisation else []
    settings = {
        "allocator": (judgement.allocator, "libc"),
        "toolchain": (judgement.toolchain, DEFAULT_FAMILY),
        "environment": (judgement.environment, "usual"),
        "memory order": (judgement.memory_order, "usual"),
        "io": (judgement.io, "unix"),
        "timeout multiplier": (f"{judgement.timeout_multiplier:g}", "1"),
    }
    unusual = [f"{name} {_escaped(value)}" for name, (value, default) in settings.items() if value != default]
    return "  ".join([_escaped(judgement.server), *level, f"policy {_escaped(judgement.policy)}", *unusual])


def _cell_text(judgement: Judgement, cell: CellVerdict) -> str:
    colour = _COLOURS[cell.verdict]
    counts = (
        f"{cell.passed}✓" + (f" {cell.failed}✗" if cell.failed else "") + (f" {cell.skipped}–" if cell.skipped else "")
    )
    if cell.verdict == Verdict.FAIL and not cell.failed:
        # All tests pass in an audit, whose accesses fail it.
        number = sum(in_cell(one, cell.target, cell.suite) for one in judgement.findings)
        counts += f" {number} finding{'' if number == 1 else 's'}"
    return f"[{colour}]{cell.verdict}[/{colour}] {counts} [dim]{cell.seconds:.0f}s[/dim]"


def _show_causes(console: Console, judgement: Judgement) -> None:
    """Each cause with the finding that shows it most directly; only the ids of the others."""
    in_section = False
    for number, (cause, findings) in enumerate(judgement.findings_by_cause()):
        console.print()
        everywhere = is_noted_everywhere(findings[cause.start])
        if everywhere and not in_section:
            in_section = True
            console.print("[bold]On every machine[/bold] (not a fault of a target)")
        elif number == 0 and not everywhere and len(judgement.findings) > 1:
            console.print("[bold]Start here[/bold]")
        show_finding(console, findings[cause.start], cause.where)
        if cause.members:
            console.print(f"    the same     {_ids(cause.members)}: they share {one_line(cause.shared)}", markup=False)
        if cause.followers:
            many = len(cause.followers)
            text = f"{many} finding{'' if many == 1 else 's'} may follow from this: {_ids(cause.followers)}"
            console.print(f"    {text}", markup=False)


def _show_others(console: Console, judgement: Judgement) -> None:
    """An audit's findings that the table of misaligned sites does not contain, such as a crash or a failed test."""
    for _, findings in judgement.findings_by_cause():
        for finding in findings.values():
            if any(witness.detector != "audit" for witness in finding.witnesses):
                console.print()
                show_finding(console, finding)


def _ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(one_line(one) for one in ids[:SHOWN_IDS]) + more


def show_finding(console: Console, finding: Finding, where: str = "", *, whole: bool = False) -> None:
    """Print one finding; with `whole`, all of its witnesses and all of its stack. `where`: replaces its targets."""
    where = where or f"on {', '.join(finding.targets)}"

    def line(text: str, *, pasted: bool = False) -> None:
        # A terminal that wraps a line by itself still copies it as one.
        console.print(one_line(text), markup=False, soft_wrap=pasted or None)

    console.print(f"[bold red]{_escaped(finding.title)}[/bold red], {_escaped(where)}  ({finding.occurrences}×)")
    if finding.known:
        line(f"    known        {finding.known}")
    line(f"    id           {finding.id}")
    for text in _witness_lines(finding, whole=whole):
        line(text)
    first = finding.witnesses[0]
    if len(first.backtrace) > 1:
        line("    stack        " + " ← ".join(_chain(first.backtrace, whole=whole)))
    if first.against:
        line("    against      " + " ← ".join(_chain(first.against, whole=whole)))
    for text in _code_lines(finding, whole=whole):
        line(text)
    if finding.command:
        cut = not whole and len(finding.command) > SHOWN_CHARACTERS
        shown = finding.command[:SHOWN_CHARACTERS] + "…" if cut else finding.command
        line(f"    command      {shown}", pasted=True)
    line(f"    replay       {finding.replay}", pasted=True)


def _chain(frames: list[Frame], *, whole: bool) -> list[str]:
    """The frames of a stack. Without `whole`, of those of the language's library only what the program called."""
    texts: list[str] = []
    for number, frame in enumerate(frames):
        of_language, caller = _is_of_language(frame), frames[number + 1 : number + 2]
        if whole or not of_language or not caller or not _is_of_language(caller[0]):
            file = Path(frame.file).name if of_language and not whole else frame.file
            texts.append(f"{frame.function} ({place_in_file(file, frame.line)})")
        elif not texts or texts[-1] != "…":
            texts.append("…")
    return texts if whole else texts[:SHOWN_FRAMES]


def _is_of_language(frame: Frame) -> bool:
    """Whether the library of C++, Rust or Go, which is compiled into a program, has the frame."""
    return frame.origin == "libc" and frame.line > 0 and frame.file.startswith("/")


def _witness_lines(finding: Finding, *, whole: bool) -> Iterator[str]:
    """The finding's witnesses. The table of misaligned sites already shows those of an audit: without `whole`, they
    are shown only if there are no others.
    """
    places = by_place(finding.witnesses)
    shown = [one for one in places if one.detector != "audit"] or places[:SHOWN_WITNESSES]
    shown = places if whole else shown
    for witness in shown:
        detail = "  ".join(part for part in (witness.instruction, witness.access, reported_by(witness)) if part)
        if said := "  ".join(part for part in (place_of(witness), detail) if part):
            yield f"    {witness.target:<12} {said}"
        if witness.kernel:
            yield f"    {'':<12} its kernel said {witness.kernel}"
        if witness.difference:
            yield f"    {'':<12} {described(witness.difference)}"
        if witness.unlike:
            yield f"    {'':<12} unlike on the host, {witness.unlike}"
        told = witness.output.splitlines()
        for number, text in enumerate(told if whole else told[-SHOWN_OUTPUT:]):
            yield f"    {'' if number else 'output':<12} {text}"
    if len(shown) < len(places):
        yield f"    {'':<12} and {len(places) - len(shown)} more of the audit"


def _code_lines(finding: Finding, *, whole: bool) -> list[str]:
    """The origin of the code, or the function that the result points to, the suspects, and the place where their values
    diverge.
    """
    place = finding.implicated
    lines = [
        f"    points to    {place.function} ({place_in_file(place.file, place.line)})"
        if place is not None
        else f"    origin       {finding.origin}"
    ]
    lines += [f"    {'' if number else 'reordered':<12} {text}" for number, text in enumerate(seen_early(finding))]
    listed = suspect_lines(finding.suspects if whole else finding.suspects[:SHOWN_SUSPECTS])
    lines += [f"    {'' if number else 'suspects':<12} {text}" for number, text in enumerate(listed)]
    parted = comparison_lines(finding.comparison)
    return lines + [f"    {'' if number else 'values':<12} {text}" for number, text in enumerate(parted)]
