"""The result as a document, and as tables for docs/TESTS.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.report.markdown_table import table
from tools.harness_mutants.journal import Entry, Stage  # noqa: TC001 - records decode into them
from tools.harness_mutants.sample import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from pathlib import Path

    from tools.harness_mutants.journal import Journal
    from tools.harness_mutants.operators import Mutant

FOLDER = ROOT / "measurements"
STORED = FOLDER / "harness-mutants.json"
REASONS = FOLDER / "harness-mutants.toml"
RUNS: dict[str, tuple[Stage, ...]] = {
    "ci/test --quick": ("covering", "quick"),
    "ci/test": ("covering", "quick", "end_to_end"),
    "ci/test --all": ("covering", "quick", "end_to_end", "slow"),
}
"""A command, and the stages of its tests."""


class JudgedMutant(Record, frozen=True):
    """A mutant and what its stages showed."""

    name: str
    line: int
    before: str
    after: str
    stages: list[Entry]

    @property
    def package(self) -> str:
        """The package of the harness that it changes."""
        return self.name.split("/")[1]

    @property
    def is_undecided(self) -> bool:
        """Whether tests of `ci/test --quick` may still kill it that have not run."""
        return not any(entry.state == "killed" or entry.stage == "quick" for entry in self.stages)

    def killed_by(self, command: str) -> str:
        """The test that kills it among those of a command; empty if none does."""
        return next((one.by for one in self.stages if one.state == "killed" and one.stage in RUNS[command]), "")


class MutantsDocument(Record, frozen=True):
    """measurements/harness-mutants.json."""

    commit: str
    seed: int
    mutants: list[JudgedMutant]
    tried: list[str] = msgspec.field(default_factory=list)
    """The files of the tests on servers and of the costly tests that have run on those that survived the others."""


class Survivor(Record, frozen=True):
    """A recorded explanation of a mutant that survived."""

    mutant: str
    reason: str = ""
    """Why no test notices it."""
    test: str = ""
    """The test that notices it since."""
    slow: bool = False
    """Whether only `ci/test --all` runs that test."""
    same: bool = False
    """Whether the reason shows that the mutant behaves like the original."""


class SurvivorList(Record, frozen=True):
    """measurements/harness-mutants.toml."""

    survivors: list[Survivor]


def document(commit: str, seed: int, sample: Iterable[Mutant], journal: Journal) -> MutantsDocument:
    """What is known of a sample: the mutants for which some tests have run."""
    stages: tuple[Stage, ...] = RUNS["ci/test --all"]
    judged = []
    tried: set[str] = set()
    for one in sample:
        entries = [entry for stage in stages if (entry := journal.get(one.name, stage)) is not None]
        if entries:
            tried.update(file for entry in entries if entry.stage == "end_to_end" for file in entry.files)
            entries = [msgspec.structs.replace(entry, files=[]) for entry in entries]
            judged.append(
                JudgedMutant(name=one.name, line=one.line, before=one.before, after=one.after, stages=entries)
            )
    return MutantsDocument(commit=commit, seed=seed, mutants=judged, tried=sorted(tried))


def read_document(path: Path = STORED) -> MutantsDocument:
    """The stored document."""
    return json_codec.decode(path.read_bytes(), MutantsDocument)


def shares(found: MutantsDocument) -> list[str]:
    """A row for each package: its mutants, how many each command kills, and of how many that is unknown."""
    stages = {entry.stage for one in found.mutants for entry in one.stages}
    rows = [
        _shares(f"`{package}`", [one for one in found.mutants if one.package == package], stages)
        for package in PACKAGES
    ]
    heads = ["package", "mutants", *(f"killed by `{command}`" for command in RUNS), "undecided"]
    return table(heads, [*rows, _shares("all", found.mutants, stages)])


def share_rows() -> list[str]:
    """docs/TESTS.md's tables: what was measured, and what the tests kill that were written for the survivors."""
    found, said = read_document(), reasons()
    every = files_on_servers(ROOT)
    tried = len(every.intersection(found.tried))
    sentence = (
        f"The columns `then` were measured at commit {found.commit}, with {tried} of the {len(every)} files of tests\n"
        "on servers and of costly tests. The columns `now` add tests that were written for survivors and seen to\n"
        "fail on them. Mutants that are `alike` behave like the original. Nothing notices the `others`."
    )
    return [*shares_since(found, said, every), "", sentence]


