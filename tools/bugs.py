"""The bugs that docs/found describes, as data: one TOML file beside each page, and the releases' stored answers.

docs/FOUND.md's lists and its table of releases are made from them. It reads and compares, and starts nothing:
tools.found asks the releases.
"""

from __future__ import annotations

import hashlib
import shlex
from datetime import date
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.finding import Scope  # noqa: TC001  msgspec reads it
from harness.core.model import GuestEnvironment, Record, Tier
from harness.core.strict_toml import ROOT, near_names, read_toml
from harness.plan.catalog import Catalog
from harness.report.markdown_table import table
from harness.workflows.mutation_testing.mutations import Edit  # noqa: TC001  msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

FOLDER = ROOT / "docs" / "found"
ANSWERS = ROOT / "measurements" / "found.json"

Section = Literal["crashes", "answers", "reports", "undefined", "older"]
Kind = Literal["alignment", "byte order", "memory order", "width", "undefined behaviour", "memory safety", "logic"]
Answer = Literal["there", "gone", "unclear"]


class Place(Record, frozen=True):
    """Where a release has the bug in its source."""

    server: str = ""
    """The release whose line it is; empty if the page names none."""
    file: str = ""
    function: str = ""
    line: int = 0
    """0: the page names no line."""


class BugCheck(Record, frozen=True):
    """The check that determines whether a release still has the bug: the cell, and the finding that shows the bug."""

    target: str
    suite: str
    finding: str
    """A glob of the finding's id."""
    tests: tuple[str, ...] = ()
    """Parts of names, or globs, of the only tests to run; empty: the whole suite."""
    said: str = "*"
    """A glob of the failed test's whole message, so that another failure of the same test is not mistaken for it."""
    servers: tuple[str, ...] = ()
    """The only releases on which it can run; empty: all."""
    tier: Tier = "quick"
    policy: str = "signal"
    optimisation: str = "O2"
    allocator: Literal["libc", "jemalloc", "guard", "guard-natural"] = "libc"
    toolchain: str = "gcc"
    environment: GuestEnvironment = "usual"

    def command(self, server: str) -> str:
        """The shell command that asks a release."""
        words = ["plumb", "check", "--server", server, "--target", self.target, "--suite", self.suite]
        for test in self.tests:
            words += ["--test", test]
        for field in ("tier", "policy", "optimisation", "allocator", "toolchain", "environment"):
            if (value := getattr(self, field)) != _DEFAULTS[field]:
                words += [f"--{field}", value]
        return shlex.join(words)

    def shown(self, identity: str, said: str) -> bool:
        """Whether a finding with this id and this message is the bug."""
        return fnmatchcase(identity, self.finding) and fnmatchcase(said, self.said)


_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(BugCheck)}


class StreamCheck(Record, frozen=True):
    """How a machine asks a release by a stream of commands, whose answers must differ from the native build's."""

    target: str
    file: str
    """The stream, from the checkout's folder."""
    servers: tuple[str, ...] = ()
    """The only releases on which it can run; empty: all."""

    def command(self, server: str) -> str:
        """The shell command that asks a release."""
        return shlex.join(["plumb", "replay", self.file, "--target", self.target, "--server", server])


class Patch(Record, frozen=True):
    """Our small fix for the newest release that has the bug: `python -m tools.found --diff BUG` prints it."""

    server: str
    edits: tuple[Edit, ...]

    @property
    def digest(self) -> str:
        """Identifies a patch, so that a changed one requires new proof."""
        return hashlib.sha256(json_codec.encode(self)).hexdigest()[:12]


class Unasked(Record, frozen=True):
    """Releases that cannot be checked, although the bug concerns them."""

    servers: tuple[str, ...]
    reason: str


