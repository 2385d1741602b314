"""Groups findings by their probable cause, and orders them: what to read first, and what may follow from it. Pure.

Findings share a cause if they have a function or a part of a format in common, or if replies to one command are wrong
on the same targets or on some of them. Data races share one if they have functions of both threads in common: where two
threads hand over work without order, all that the work contains is a race. A finding with indirect evidence may follow
from one with direct evidence on the same targets, if they have the same test, function, part of a format or key in
common: a wrong checksum explains a server that refuses its own file. A misaligned access explains no wrong value,
because it changes none, except in the very tests in which it was fatal to a child process. A fault of the crash handler
may follow from every other fault. What the native build shows as well has nothing to do with what only machines show.
Programs that one command ran share nothing, so that no end of one hides another's.
"""

from __future__ import annotations

import itertools
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, get_args

from harness.analysis.crash_reports.assertion_log import UNKNOWN
from harness.analysis.implicated_code import wrongly_answered
from harness.core.finding import Cause, Scope
from harness.core.target_model import Endianness

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.finding import Finding, Frame, Witness
    from harness.core.target_model import Target

_ENDS = ("crash", "exit", "hang")
"""Kinds of findings that show only that a server ended or did not answer."""
_IN_HANDLER = "crash-handler-"
"""The first part of the kind of a fault that occurred while the server reported another one
(harness.judge.sightings.places).
"""
_NOT_RUN = ("build", "warning")
"""Kinds of findings for which no server ran."""
_HARMLESS_TO_VALUES = ("alignment", *_NOT_RUN)
"""Kinds that cannot cause a wrong value: the access is refused or exact, or no server runs."""
_Property = tuple[str, str, frozenset[str]]
"""`function`, `record` or `command`; its name; and the targets on which it counts."""
_ANYWHERE: frozenset[str] = frozenset()
_EVENT_LOOP = "ae.c"
"""The source of Redis' and Valkey's event loop."""
_KINDS = ["build", "alignment", "out-of-bounds", "sigsegv", "sigill"]
"""The first kinds of a rank, in order; all others follow by name."""

FAULT, UNIT, RECORD, REPLY, END = range(5)
"""How direct the evidence is: an instruction, a function that was called in isolation, a part of a format, a reply, an
end.
"""