def shares_since(found: MutantsDocument, said: SurvivorList, on_servers: Container[str]) -> list[str]:
    """A row for each package: the mutants that two commands killed, that each command kills now, that behave like the
    original, and the others.
    """
    known = {one.mutant: one for one in said.survivors}

    def kills(one: JudgedMutant, command: str) -> bool:
        since = known.get(one.name, Survivor(mutant=one.name))
        has = {
            "ci/test --quick": not since.slow and since.test.partition("::")[0] not in on_servers,
            "ci/test": not since.slow,
            "ci/test --all": True,
        }
        return bool(one.killed_by(command)) or (since.test != "" and has[command])

    def row(title: str, mutants: Sequence[JudgedMutant]) -> tuple[object, ...]:
        before = [sum(one.killed_by(command) != "" for one in mutants) for command in ("ci/test --quick", "ci/test")]
        now = [sum(kills(one, command) for one in mutants) for command in RUNS]
        same = sum(one.name in known and known[one.name].same for one in mutants)
        parts = [f"{each} ({100 * each / max(len(mutants), 1):.0f} %)" for each in (*before, *now)]
        return (title, len(mutants), *parts, same, len(mutants) - now[-1] - same)

    rows = [row(f"`{name}`", [one for one in found.mutants if one.package == name]) for name in PACKAGES]
    heads = ["package", "mutants", "`--quick` then", "`ci/test` then", "`--quick` now", "`ci/test` now", "`--all` now"]
    return table([*heads, "alike", "others"], [*rows, row("all", found.mutants)])


def files_on_servers(root: Path) -> set[str]:
    """The files of tests that `ci/test` has, and `ci/test --quick` has not or not whole."""
    tests = root / "tests"
    costly = [path for path in (tests / "unit").rglob("test_*.py") if "pytest.mark.costly" in path.read_text("utf-8")]
    paths = [*(tests / "end_to_end").rglob("test_*.py"), *costly]
    return {path.relative_to(root).as_posix() for path in paths}


def _shares(title: str, mutants: Sequence[JudgedMutant], stages: Container[Stage]) -> tuple[object, ...]:
    """A row. The share of a command is at least this one, as long as mutants are undecided."""
    shown = []
    for command, needed in RUNS.items():
        killed = sum(one.killed_by(command) != "" for one in mutants)
        share = f"{killed} ({100 * killed / max(len(mutants), 1):.0f} %)"
        # Of what did not run, nothing is known.
        shown.append(share if needed[-1] in stages or needed[-1] == "quick" else "not run")
    return (title, len(mutants), *shown, sum(one.is_undecided for one in mutants))


def survivors(found: MutantsDocument, said: SurvivorList) -> list[str]:
    """A row for each mutant that no test notices."""
    known = {one.mutant: one for one in said.survivors}
    rows = []
    for one in found.mutants:
        if not one.is_undecided and not one.killed_by("ci/test --all"):
            note = known.get(one.name)
            words = "" if note is None else note.reason or f"`{note.test}`"
            rows.append((f"`{one.name}`", f"`{_line(one.before)}`", f"`{_line(one.after)}`", words))
    return table(["mutant", "before", "after", "why it survived, or the test added"], rows)


def unexplained(found: MutantsDocument, said: SurvivorList) -> list[str]:
    """The survivors of which nothing is said."""
    known = {one.mutant for one in said.survivors}
    decided = [one for one in found.mutants if not one.is_undecided]
    return [one.name for one in decided if not one.killed_by("ci/test --all") and one.name not in known]


def reasons(path: Path = REASONS) -> SurvivorList:
    """The recorded explanations."""
    return read_toml(path, SurvivorList)


def _line(text: str) -> str:
    words = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return words if len(words) <= 60 else f"{words[:57]}…"
