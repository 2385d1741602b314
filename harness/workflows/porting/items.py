"""Merges evidence of every kind into one list, in the order in which a porter meets it. Pure."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import place_in_file
from harness.core.model import Record
from harness.judge.verdict import of_cell, only_canaries_ran
from harness.workflows.porting import makefiles
from harness.workflows.porting.document import BLOCKERS, PortingItem, Rank
from harness.workflows.porting.source_lines import line_of, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.core.finding import Finding, Witness
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict
    from harness.workflows.porting.document import Hint, PortReport, Region, Step, TargetPort

RANKS: tuple[Rank, ...] = typing.get_args(Rank)
REMEDIES: dict[Rank, str] = {
    "start": "it dies before it answers: nothing else can be tried on hardware until this is fixed",
    "fault": "copy the bytes with memcpy into a local, or align the data that the pointer refers to",
    "value": "bytes that are stored or sent need a fixed order and width; the replay compares with the native build",
    "strict": "portable C requires alignment here: the next compiler, or -O3, may choose an instruction that traps",
}
_LINKING = {
    "-latomic": "LDLIBS or FINAL_LIBS += -latomic: this compiler turns 64-bit atomics into library calls",
    "-fcommon": "CFLAGS += -fcommon, or `extern` in the header: GCC 10 and later do not merge tentative definitions",
}


CASTS = {"int-to-pointer-cast", "pointer-to-int-cast"}
"""Warnings that are reported in every file: they are few and usually right."""
LONGEST_COMMAND = 160
EVERYWHERE = "the native build answers as the guest does"
"""The suites' note on a failure that is not the target's: the server is wrong on every machine."""


class Death(Record, frozen=True):
    """How a server ended before it answered, with misaligned accesses raising their signal."""

    target: str
    detail: str
    function: str = ""
    """The function that faulted, if there is a fault record."""
    place: str = ""
    stack: tuple[str, ...] = ()


def of_steps(target: str, steps: Sequence[Step]) -> list[PortingItem]:
    """Obstacles to a build, including those that only the project's additions overcame."""
    found = []
    for step in steps:
        if step.name == "configure" and step.result == "failed":
            # The build continues without jemalloc.
            remedy = "make MALLOC=libc, or configure it by hand"
            title = "jemalloc's configure script fails"
            found.append(PortingItem(rank="note", title=title, targets=[target], detail=[step.detail], remedy=remedy))
        elif step.name in {"compile", "link"} and step.result in {"mended", "failed"}:
            remedies = [remedy for sign, remedy in _LINKING.items() if sign in step.detail]
            mended = "Plumbline's build succeeds with it" if step.result == "mended" else ""
            found.append(
                PortingItem(
                    rank="build",
                    title=f"it does not {step.name}" + (" as it is" if step.result == "mended" else ""),
                    targets=[target],
                    detail=[step.detail, *([mended] if mended and remedies else []), *step.lines],
                    remedy="; ".join(remedies),
                )
            )
    return found


def of_deaths(deaths: Sequence[Death], findings: Sequence[Finding]) -> list[PortingItem]:
    """Failed starts that no finding covers; targets with the same failure share an item."""
    covered = {finding.function for finding in findings}
    by_end: dict[tuple[str, str, str], list[Death]] = {}
    for death in deaths:
        if death.function not in covered or not death.function:
            by_end.setdefault((death.function, death.place, death.detail), []).append(death)
    return [
        PortingItem(
            rank="start",
            title=f"it does not start: it dies in {function}" if function else "it does not start",
            targets=[one.target for one in same],
            place=place,
            detail=[detail, *([" ← ".join(same[0].stack)] if same[0].stack else [])],
            remedy=REMEDIES["start"],
        )
        for (function, place, detail), same in by_end.items()
    ]


