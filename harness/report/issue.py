"""Renders one finding as the text of a bug report for the server's maintainers, who need not know Plumbline."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from harness.core.byte_diff import described
from harness.core.finding import place_in_file
from harness.core.model import Record, level_text
from harness.core.untrusted_text import visible
from harness.judge.findings import ORDER
from harness.report.finding import SUSPECTS_ARE, VALUES_ARE, comparison_rows, frame_in_tree, place_of
from harness.report.formats.markdown import as_code, as_text
from harness.report.markdown_table import table

if TYPE_CHECKING:
    from harness.core.finding import Finding, Frame, Witness
    from harness.judge.findings import Judgement

WRONG_RESULT = "wrong-result"
CONTEXT_LINES = 2
"""Source lines shown before and after the place."""
WHY = {
    "alignment": (
        "The address is not a multiple of the alignment that the instruction requires. In C, the behaviour is "
        "undefined as soon as a pointer is converted to a type for which it is not aligned (C11, 6.3.2.3, paragraph "
        "7). Use `memcpy` for the access: compilers turn it into instructions that the machine allows."
    ),
    "out-of-bounds": "The access lies outside the block that the allocator returned (C11, 6.5.6, paragraph 8).",
    "undefined-": "C leaves the behaviour undefined, and compilers assume that the case does not occur (C11, 3.4.3).",
    "assertion": "One of the server's own assertions failed, which ends the server.",
    ORDER: (
        "It happened while stores became visible to other threads in an order that the architecture allows, and in "
        "none of the runs of the same tests in program order. A release store, a fence or a lock is probably missing."
    ),
    "hang": "The server runs but no longer answers clients.",
}
"""A kind, or its prefix -> a general explanation of the fault. Other kinds explain themselves by their name."""


class ReleaseAnswer(Record, frozen=True):
    """Whether a release has the bug."""

    release: str
    answer: str
    """`has it`, `does not have it`, or `unknown`."""
    why: str = ""


class StockEmulation(Record, frozen=True):
    """Whether the distribution's own QEMU shows the bug."""

    shows: bool
    why_not: str = ""
    commands: list[str] = msgspec.field(default_factory=list)
    """How to build the server and run it there."""


class IssueFacts(Record, frozen=True):
    """The content of a bug report beyond the finding."""

    machines: dict[str, str]
    """Target -> its title, for all targets of the run."""
    server: str
    """The release, or the path of the tree, that was checked."""
    target: str
    """The target on which the finding was reproduced."""
    stream: str
    """The commands, in the text form of streams; empty if no client sends any."""
    commands_before: int
    """Their number in the check."""
    why_not_shorter: str
    options: tuple[str, ...]
    """Options that the server was started with."""
    files: list[str]
    """Files in its folder when it started."""
    releases: list[ReleaseAnswer]
    stock: StockEmulation
    source: dict[int, str]
    """Lines of the file of the finding's place, by number."""
    differences: list[str]
    """The replies of the target and of the native build; empty if the finding is not a wrong reply."""
    command: str
    """The command of the check that shows the finding, without `plumb`."""