def directness(finding: Finding) -> int:
    """How directly a finding shows its cause, from FAULT to END."""
    if finding.kind in _ENDS:
        return END
    if finding.kind != "wrong-result":
        return FAULT
    if finding.unit:
        return UNIT
    difference = finding.difference
    return RECORD if difference is not None and (difference.function or difference.offset >= 0) else REPLY


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The findings: new before known, then the most direct evidence, then the worst kind and the most targets.

    Those of the programs below one command come in the order in which the programs ended.
    """

    def rank(finding: Finding) -> tuple[bool, int, int, int, int, str]:
        severity = _KINDS.index(finding.kind) if finding.kind in _KINDS else len(_KINDS)
        return bool(finding.known), finding.ended, directness(finding), severity, -len(finding.targets), finding.id

    return sorted(findings, key=rank)


def causes_of(findings: Sequence[Finding], machines: Mapping[str, Target] | None = None) -> list[Cause]:
    """The causes of findings, in their order. `machines`: all targets of the run, to say what its targets share."""
    causes: list[Cause] = []
    by_id = {finding.id: finding for finding in findings}
    by_scope = ([one for one in ordered(findings) if one.scope == scope] for scope in get_args(Scope))
    for group, shared in itertools.chain.from_iterable(map(_sharing, by_scope)):
        start = group[0]
        head = next((number for number, one in enumerate(causes) if _may_follow(group, by_id[one.start])), None)
        if head is None:
            targets = list(dict.fromkeys(target for one in group for target in one.targets))
            causes.append(
                Cause(
                    title=start.title,
                    where=_where(targets, machines or {}),
                    start=start.id,
                    members=[one.id for one in group[1:]],
                    shared=shared if len(group) > 1 else "",
                    followers=[],
                    known=all(one.known for one in group),
                )
            )
        else:
            causes[head].followers.extend(one.id for one in group)
    return causes


def stored_or_made(stored: Sequence[Cause], findings: Sequence[Finding]) -> list[Cause]:
    """The causes in a document, if they contain each of its findings exactly once; otherwise new ones.

    A document of an earlier version contains none, and one from a stranger may lack findings.
    """
    placed = [identity for cause in stored for identity in (cause.start, *cause.members, *cause.followers)]
    return list(stored) if sorted(placed) == sorted(finding.id for finding in findings) else causes_of(findings)


def _may_follow(group: Sequence[Finding], start: Finding) -> bool:
    """Whether findings may follow from the most direct one of an earlier cause. No new one does from a known one:
    causes with new findings come first.
    """
    if group[0].scope != start.scope or start.ended or any(one.ended for one in group):
        return False
    if all(one.kind.startswith(_IN_HANDLER) for one in group):
        # The handler runs only because of another fault.
        outside = directness(start) == FAULT and not start.kind.startswith((_IN_HANDLER, *_NOT_RUN))
        return outside and all(_seen_on(one) <= set(start.targets) for one in group)
    if start.kind == "alignment" and all(directness(one) > FAULT for one in group):
        # It killed a child of the server in these tests, so the data that the child should have saved or sent are
        # missing.
        tests = set().union(*map(_tests_of, group))
        return bool(tests) and tests <= _tests_of(start, detector="signal")
    return (
        not start.kind.startswith((_IN_HANDLER, *_HARMLESS_TO_VALUES))
        and directness(start) <= RECORD
        and any(_is_linked(one, start) for one in group)
        and all(directness(one) > max(directness(start), UNIT) and _seen_on(one) <= set(start.targets) for one in group)
    )


def _is_linked(one: Finding, start: Finding) -> bool:
    """Whether two findings have a test, a function, a part of a format or a key in common."""
    if _tests_of(one) & _tests_of(start) or _keys_of(one) & _keys_of(start):
        return True
    ours, theirs = (
        {key[:2] for key in _properties(each) if key[0] != "command"} | _functions_of(each) for each in (one, start)
    )
    return bool(ours & theirs)


def _functions_of(finding: Finding) -> set[tuple[str, str]]:
    """The functions on the stacks of a finding, and the one to which it points."""
    frames = [frame for witness in finding.witnesses for frame in witness.backtrace]
    implicated = [finding.implicated] if finding.implicated is not None else []
    return {("function", one.function) for one in [*frames, *implicated] if one.function != UNKNOWN}


def _keys_of(finding: Finding) -> set[tuple[str, str]]:
    """The keys of a finding's commands, each with the suite: every suite has keys of the same names."""
    pairs = ((witness.suite, one.command) for witness in finding.witnesses for one in witness.occasions)
    return {(suite, words[1]) for suite, command in pairs if len(words := command.split()) > 1}


def _tests_of(finding: Finding, *, detector: str = "") -> set[tuple[str, str, str]]:
    """The tests that saw a finding, with target and suite; only those of one detector, if one is named."""
    return {
        (witness.target, witness.suite, occasion.test)
        for witness in finding.witnesses
        if detector in {"", witness.detector}
        for occasion in witness.occasions
    }


def _seen_on(finding: Finding) -> set[str]:
    """The targets whose cells saw a finding: another machine may refuse a file that the cell's target wrote."""
    cells = {cell.partition("/")[0] for witness in finding.witnesses for cell in witness.cells}
    return cells or set(finding.targets)