def of_findings(
    findings: Sequence[Finding], deaths: Sequence[Death], *, unbuilt: Collection[str] = ()
) -> list[PortingItem]:
    """Findings of the audit and the suites. `unbuilt`: targets whose failed builds `of_steps` shows, in more detail. It
    builds only the plain server, and not the one with TLS, or other programs.
    """
    found = []
    for finding in findings:
        if finding.kind == "build" and set(finding.targets) <= set(unbuilt):
            continue
        fatal = [death for death in deaths if death.function and death.function == finding.function]
        rank: Rank = "start" if fatal else rank_of(finding)
        known = f" (known: {finding.known})" if finding.known else ""
        found.append(
            PortingItem(
                rank=rank,
                title=("it does not start: " if fatal else "") + finding.title + known,
                targets=finding.targets,
                place=f"{finding.file}:{finding.line}" if finding.line else "",
                detail=[*(" ← ".join(one.stack) for one in fatal[:1]), *_detail(finding)],
                remedy=". ".join(_remedies(rank, finding, fatal=bool(fatal))),
                finding=finding.id,
                replay=finding.replay,
            )
        )
    return found


def _remedies(rank: Rank, finding: Finding, *, fatal: bool) -> list[str]:
    ranks: list[Rank] = ["start", "fault"] if fatal else [rank]
    if finding.kind != "alignment":
        # Crashes have no general remedy.
        ranks = [one for one in ranks if one != "fault"]
    return [REMEDIES[one] for one in ranks if one in REMEDIES]


def rank_of(finding: Finding) -> Rank:
    """The rank of a finding. The audit kills nothing for misalignment, so the finding's fate shows what would die."""
    if finding.known or EVERYWHERE in finding.title:
        return "note"
    if finding.kind == "wrong-result":
        return "value"
    if finding.kind == "build":
        return "build"
    if finding.kind != "alignment":
        return "fault"
    return "strict" if all(_is_harmless(one) for one in finding.witnesses) else "fault"


def _is_harmless(witness: Witness) -> bool:
    return witness.detector == "audit" and witness.fate == "hardware"


def _detail(finding: Finding) -> list[str]:
    """Each instruction and line once, and the client's request."""
    lines = []
    for one in finding.witnesses:
        if one.instruction:
            fate = f", {one.fate}" if one.fate else ""
            place = place_in_file(one.file, one.line)
            lines.append(f"{one.target} {place}  {one.instruction}  {one.access}  ({one.count}×{fate})")
        elif one.test:
            lines.append(f"{one.target} {one.suite}: {one.test}")
    if finding.origin not in {"server", "unknown"}:
        lines.append(f"origin {finding.origin}")
    command = [f"after {finding.command:.{LONGEST_COMMAND}}"] if finding.command else []
    return [*list(dict.fromkeys(lines)), *command]


def of_notes(ports: Sequence[TargetPort]) -> list[PortingItem]:
    """Notes that need no change yet, one for all targets; the document's sections list the lines."""
    return [
        *_warnings(ports),
        *(item for port in ports for item in _casts(port)),
        *(item for port in ports for item in _unnamed_machine(port)),
        *_uncompiled(ports),
    ]


def _warnings(ports: Sequence[TargetPort]) -> list[PortingItem]:
    """The compiler's warnings in the server's own files, if there are any."""
    # Those that the audit confirms come first.
    own = sorted((one for port in ports for one in port.hints if one.origin == "server"), key=lambda one: not one.seen)
    hints = {(one.file, one.line, one.warning): one for one in reversed(own)}
    if not hints:
        return []
    title = f"{len(hints)} warnings of the compiler in the server's own files"
    lines = [_hint(one) for one in reversed(hints.values())]
    remedy = "hints, not findings: see Compiler hints"
    return [_note(ports, title, lines, remedy)]


def _casts(port: TargetPort) -> list[PortingItem]:
    """The casts between pointers and integers of another width, if the compiler warns of any."""
    casts = {(one.file, one.line): one.source for one in port.hints if one.warning in CASTS}
    if not casts:
        return []
    files = ", ".join(dict.fromkeys(file for file, _ in sorted(casts)))
    title = f"{len(casts)} casts between a pointer and an integer of another width, in {files}"
    lines = [quoted(f"{file}:{number}", casts[file, number]) for file, number in sorted(casts)]
    remedy = "uintptr_t, or keep the integer whole: a value wider than a pointer loses its upper half"
    return [_note([port], title, lines, remedy)]