def render(judgement: Judgement, finding: Finding, facts: IssueFacts) -> str:
    """The text, GitHub-flavoured."""
    witness = _witness(finding, facts.target)
    parts = [
        [f"# {as_text(judgement.server)}: {as_text(_title(finding, witness, facts))}"],
        _seen(judgement, finding, facts),
        _what_happens(finding, witness, facts),
        _commands(facts),
        _suspects(finding),
        _values(finding),
        _reason(finding),
        _how_to_see_it(facts),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _witness(finding: Finding, target: str) -> Witness:
    return next((one for one in finding.witnesses if one.target == target), finding.witnesses[0])


def _title(finding: Finding, witness: Witness, facts: IssueFacts) -> str:
    """The finding's own title, except for a wrong result, whose title contains every word of the request and the
    reply.
    """
    if finding.kind != WRONG_RESULT:
        return finding.title
    if facts.stream and not facts.why_not_shorter:
        return f"wrong reply to {facts.stream.splitlines()[-1].partition(' ')[0]} on {facts.target}"
    return f"wrong result of {place_of(witness)} on {facts.target}"


def _seen(judgement: Judgement, finding: Finding, facts: IssueFacts) -> list[str]:
    shown = [name for name in facts.machines if name in finding.targets]
    silent = [name for name in facts.machines if name not in finding.targets and _passed(judgement, finding, name)]
    lines = [f"- {as_text(facts.machines[name])}: shows it" for name in shown]
    lines += [f"- {as_text(facts.machines[name])}: the same tests do not show it" for name in silent]
    lines += ["", _made_from(judgement)]
    if facts.releases:
        rows = [(one.release, one.answer, as_text(one.why)) for one in facts.releases]
        lines += [
            "",
            f"The same commands on {facts.target}, release by release:",
            "",
            *table(["release", "answer", "because"], rows),
        ]
    return lines


def _made_from(judgement: Judgement) -> str:
    """How the server was compiled, which a distribution does not say, and how it ran where that is unusual."""
    server = as_text(judgement.server)
    around = [] if judgement.environment == "usual" else [f"environment {judgement.environment}"]
    around += [] if judgement.memory_order == "usual" else [f"memory order {judgement.memory_order}"]
    around += [] if judgement.io == "unix" else [f"clients over {judgement.io.upper()}"]
    if not judgement.optimisation:
        return f"The distribution's own build, {', '.join([server, *around])}."
    level = level_text(judgement.optimisation)
    settings = [as_code(shlex.join(judgement.settings))] if judgement.settings else []
    built = [judgement.toolchain, f"`{level}`", *settings, f"allocator {judgement.allocator}", *around]
    return f"Built from {server} with {', '.join(built)}."


def _passed(judgement: Judgement, finding: Finding, target: str) -> bool:
    suites = {witness.suite for witness in finding.witnesses}
    return any(cell.target == target and cell.suite in suites and cell.passed for cell in judgement.cells)


def _what_happens(finding: Finding, witness: Witness, facts: IssueFacts) -> list[str]:
    lines = ["## What happens", ""]
    place = frame_in_tree(finding)
    where = place_in_file(place.file, place.line) if place else place_of(witness)
    code = f"{as_code(place.function)}, {as_code(where)}" if place else as_code(where)
    if place is not None and place == finding.implicated:
        lines.append(f"{finding.kind}. It points to {code}, which need not be at fault.")
    else:
        lines.append(f"{finding.kind}, {code}" + (f": {as_code(witness.instruction)}" if witness.instruction else ""))
    if witness.access:
        lines += ["", f"Access: {as_text(witness.access)}."]
    if witness.difference is not None and witness.difference.offset >= 0:
        lines += ["", as_text(described(witness.difference))]
    said = next((one.said for one in witness.occasions if one.said), witness.output)
    if told := [visible(line) for line in facts.differences] or visible(said).splitlines():
        lines += ["", *_block("text", told)]
    if place is not None and (shown := _excerpt(place, facts.source)):
        lines += ["", *_block("c", shown)]
    for heading, frames in (("", witness.backtrace), ("The other thread's access:", witness.against)):
        stack = [f"{frame.function} ({place_in_file(frame.file, frame.line)})" for frame in frames]
        lines += [*(["", heading] if heading and stack else [])]
        lines += ["", *_block("text", [visible(line) for line in stack])] if stack else []
    return lines


def _excerpt(place: Frame, source: dict[int, str]) -> list[str]:
    numbers = range(place.line - CONTEXT_LINES, place.line + CONTEXT_LINES + 1)
    shown = [(number, source[number]) for number in numbers if number in source]
    return [f"{'>' if number == place.line else ' '} {number:5} {visible(line)}".rstrip() for number, line in shown]


def _suspects(finding: Finding) -> list[str]:
    """The ranking of functions, if there is one."""
    if not finding.suspects:
        return []
    rows = [
        (as_code(one.function), as_code(place_in_file(one.file, one.line)), f"{one.score:.2f}", as_text(one.why))
        for one in finding.suspects
    ]
    return ["## Suspects", "", SUSPECTS_ARE, "", *table(["function", "place", "score", "because it"], rows)]


def _values(finding: Finding) -> list[str]:
    """Where the values of functions diverge, if they were compared."""
    rows = [f"- {word}: {as_code(text)}" for word, text in comparison_rows(finding.comparison)]
    return ["## Values", "", VALUES_ARE, "", *rows] if rows else []


def _commands(facts: IssueFacts) -> list[str]:
    lines = ["## Commands", ""]
    if facts.options:
        lines += [f"Start the server with {as_code(' '.join(facts.options))}.", ""]
    if facts.files:
        lines += [f"Its folder contains {', '.join(map(as_code, facts.files))} when it starts.", ""]
    if facts.stream:
        count = sum(bool(line.strip()) for line in facts.stream.splitlines())
        fewer = f"The fewest found that show it: {count} of {facts.commands_before} that the check had sent."
        lines += [f"Not shortened: {as_text(facts.why_not_shorter)}." if facts.why_not_shorter else fewer, ""]
        return [*lines, *_block("text", facts.stream.splitlines())]
    return [*lines, f"None: {as_text(facts.why_not_shorter)}."]


def _block(language: str, lines: list[str]) -> list[str]:
    """A fenced block, whose fence is longer than any in it."""
    longest = max((len(line) - len(line.lstrip("`")) for line in lines), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]


def _reason(finding: Finding) -> list[str]:
    why = next((text for kind, text in WHY.items() if finding.kind.startswith(kind)), "")
    return ["## Why", "", why] if why else []


def _how_to_see_it(facts: IssueFacts) -> list[str]:
    lines = ["## See it", "", *_block("sh", [f"plumb {facts.command}"])]
    if facts.stream and not facts.why_not_shorter:
        lines += ["", "With the commands above in `bug.stream`:", ""]
        lines += _block("sh", [f"plumb replay bug.stream --server {shlex.quote(facts.server)} --target {facts.target}"])
    lines += ["", "### Without Plumbline", ""]
    if not facts.stock.shows:
        return [*lines, f"With the distribution's QEMU: {as_text(facts.stock.why_not)}."]
    return [*lines, "The distribution's own QEMU shows it:", "", *_block("sh", facts.stock.commands)]
