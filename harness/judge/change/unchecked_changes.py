"""The changes of a checkout that no suite checked: RUN/changes.json, beside the evidence, and the cells' verdicts.

A run with an unchecked change never passes, whatever the suites report about the other changes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.core import json_codec
from harness.core.digests import sha256_of
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.judge.change import left_out
from harness.judge.known import tree_list
from harness.record import compiler_warnings, run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.judge.verdict import CellVerdict
    from harness.record.run_record import RunRecord

NAME = "changes.json"


class Change(Record, frozen=True):
    """A changed file, and the suites that it requires."""

    file: str
    suites: list[str]
    why: str
    covering: list[str] = msgspec.field(default_factory=list)
    """The suites that claim to cover the file: one of them must run. If there are none, all of `suites` must run."""
    partial: list[str] = msgspec.field(default_factory=list)
    """Those of `suites` that test a part of the file that no other suite tests."""
    unchecked: bool = False
    """Whether the file matters and no suite checks it."""
    unseen: bool = False
    """Whether git ignores changes to the file, so a change would go unnoticed."""


@contextlib.contextmanager
def noted(folder: Path, changes: Sequence[Change]) -> Iterator[None]:
    """Write changes.json into the folder of the next run, and remove it if the run writes nothing else there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_bytes(json_codec.pretty(list(changes)))
    try:
        yield
    finally:
        if [path] == list(folder.iterdir()):
            path.unlink()


def read(folder: Path) -> list[Change]:
    """The changes that a run checks; empty without changes.json. Raises UsageError for a damaged file."""
    path = folder / NAME
    try:
        return json_codec.decode(path.read_bytes(), list[Change])
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as error:
        raise UsageError("the list of changes is damaged", where=str(path), because=str(error)) from error


def digests(folder: Path) -> dict[str, str]:
    """Evidence that belongs to no cell -> its SHA-256: changes.json, lists of known findings, compilers' warnings."""
    files = [folder / name for name in (NAME, tree_list.OF_TREE, tree_list.OF_BASE)]
    files += [*sorted((folder / compiler_warnings.FOLDER).glob("*.json"))]
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files if path.is_file()}


def broken(folder: Path, run: RunRecord) -> list[str]:
    """A sentence for each file that belongs to no cell and is missing or differs from its recorded digest.

    Excerpts that are missing excuse nothing. Excerpts that the run did not record might.
    """
    excerpts = [f"NOT CHECKED: {source_excerpt.FILE}, which differs from what was recorded"]
    return excerpts * source_excerpt.altered(folder, run) + [
        f"NOT CHECKED: {name}, which {'differs from what was recorded' if (folder / name).is_file() else 'is missing'}"
        for name in run.beside
        if name != source_excerpt.FILE and not run_folder.is_recorded(folder, run, name)
    ]


def foreseen(changes: Sequence[Change], suites: Sequence[str]) -> list[str]:
    """A sentence for each change that none of these suites will check, with the reason."""
    return _sentences(changes, dict.fromkeys(suites, ""))


def remarks(changes: Sequence[Change], cells: Sequence[CellVerdict]) -> list[str]:
    """A sentence for each change that no suite checked, with the reason."""
    return _sentences(changes, _skipped(cells))


def partly(changes: Sequence[Change], cells: Sequence[CellVerdict]) -> list[str]:
    """A sentence for each suite that every target skipped, although only this suite tests a part of the changed
    files.
    """
    skipped = _skipped(cells)
    files: dict[str, list[str]] = {}
    for change in changes:
        for name in change.partial:
            if skipped.get(name):
                files.setdefault(name, []).append(change.file)
    return [
        f"no target ran `{name}`, which alone tests a part of {', '.join(of)}: {skipped[name]}"
        for name, of in files.items()
    ]


def unseen(changes: Sequence[Change]) -> list[str]:
    """A sentence that names the files whose changes git does not report."""
    files = [change.file for change in changes if change.unseen]
    return (
        [f"git does not look for changes in {left_out.named(files)}, so any change there was not checked"]
        if files
        else []
    )


def _skipped(cells: Sequence[CellVerdict]) -> dict[str, str]:
    """Suite -> why no target ran it, or empty."""
    skipped: dict[str, str] = {}
    for cell in cells:
        # A suite counts as run if one target ran it.
        if cell.verdict != Verdict.SKIP or skipped.get(cell.suite) == "":
            skipped[cell.suite] = ""
        else:
            skipped.setdefault(cell.suite, cell.reason or "skipped")
    return skipped


def unentered(run: RunRecord) -> list[str]:
    """A sentence about the code that differs from the base, if no test of any target has entered any of it; else one
    about the edited lines, if no test has executed any of them.
    """
    if not _may_be_entered(run) and (idle := _not_entered(run)):
        return [
            f"NOT CHECKED: no test enters the code that differs from BASE on {targets}: {functions}"
            for (functions, _), targets in idle.items()
        ]
    if _may_be_executed(run):
        return []
    return [
        f"NOT CHECKED: no test executes any changed line on {targets}: {lines}"
        for lines, targets in _not_executed(run).items()
    ]