class Bug(Record, frozen=True):
    """docs/found/NAME.toml: what docs/found/NAME.md says, for machines."""

    name: str
    title: str
    """The page's heading."""
    section: Section
    """The section of docs/FOUND.md that lists it."""
    kind: Kind
    """The kind of the cause."""
    scope: Scope
    """`everywhere` if x86-64 has it as well, in the same way; `machine` if machines differ."""
    found: date
    """The date of the page's first commit."""
    has: tuple[str, ...]
    """The releases that have it, according to the page."""
    lacks: tuple[str, ...] = ()
    """The releases that do not, according to the page."""
    by_source: tuple[str, ...] = ()
    """The releases whose source has it, according to the page, and that had not been run when the page was written."""
    machines: str = ""
    """The machines that show it, in the page's words."""
    targets: tuple[str, ...] = ()
    """The targets that show it; empty if the page names none."""
    references: tuple[str, ...] = ()
    """Addresses and CVE numbers under which others know it."""
    fix: str = ""
    """The page's own proposal; empty if it has none."""
    command: str = ""
    """How to reproduce it if no check can: some of the page's commands."""
    places: tuple[Place, ...] = ()
    checks: tuple[BugCheck, ...] = ()
    streams: tuple[StreamCheck, ...] = ()
    unasked: tuple[Unasked, ...] = ()
    patches: tuple[Patch, ...] = ()

    @property
    def ways(self) -> tuple[BugCheck | StreamCheck, ...]:
        """Everything that asks a release for it."""
        return (*self.checks, *self.streams)

    def proofs(self, patch: Patch) -> tuple[BugCheck, ...]:
        """The tests that a release with a patch must pass: the bug's own checks, and their whole suites."""
        own = [check for check in self.checks if not check.servers or patch.server in check.servers]
        return tuple(dict.fromkeys([*own, *(msgspec.structs.replace(check, tests=()) for check in own)]))

    def concerned(self) -> tuple[str, ...]:
        """The releases about which the page says something."""
        return (*self.has, *self.by_source, *self.lacks)

    def why_unasked(self, server: str) -> str:
        """Why a release cannot be checked; empty if it can."""
        if not self.ways:
            return "no check can ask for this bug"
        if found := next((one.reason for one in self.unasked if server in one.servers), ""):
            return found
        if any(not check.servers or server in check.servers for check in self.ways):
            return ""
        return "no check of this bug suits this release"


class StoredAnswer(Record, frozen=True, omit_defaults=True):
    """The result of one check of a release."""

    bug: str
    server: str
    command: str
    """The command of the check. A result is out of date if the data contain another command today."""
    answer: Answer
    reason: str
    """The finding, or why there is no clear answer."""
    date: date
    commit: str = ""
    """As `tools.project.commit` returned it when the check ran. Empty if the history does not contain that commit,
    because its branch was rewritten before it was merged."""
    patch: str = ""
    """The digest of the patch that the release had; empty for the release itself."""


class StoredScope(Record, frozen=True, omit_defaults=True):
    """The class that a whole check of a release gave the findings of a bug (Finding.scope)."""

    bug: str
    server: str
    targets: tuple[str, ...]
    """The targets of the check."""
    scope: Scope
    """`machine` if one of the findings is."""
    findings: tuple[str, ...]
    """Their ids."""
    date: date
    commit: str = ""
    """As in a StoredAnswer."""


class StoredAnswers(Record, frozen=True):
    """measurements/found.json."""

    answers: tuple[StoredAnswer, ...] = ()
    scopes: tuple[StoredScope, ...] = ()


def read_bugs(folder: Path = FOLDER, catalog: Catalog | None = None) -> dict[str, Bug]:
    """Every bug by its name. Raises UsageError for a file that is not valid, or that names what does not exist."""
    catalog = catalog or Catalog()
    bugs = {path.stem: read_toml(path, Bug, name=path.stem) for path in sorted(folder.glob("*.toml"))}
    for bug in bugs.values():
        _check(bug, folder / f"{bug.name}.toml", catalog)
    return bugs


def _check(bug: Bug, path: Path, catalog: Catalog) -> None:
    """Raise UsageError for a bug that contradicts itself, names what does not exist or cannot be reproduced."""
    _check_patches(bug, path)
    _check_names(bug, path, catalog)
    if both := sorted({*bug.has, *bug.by_source} & {*bug.lacks}):
        raise UsageError(
            f"{both[0]} both has and lacks the bug", where=str(path), remedy="remove it from one of the lists"
        )
    for stream in bug.streams:
        if not (ROOT / stream.file).is_file():
            raise UsageError(f"no file '{stream.file}'", where=str(path), remedy="the path begins in the checkout")
    if not bug.ways and not bug.command:
        raise UsageError(
            "nothing says how to reproduce the bug", where=str(path), remedy="add [[checks]], [[streams]] or `command`"
        )


def _check_patches(bug: Bug, path: Path) -> None:
    for patch in bug.patches:
        if patch.server not in {*bug.has, *bug.by_source} or not bug.proofs(patch):
            raise UsageError(
                f"the patch for {patch.server} cannot be proved",
                where=str(path),
                because="the release does not have the bug, or no check asks it for the bug",
                remedy="name a release of `has` and give it one of [[checks]]",
            )


def _check_names(bug: Bug, path: Path, catalog: Catalog) -> None:
    servers = [*bug.concerned(), *(place.server for place in bug.places if place.server)]
    servers += [name for check in bug.ways for name in check.servers]
    servers += [name for unasked in bug.unasked for name in unasked.servers]
    named: dict[str, tuple[list[str], Collection[str]]] = {
        "server": (servers, catalog.servers),
        "target": ([*bug.targets, *(check.target for check in bug.ways)], catalog.targets),
        "suite": ([check.suite for check in bug.checks], catalog.suites),
        "policy": ([check.policy for check in bug.checks], catalog.policies),
    }
    for noun, (names, known) in named.items():
        for name in names:
            if name not in known:
                near = ", ".join(near_names(name, known)) or ", ".join(known)
                raise UsageError(f"no {noun} '{name}'", where=str(path), remedy=f"one of these: {near}")