def _unnamed_machine(port: TargetPort) -> list[PortingItem]:
    """The special cases of the makefiles for other machines than the target's, if they have none for it."""
    known = makefiles.machines_named(port.assumptions)
    if not known or any(name in port.machine for name in known):
        return []
    title = f"the makefiles have special cases for some machines ({', '.join(known)}), but not for {port.machine}"
    lines = [quoted(f"{one.file}:{one.line}", one.text) for one in port.assumptions if one.kind == "machine"]
    remedy = "the target may need the same settings: see Makefiles"
    return [_note([port], title, lines, remedy)]


def _uncompiled(ports: Sequence[TargetPort]) -> list[PortingItem]:
    """The parts of the source that no target compiled, if there are any."""
    missing = {(one.file, one.first): one for port in ports for one in port.regions if not one.compiled}
    if not missing:
        return []
    title = f"{len(missing)} parts of the source were neither compiled nor tested"
    lines = [_region(one) for one in missing.values()]
    return [_note(ports, title, lines, "read them: see Code that was not compiled")]


def _note(ports: Sequence[TargetPort], title: str, lines: list[str], remedy: str) -> PortingItem:
    return PortingItem(rank="note", title=title, targets=[port.target for port in ports], detail=lines, remedy=remedy)


def _hint(hint: Hint) -> str:
    seen = "misaligned in the audit" if hint.seen else ""
    return quoted(f"{hint.file}:{hint.line}", hint.source, hint.text, seen)


def _region(region: Region) -> str:
    lines = f"{region.first}-{region.last}" if region.last > region.first else f"{region.first}"
    return quoted(f"{region.file}:{lines}", f"#if {region.condition}", region.excerpt)


def with_sources(items: Sequence[PortingItem], files: Mapping[str, str]) -> list[PortingItem]:
    """The items, each with the line at its place."""
    found = []
    for one in items:
        file, _, number = one.place.rpartition(":")
        source = line_of(files, file, int(number)) if number.isdecimal() else ""
        found.append(msgspec.structs.replace(one, source=source))
    return found


def in_order(items: Sequence[PortingItem]) -> list[PortingItem]:
    """Worst first, and within a rank in the order found. One item covers the same problem on several targets."""
    joined: list[PortingItem] = []
    for one in items:
        alike = (number for number, other in enumerate(joined) if _same_but_targets(one, other))
        number = next(alike, None)
        if number is None:
            joined.append(one)
        else:
            targets = list(dict.fromkeys([*joined[number].targets, *one.targets]))
            joined[number] = msgspec.structs.replace(joined[number], targets=targets)
    return sorted(joined, key=lambda one: RANKS.index(one.rank))


def _same_but_targets(one: PortingItem, other: PortingItem) -> bool:
    return msgspec.structs.replace(one, targets=[]) == msgspec.structs.replace(other, targets=[])


def unbuilt(ports: Sequence[TargetPort]) -> list[str]:
    """The targets whose server does not compile or link as it is, according to their steps."""
    return [
        port.target
        for port in ports
        if any(step.name in {"compile", "link"} and step.result != "ok" for step in port.steps)
    ]


def verdict_of(items: Sequence[PortingItem], judgement: Judgement) -> typing.Literal["PASS", "FAIL", "UNKNOWN"]:
    """FAIL with a blocker. Otherwise UNKNOWN if the run or a cell is, because silence is not a clean report, or if a
    cell failed for a reason that no item shows.
    """
    if any(one.rank in BLOCKERS for one in items):
        return "FAIL"
    shown = {one.finding for one in items}
    unclear = (
        not judgement.cells
        or judgement.unchecked
        or only_canaries_ran(judgement.cells)
        or any(
            cell.verdict == "UNKNOWN" or (cell.verdict == "FAIL" and not _is_shown(cell, judgement, shown))
            for cell in judgement.cells
        )
    )
    return "UNKNOWN" if unclear else "PASS"


def _is_shown(cell: CellVerdict, judgement: Judgement, shown: Collection[str]) -> bool:
    """Whether items show why a cell failed."""
    here = of_cell(judgement.findings, cell.target, cell.suite)
    return bool(here) and all(finding.id in shown for finding in here)


def counts(report: PortReport) -> dict[Rank, int]:
    """The number of items of each rank."""
    return {rank: sum(one.rank == rank for one in report.items) for rank in RANKS}
