"""Findings that a base revision also shows: RUN/inherited.json, beside the evidence. The change did not cause them.

A finding is inherited if the base shows it on the same targets, in the same suites and with the same title. A finding
on another target or in another suite is new. A server that fails to start for another reason is also a new finding. So
is a fault in another source line: an identity names only the function, in which a change may add one. So is another
wrong value in a test that fails in the base. Both are the base's if runs of the base differ in the same way, and so is
whatever value an assertion shows whose values differ among these runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.source_excerpt import line_at
from harness.core import json_codec
from harness.core.byte_diff import by_chance, without_places
from harness.core.digests import sha256_of
from harness.core.errors import UsageError
from harness.core.finding import Finding, Verdict
from harness.core.model import Record
from harness.record import run_folder

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.analysis.source_excerpt import Sources
    from harness.judge.findings import Judgement
    from harness.record.run_record import RunRecord

NAME = "inherited.json"
WITH_DIGEST = 5
"""The first format of runs whose record has the digest of inherited.json."""
_SURE = ("alignment",)
"""Kinds whose source line does not depend on chance. A fault in corrupt memory may come at another line each time."""
WITHOUT_LINES = ("compiler", "suite")
"""Detectors that see no fault of a program."""
_KEEP_TESTS = ("assertion", "wrong-result")
_KEEP_MESSAGES = ("wrong-result",)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


class BaseRevision(Record, frozen=True):
    """The revision that a checkout is compared with."""

    commit: str
    """Its full name."""
    subject: str
    """The first line of its message."""
    why: str
    """The reason for choosing it."""

    def __str__(self) -> str:
        return f"{self.commit[:12]} '{self.subject}' ({self.why})"


class Appearance(Record, frozen=True):
    """One way in which a finding appears, without the parts that differ from run to run."""

    target: str
    suite: str
    title: str
    """The finding's title, with numbers as `#` and files without their folders."""
    test: str = ""
    """The test, without parameters, of a failed assertion or a wrong result; else empty. Titles do not name it."""
    line: str = ""
    """The text of the source line that a fault belongs to, without indentation; empty if there is none."""
    case: str = ""
    """The test of a wrong result with its parameters; else empty, as in files of earlier versions."""
    asserted: str = ""
    """The place of a wrong result's failed assertion in the suite; empty if it is not known."""
    message: str = ""
    """The test's message about a wrong result, with its numbers but without folders and source lines."""


class Baseline(Record, frozen=True):
    """The findings of a base revision, and its cells that could not be judged."""

    base: BaseRevision
    findings: dict[str, list[str]]
    """Identity -> the targets that show it."""
    unjudged: dict[str, str] = msgspec.field(name="untold")
    """TARGET/SUITE -> why the base could not be judged there. A finding of such a cell counts as new."""
    appearances: dict[str, list[Appearance]] = msgspec.field(default_factory=dict, name="ways")
    """Identity -> the ways in which the finding appears."""
    every_line: bool = False
    """Whether the ways of all faults have their source lines. In files of before, only misaligned accesses have."""
    again: dict[str, list[Appearance]] | None = None
    """The same in further runs of the base, which show what is due to chance; None if one run was enough."""
    unbuilt: dict[str, str] = msgspec.field(default_factory=dict)
    """TARGET/SUITE -> why there was nothing to run: the base does not compile for the target. Nothing tells whether
    findings of such a cell are new.
    """


def of_judgement(base: BaseRevision, judgement: Judgement, sources: Sources) -> Baseline:
    """The baseline of a run of the base. Findings of cells without a verdict do not count. `sources`: the base's source
    lines.
    """
    unjudged = {
        f"{cell.target}/{cell.suite}": cell.reason for cell in judgement.cells if cell.verdict == Verdict.UNKNOWN
    }
    found = [_in_judged_cells(finding, unjudged) for finding in [*judgement.findings, *judgement.warnings]]
    unbuilt = {
        cell: finding.title
        for finding in judgement.findings
        if finding.kind == "build"
        for witness in finding.witnesses
        for cell in witness.cells
    }
    return Baseline(
        base=base,
        findings={finding.id: finding.targets for finding in found if finding.targets},
        unjudged=unjudged,
        appearances={finding.id: [*_appearances(finding, sources)] for finding in found if finding.targets},
        every_line=True,
        unbuilt=unbuilt,
    )


def _in_judged_cells(finding: Finding, unjudged: Mapping[str, str]) -> Finding:
    """The finding without the witnesses that only cells without a verdict have."""
    witnesses = [one for one in finding.witnesses if not one.cells or not set(one.cells) <= set(unjudged)]
    witnessed = {one.target for one in witnesses}
    targets = [target for target in finding.targets if target in witnessed]
    return msgspec.structs.replace(finding, targets=targets, witnesses=witnesses)