def read_answers(path: Path = ANSWERS) -> StoredAnswers:
    """The stored answers; none if no release was checked. Raises UsageError for a file that is not valid."""
    if not path.is_file():
        return StoredAnswers()
    try:
        return json_codec.decode(path.read_bytes(), StoredAnswers)
    except msgspec.MsgspecError as error:
        raise UsageError("not a valid list of answers", where=str(path), because=str(error)) from error


def write_answers(stored: StoredAnswers, path: Path = ANSWERS) -> None:
    """Write the answers in the order of bugs, releases and commands, so that changes are easy to read."""
    ordered = sorted(stored.answers, key=lambda one: (one.bug, one.server, one.command, one.patch))
    scopes = sorted(stored.scopes, key=lambda one: (one.bug, one.server))
    text = msgspec.json.encode(StoredAnswers(answers=tuple(ordered), scopes=tuple(scopes)))
    path.write_bytes(msgspec.json.format(text, indent=1) + b"\n")


def contradiction(bug: Bug, answer: StoredAnswer) -> str:
    """How an answer contradicts the data; empty if it does not. An unclear answer contradicts nothing."""
    if answer.patch:
        told = f"{answer.server} with its patch has the bug {bug.name} ({answer.reason}): correct the patch"
        return told if answer.answer == "there" else ""
    claimed = "lacks" if answer.server in bug.lacks else "has" if answer.server in {*bug.has, *bug.by_source} else ""
    if answer.answer == "there" and claimed == "lacks":
        return (
            f"{answer.server} has the bug {bug.name} ({answer.reason}), but `lacks` in docs/found/{bug.name}.toml lists"
            " it: correct the list and the page, or make the check's finding more exact"
        )
    # One of several checks may be silent: each asks for a different trace of the bug.
    if answer.answer == "gone" and claimed == "has" and len(bug.ways) == 1:
        return (
            f"{answer.server} does not show the bug {bug.name}, but docs/found/{bug.name}.toml says that it has it:"
            " correct the list and the page, or the check"
        )
    return ""


def wrong_scope(bug: Bug, seen: StoredScope) -> str:
    """How the class that a check gave contradicts the data; empty if it does not.

    Only `everywhere` is proved: without a proof, a finding is of the class `machine`. A check whose targets all have a
    bug of certain machines, as its native build has, cannot tell it from the others.
    """
    if seen.scope == "machine" or bug.scope == "everywhere" or set(seen.targets) <= set(bug.targets):
        return ""
    return (
        f"a check of {seen.server} on {', '.join(seen.targets)} says that {bug.name} is of the class `{seen.scope}`"
        f" ({', '.join(seen.findings)}), but docs/found/{bug.name}.toml says `{bug.scope}`"
    )


def out_of_date(bug: Bug | None, answer: StoredAnswer) -> str:
    """Why an answer is to a question that the data no longer ask; empty if they do."""
    if bug is None:
        return f"an answer is about {answer.bug}, which is no page of docs/found: remove it"
    if answer.patch:
        asked = [patch for patch in bug.patches if (patch.server, patch.digest) == (answer.server, answer.patch)]
        if any(answer.command == check.command(answer.server) for patch in asked for check in bug.proofs(patch)):
            return ""
        return f"an answer is about a patch of {bug.name} that has changed: python -m tools.found --patched {bug.name}"
    if answer.command in {check.command(answer.server) for check in bug.ways}:
        return ""
    return (
        f"no check of {bug.name} asks {answer.server} by `{answer.command}` now:"
        f" python -m tools.found --server {answer.server} {bug.name}"
    )


def answer_of(stored: StoredAnswers, bug: str, server: str) -> Answer | None:
    """The result of all checks of a bug on a release; None if there were none."""
    answers = {one.answer for one in stored.answers if (one.bug, one.server, one.patch) == (bug, server, "")}
    order: tuple[Answer, ...] = ("there", "unclear", "gone")
    return next((one for one in order if one in answers), None)


def unproved(bug: Bug, stored: StoredAnswers) -> list[str]:
    """The commands that no release with a patch of the bug has passed."""
    passed = {
        (one.server, one.patch, one.command) for one in stored.answers if one.bug == bug.name and one.answer == "gone"
    }
    return [
        check.command(patch.server)
        for patch in bug.patches
        for check in bug.proofs(patch)
        if (patch.server, patch.digest, check.command(patch.server)) not in passed
    ]