def partly_entered(run: RunRecord) -> list[str]:
    """A sentence for functions that differ from the base's and that no test is known to have entered, if others were
    entered, or may have been.
    """
    if not _may_be_entered(run):
        return []
    return [
        (
            f"these functions differ from BASE, but no test is known to enter them: {functions} on {targets}; "
            f"they may be inlined{unnoted}"
        )
        for (functions, unnoted), targets in _not_entered(run).items()
    ]


def partly_executed(run: RunRecord) -> list[str]:
    """A sentence for edited lines that no test has executed, if others were executed, or may have been."""
    if unentered(run):
        return []
    return [
        f"no test executes these changed lines: {lines} on {targets}" for lines, targets in _not_executed(run).items()
    ]


def without_effect(run: RunRecord) -> list[str]:
    """A sentence that names the targets on which a change alters nothing, as comments alone do. Changed lines of the
    client, or of the server with TLS, count as an effect.
    """
    same = [target for target, one in run.unentered.items() if not one.of and not one.data_differ and not one.of_beside]
    return [f"the change does not alter the server's code on {', '.join(same)}"] if same else []


def not_compared(run: RunRecord, changes: Sequence[Change]) -> list[str]:
    """A sentence if the code of a checked change could not be compared with the base's."""
    if not run.uncompared or not any(change.suites for change in changes):
        return []
    return [
        (
            "the server's code could not be compared with BASE's on every target, so changed code that no "
            "test enters is not listed"
        )
    ]


def _may_be_entered(run: RunRecord) -> bool:
    """Whether tests may have used something that differs."""
    return any(one.may_be_entered for one in run.unentered.values())


def _may_be_executed(run: RunRecord) -> bool:
    """Whether tests may have executed an edited line, or used what differs and has no line: data, a macro."""
    differing = [one for one in run.unentered.values() if one.of or one.data_differ]
    if differing:
        return not all(one.whole and not one.unnoted and one.of_lines == len(one.lines) > 0 for one in differing)
    # The client, the benchmark and the server with TLS may contain parts of a change that the server lacks.
    beside = [one for one in run.unentered.values() if one.of_beside]
    return not beside or not all(one.whole_beside and one.of_beside == len(one.beside) for one in beside)


def _not_executed(run: RunRecord) -> dict[str, str]:
    """A text that lists the lines that no test executed -> the targets."""
    targets: dict[str, list[str]] = {}
    for target, one in run.unentered.items():
        if lines := [*one.lines, *one.beside]:
            targets.setdefault(left_out.named(_together(lines)), []).append(target)
    return {lines: ", ".join(names) for lines, names in targets.items()}


def _together(lines: Sequence[str]) -> list[str]:
    """`FILE:LINE` in order, with lines that follow each other as one: `FILE:LINE-LINE`."""
    found: list[tuple[str, int, int]] = []
    for file, _, number in (line.rpartition(":") for line in lines):
        line = int(number)
        if found and found[-1][0] == file and found[-1][2] == line - 1:
            found[-1] = (file, found[-1][1], line)
        else:
            found.append((file, line, line))
    return [f"{file}:{first}" + (f"-{last}" if last > first else "") for file, first, last in found]


def _not_entered(run: RunRecord) -> dict[tuple[str, str], str]:
    """Functions that no test is known to have entered, and suites that record no functions, as text -> targets."""
    targets: dict[tuple[str, str], list[str]] = {}
    for target, one in run.unentered.items():
        if one.functions:
            unnoted = f", or {', '.join(one.unnoted)} may enter them" if one.unnoted else ""
            targets.setdefault((left_out.named(one.functions), unnoted), []).append(target)
    return {what: ", ".join(names) for what, names in targets.items()}


def _sentences(changes: Sequence[Change], skipped: Mapping[str, str]) -> list[str]:
    return [f"NOT CHECKED: {change.file} {why}" for change in changes if (why := _why_not(change, skipped))]


def _why_not(change: Change, skipped: Mapping[str, str]) -> str:
    """Why no suite checked a change; empty if one did. `skipped`: suite -> why no target ran it, or empty."""
    if change.unchecked:
        return f"is not tested by any suite: {change.why}"
    if change.covering:
        if any(skipped.get(name) == "" for name in change.covering):
            return ""
        reasons = dict.fromkeys(skipped[name] for name in change.covering if name in skipped)
        *others, last = [f"`{name}`" for name in change.covering]
        names = f"{', '.join(others)} and {last}" if others else last
        return f"is covered only by {names}: {'; '.join(reasons) or 'not run'}"
    # A suite that the release lacks is excused, unless every suite was skipped: then nothing checked the change.
    left = [name for name in change.suites if name not in skipped]
    if not left and change.suites and all(skipped[name] for name in change.suites):
        left = change.suites
    return f"requires suites that did not run: {', '.join(left)}" if left else ""