def _appearances(finding: Finding, sources: Sources, *, every_line: bool = True) -> dict[Appearance, str]:
    """The ways in which a finding appears, each with the first test that showed it so, if any did. `every_line`: as in
    Baseline.

    Assertions and wrong results keep their tests: an audit names the first test that reached an instruction, which
    varies.
    """
    found: dict[Appearance, str] = {}
    pairs = [(witness, occasion) for witness in finding.witnesses for occasion in witness.occasions]
    for witness, occasion in pairs:
        appearance = Appearance(
            target=witness.target,
            suite=witness.suite,
            # The title quotes the message, whose values may vary. The assertion's place says what failed.
            title="" if occasion.asserted else _without_chance(occasion.title),
            test=occasion.test.partition("[")[0] if finding.kind in _KEEP_TESTS else "",
            line=line_at(witness, sources)
            if (every_line or finding.kind in _SURE) and witness.detector not in WITHOUT_LINES
            else "",
            case=occasion.test if finding.kind in _KEEP_MESSAGES else "",
            asserted=occasion.asserted,
            message=without_places(occasion.said or occasion.title) if finding.kind in _KEEP_MESSAGES else "",
        )
        found[appearance] = found.get(appearance) or occasion.test
    return found


def sample_tests(findings: Iterable[Finding], sources: Sources) -> list[str]:
    """Tests that show findings, as words of `--test`, one for each way in which they appear: where a server dies in
    each test, one test of the base may tell that it dies there, too. None, which means all, if a way has no test.
    """
    tests = {test for finding in findings for test in _appearances(finding, sources).values()}
    return sorted(tests) if all(tests) else []


def _without_chance(title: str) -> str:
    """A title without log line prefixes and folders of files, and with `#` for numbers."""
    return _NUMBER.sub("#", without_places(title))


def merged(appearances: Iterable[Mapping[str, list[Appearance]]]) -> dict[str, list[Appearance]]:
    """The ways in which several runs show findings, by identity."""
    found: dict[str, list[Appearance]] = {}
    for each in appearances:
        for identity, ways in each.items():
            found.setdefault(identity, []).extend(ways)
    return found


def together(of_tests: Baseline, of_suites: Baseline, suites: Container[str]) -> Baseline:
    """What a base shows in single tests and then in whole suites. These decide what of them can be judged."""
    left = {cell: why for cell, why in of_tests.unjudged.items() if cell.partition("/")[2] not in suites}
    targets = {
        one: list(dict.fromkeys([*of_tests.findings.get(one, []), *of_suites.findings.get(one, [])]))
        for one in [*of_tests.findings, *of_suites.findings]
    }
    return msgspec.structs.replace(
        of_suites,
        findings=targets,
        unjudged=left | of_suites.unjudged,
        unbuilt=of_tests.unbuilt | of_suites.unbuilt,
        appearances=merged([of_tests.appearances, of_suites.appearances]),
    )


def write(folder: Path, inherited: Baseline) -> None:
    """Write inherited.json, as a cache entry has it."""
    (folder / NAME).write_bytes(json_codec.pretty(inherited))


def keep(folder: Path, inherited: Baseline) -> None:
    """Write a run's inherited.json, and its digest into the run's record: no other run's file counts."""
    write(folder, inherited)
    record = run_folder.read_run(folder)
    beside = {**record.beside, NAME: sha256_of(folder / NAME)}
    run_folder.write_run(folder, msgspec.structs.replace(record, beside=beside))


def of_run(folder: Path, run: RunRecord) -> Baseline | None:
    """A run's inherited.json; None if there is none, or if it is not as it was recorded. Raises UsageError as `read`
    does.
    """
    return read(folder) if run.version < WITH_DIGEST or run_folder.is_recorded(folder, run, NAME) else None


def unrecorded(folder: Path, run: RunRecord) -> list[str]:
    """A sentence if there is an inherited.json that the run did not record: it would excuse findings."""
    is_strange = run.version >= WITH_DIGEST and NAME not in run.beside and (folder / NAME).exists()
    return [f"NOT CHECKED: {NAME}, which differs from what was recorded"] if is_strange else []


def read(folder: Path) -> Baseline | None:
    """Read a folder's inherited.json; None if there is none. Raises UsageError for a damaged one."""
    path = folder / NAME
    try:
        return json_codec.decode(path.read_bytes(), Baseline)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise UsageError("the findings of the base are damaged", where=str(path), because=str(error)) from error