def patch_rows(bugs: dict[str, Bug], stored: StoredAnswers) -> list[str]:
    """The table of patches in docs/FOUND.md: what each changes, and what passed with it."""
    rows = []
    for bug in bugs.values():
        for patch in bug.patches:
            files = dict.fromkeys(edit.file for edit in patch.edits)
            lines = sum(edit.replacement.count("\n") + 1 for edit in patch.edits)
            passed = [one for one in stored.answers if (one.bug, one.patch) == (bug.name, patch.digest)]
            proof = "; ".join(f"{one.command.partition('--target ')[2]}: {one.reason}" for one in passed)
            rows.append((f"[{bug.name}](found/{bug.name}.md)", patch.server, ", ".join(files), lines, proof))
    return table(["bug", "release", "changed", "lines", "what passes with it"], rows)


def section_rows(bugs: dict[str, Bug], section: Section) -> list[str]:
    """The links of a section of docs/FOUND.md by class, newest first."""
    rows: list[str] = []
    for scope, heading in SCOPES.items():
        chosen = [bug for bug in bugs.values() if (bug.section, bug.scope) == (section, scope)]
        chosen.sort(key=lambda bug: bug.name)
        chosen.sort(key=lambda bug: bug.found, reverse=True)
        if chosen:
            rows += ["", f"{heading}:", "", *(f"- [{bug.title}](found/{bug.name}.md)" for bug in chosen)]
    return rows[1:]


def scope_rows(bugs: dict[str, Bug], stored: StoredAnswers) -> list[str]:
    """The table of docs/FOUND.md with the classes that whole checks gave, `machine` first, and those of the pages."""
    ordered = sorted(stored.scopes, key=lambda one: (one.server, list(SCOPES).index(one.scope), one.bug))
    return table(
        ["release", "class", "page", "bug", "findings", "targets"],
        [
            (
                one.server,
                one.scope,
                bugs[one.bug].scope if one.bug in bugs else "",
                f"[{one.bug}](found/{one.bug}.md)",
                ", ".join(f"`{identity}`" for identity in one.findings),
                ", ".join(one.targets),
            )
            for one in ordered
        ],
    )


SCOPES: dict[Scope, str] = {"machine": "Machines differ", "everywhere": "On every machine"}
"""Class -> the heading of its bugs in a list."""


LATER = {
    "valkey-8.1.1": date(2025, 4, 23),
    "redis-8.0.2": date(2025, 5, 27),
    "redis-8.0.6": date(2026, 2, 23),
    "valkey-9.1.2": date(2026, 8, 31),
}
"""The releases after redis-7.0.15 (9 January 2024), and their days, from 00-RELEASENOTES."""


def arrival_rows(bugs: dict[str, Bug]) -> list[str]:
    """The bugs that came after redis-7.0.15: which of the later releases has each first, and what shows it there."""
    rows = []
    for bug in bugs.values():
        having = {*bug.has, *bug.by_source}
        if not bug.checks or not having <= LATER.keys():
            continue
        first = min(having, key=lambda server: (LATER[server], server))
        check = next((one for one in bug.checks if not one.servers or first in one.servers), bug.checks[0])
        rows.append((LATER[first], f"[{bug.name}](../found/{bug.name}.md)", first, bug.section, check))
    rows.sort(key=lambda row: (row[0], row[1]))
    return table(
        ["bug", "first here in", "of", "kind", "shown by"],
        [
            (
                link,
                first,
                str(day),
                "crash" if section == "crashes" else "wrong answer",
                f"`{check.suite}` on `{check.target}`",
            )
            for day, link, first, section, check in rows
        ],
    )


CELLS = {"there": "**there**", "gone": "gone", "unclear": "unclear"}


def _cell(bug: Bug, server: str, stored: StoredAnswers) -> str:
    if (answer := answer_of(stored, bug.name, server)) is not None:
        return CELLS[answer]
    if server not in bug.concerned():
        return ""
    said = "lacks" if server in bug.lacks else "source" if server in bug.by_source else "has"
    return f"{said}, n/a" if bug.why_unasked(server) else said


def release_rows(bugs: dict[str, Bug], stored: StoredAnswers, catalog: Catalog | None = None) -> list[str]:
    """The table of docs/FOUND.md: a row for each bug by class, newest first, and a column for each release."""
    servers = list((catalog or Catalog()).servers)
    ordered = sorted(bugs.values(), key=lambda bug: bug.name)
    ordered.sort(key=lambda bug: bug.found, reverse=True)
    ordered.sort(key=lambda bug: list(SCOPES).index(bug.scope))
    rows = [
        (
            f"[{bug.name}](found/{bug.name}.md)",
            bug.scope,
            str(bug.found),
            *(_cell(bug, server, stored) for server in servers),
        )
        for bug in ordered
    ]
    return table(["bug", "class", "found", *servers], rows)