def _sharing(findings: Sequence[Finding]) -> list[tuple[list[Finding], str]]:
    """The findings, grouped by what they share, with what each group shares."""
    groups: list[tuple[list[Finding], dict[_Property, str]]] = []
    for finding in findings:
        properties = _properties(finding)
        near = [one for one in groups if any(_is_same(mine, its) for mine in properties for its in one[1])]
        if near:
            first = near[0]
            for other in near[1:]:
                first[0].extend(other[0])
                first[1].update(other[1])
                groups.remove(other)
            first[0].append(finding)
            first[1].update(properties)
        else:
            groups.append(([finding], properties))
    return [(ordered(members), _shared(members)) for members, _ in groups]


def _is_same(one: _Property, other: _Property) -> bool:
    """Whether two properties are the same: the targets of a command with a wrong reply may be a subset of the other's.

    If another bug prevents a test on one target, the test shows the wrong reply only on the others.
    """
    return one[:2] == other[:2] and (one[2] <= other[2] or other[2] <= one[2])


def _shared(members: Sequence[Finding]) -> str:
    """A text that says what most members have in common."""
    words = [text for one in members for text in dict.fromkeys(_properties(one).values())]
    return max(dict.fromkeys(words), key=words.count, default="")


def _properties(finding: Finding) -> dict[_Property, str]:
    """A key that findings of the same cause may share -> its text."""
    found: dict[_Property, str] = {}
    difference = finding.difference
    if finding.ended:
        # Every program has a function main.
        return found
    if finding.function not in {"", UNKNOWN}:
        found["function", finding.function, _ANYWHERE] = f"the function {finding.function}"
    if finding.unit:
        found["function", finding.unit, _ANYWHERE] = f"the function {finding.unit}"
    if difference is not None and difference.function:
        found["function", difference.function, _ANYWHERE] = f"the function {difference.function}"
    if difference is not None and difference.offset >= 0:
        record = _without_particulars(difference.record)
        found["record", record, _ANYWHERE] = f"the part '{record}' of a format"
    for one, other in itertools.chain.from_iterable(map(_crossings, finding.witnesses)):
        found["race", f"{one} {other}", _ANYWHERE] = f"the threads in {one} and in {other}"
    if finding.kind == "wrong-result" and not finding.unit and (request := wrongly_answered(finding)):
        word = request.split(maxsplit=1)[0].upper()
        found["command", word, frozenset(finding.targets)] = f"the command {word} on the same targets"
    return found


def _crossings(witness: Witness) -> set[tuple[str, str]]:
    """Each function of the one thread of a data race with each of the other."""
    ours, theirs = _of_work(witness.backtrace), _of_work(witness.against)
    return {(min(one, other), max(one, other)) for one in ours for other in theirs}


def _of_work(stack: Sequence[Frame]) -> set[str]:
    """The functions of a stack, without those that a thread never leaves: its first one, and its event loop's."""
    work = [frame for frame in stack[:-1] if PurePath(frame.file).name != _EVENT_LOOP]
    return {frame.function for frame in [*stack[:1], *work]} - {UNKNOWN}


def _without_particulars(record: str) -> str:
    """`double in sorted set 'z' of database 0` -> `double in sorted set`."""
    return re.split(r" '| of (?:database|key) |\d", record, maxsplit=1)[0].strip() or record


_ORDERS = {order: f"{order}-endian" for order in Endianness}
_WIDTHS = {bits: f"{bits}-bit" for bits in (32, 64)}


def _traits(machine: Target) -> tuple[str, str]:
    return _ORDERS[machine.endianness], _WIDTHS[machine.width_bits]


def _where(targets: Sequence[str], machines: Mapping[str, Target]) -> str:
    """The property that exactly the targets of a cause share, among the targets of the run; otherwise their names."""
    known = {name: machine for name, machine in machines.items() if not machine.emulator.runs_here}
    among = {name for name in targets if name in known}
    for words in (*_WIDTHS.values(), *_ORDERS.values()):
        fitting = {name for name, machine in known.items() if words in _traits(machine)}
        if among == fitting == set(targets) and len(fitting) < len(known):
            return f"on all {words} machines of the run"
    return f"on {', '.join(targets)}"