def reason(inherited: Baseline, finding: Finding, sources: Sources) -> str:
    """Why a finding is not due to the change; empty unless the base shows all its appearances in the run. `sources`:
    the run's own source lines.
    """
    here = _appearances(finding, sources, every_line=inherited.every_line)
    known = bool(here) and all(_shows(inherited, finding.id, one) for one in here)
    return _reason(str(inherited.base)) if known else ""


def uncompared(inherited: Baseline, findings: Iterable[Finding], sources: Sources) -> dict[str, set[str]]:
    """The findings of which nothing tells whether they are new -> the cells for which the base does not compile. In
    all other cells the base shows them as well.
    """
    found = {}
    for finding in findings if inherited.unbuilt else ():
        here = [] if finding.known else _appearances(finding, sources, every_line=inherited.every_line)
        left = {f"{one.target}/{one.suite}" for one in here if not _shows(inherited, finding.id, one)}
        if left and left <= inherited.unbuilt.keys():
            found[finding.id] = left
    return found


def is_inherited(finding: Finding, base: str) -> bool:
    """Whether a finding is known because the base shows it. `base`: as in a judgement; empty without a base."""
    return bool(base) and finding.known == _reason(base)


def _reason(base: str) -> str:
    """The reason for which the findings of a base are known. `base`: its commit, and more."""
    return f"also in BASE {base[:12]}"


def undecided(inherited: Baseline, findings: Iterable[Finding], sources: Sources) -> list[Finding]:
    """The findings that only further runs of the base can decide: a failed test that may fail there at times, too; one
    that fails with another message; a fault of chance at another line. `sources`: as of `reason`.
    """
    if inherited.again is not None:
        return []
    found = []
    for finding in findings:
        here = _appearances(finding, sources, every_line=inherited.every_line)
        other = [one for one in here if not _shows(inherited, finding.id, one)]
        any_line = finding.kind not in _SURE
        may_fail_at_times = finding.kind in _KEEP_MESSAGES and not _is_unjudged(inherited, finding)
        if other and (
            may_fail_at_times
            or all(_counterparts(inherited.appearances, finding.id, one, any_line=any_line) for one in other)
        ):
            found.append(finding)
    return found


def _is_unjudged(inherited: Baseline, finding: Finding) -> bool:
    """Whether a cell of a finding could not be judged in the base, or was not built."""
    silent = inherited.unjudged | inherited.unbuilt
    return any(cell in silent for witness in finding.witnesses for cell in witness.cells)


def _shows(inherited: Baseline, identity: str, one: Appearance) -> bool:
    """Whether the base shows a finding in this way."""
    first = _counterparts(inherited.appearances, identity, one)
    further = _counterparts(inherited.again or {}, identity, one)
    if any(not old.case for old in first) or (one.line and further):
        return True
    shown = [*first, *further]
    return _varies(shown, one) or by_chance(one.message, (old.message for old in shown))


def _varies(shown: Sequence[Appearance], one: Appearance) -> bool:
    """Whether the base's failures of an assertion differ among each other, so its values say nothing."""
    return len({old.message for old in shown if old.asserted and old.asserted == one.asserted}) > 1


def _counterparts(
    appearances: Mapping[str, list[Appearance]], identity: str, one: Appearance, *, any_line: bool = False
) -> list[Appearance]:
    """The ways that equal this one except for the test's message, and for the line if that is asked for."""

    def bare(each: Appearance) -> Appearance:
        return msgspec.structs.replace(each, message="", line="" if any_line else each.line)

    alike = [msgspec.structs.replace(bare(one), case=case) for case in (one.case, "")]
    return [old for old in appearances.get(identity, []) if bare(old) in alike]


def remarks(inherited: Baseline, findings: list[Finding], sources: Sources) -> list[str]:
    """Sentences on the comparison: findings that spread to other targets, cells that could not be compared."""
    sentences = []
    for finding in findings:
        old = inherited.findings.get(finding.id, [])
        new = [target for target in finding.targets if target not in old]
        if old and new:
            sentences.append(f"{finding.id} is new on {', '.join(new)}; BASE shows it on {', '.join(old)}")
        elif old and not reason(inherited, finding, sources):
            sentences.append(
                f"{finding.id} is in BASE as well, but here it also has a suite, test, message or source line "
                "that BASE does not show"
            )
    for cell, why in inherited.unjudged.items():
        sentences.append(f"BASE could not be judged on {cell}, so findings there count as new: {why}")
    for cell, why in inherited.unbuilt.items():
        sentences.append(f"BASE could not be tested on {cell}, so nothing tells whether findings there are new: {why}")
    return sentences
