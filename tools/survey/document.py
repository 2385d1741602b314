"""What the survey stores. It starts nothing.

measurements/survey-packages.json: the packages that the rule of `tools.survey.rule` chose, before any of them ran.
measurements/survey.toml: packages that are named, and what explains the findings.
measurements/survey.json: the answers.
"""

from __future__ import annotations

import shlex
from datetime import datetime  # noqa: TC003  msgspec reads it
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.plan.catalog import Catalog
from harness.workflows.programs.build_system import STAGES
from harness.workflows.programs.debian_package import LACKING
from tools.checks import SuiteTally, canaries, tallies, tests, without_places

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement

WRITTEN = ROOT / "measurements" / "survey.toml"
CHOSEN = ROOT / "measurements" / "survey-packages.json"
STORED = ROOT / "measurements" / "survey.json"
SUITE = "bookworm"
"""The suite of Debian that the packages are of: that of the cross compilers, so `--with` has libraries for them."""


_Stored = TypeVar("_Stored")


class Thread(Record, frozen=True):
    """A public report."""

    name: str
    """`marbl/Mash#108`: the repository and the number of the issue at GitHub."""
    about: str
    """What it reports, in a few words."""
    by_hand: tuple[str, ...] = ()
    """Where runs by hand showed it, each a target and a place: `sparc64 key.c:5`. Empty if none did."""
    section: str = ""
    """The section of docs/PROGRAMS.md about these, without `#`."""

    @property
    def link(self) -> str:
        """A link to it, in Markdown."""
        repository, _, number = self.name.partition("#")
        return f"[{self.name}](https://github.com/{repository}/issues/{number})"


class NamedPackage(Record, frozen=True):
    """A package that the survey has because a porter or a public report names it, and not by the rule."""

    name: str
    threads: tuple[Thread, ...] = ()
    """What public reports say about it."""
    targets: tuple[str, ...] = ()
    """The targets, where the report decides; empty: those that the rule gives."""
    configure: tuple[str, ...] = ()
    """Options of its configuration, such as those that do without a library. `{machine}` is what `uname -m` says."""
    make: tuple[str, ...] = ()
    """Words that debian/rules gives make: a goal, or a variable."""
    suite: str = SUITE
    """The suite of Debian; another one where the archive no longer has the file of this one."""


class Reading(Record, frozen=True):
    """What a person found out about a finding."""

    package: str
    finding: str
    """The finding's id, or a glob. Empty: it says why there is no verdict."""
    cause: Literal["program", "test", "busy", "build", "emulator", "archive", "untested"]
    """`program`: a bug of the package. `test`: a mistake of its tests. `busy`: a limit of time on a busy machine.
    `build`: the package's build system. `emulator`: the machine is not imitated well enough. `archive`: the archive
    lacks a file of the source. `untested`: the package has no tests that run a program of its own.
    """
    because: str
    """One sentence."""
    link: str = ""
    """A section of docs/PROGRAMS.md, without `#`; empty if there is none."""
    thread: str = ""
    """The name of the public report that it reproduces; empty if there is none."""
    targets: tuple[str, ...] = ()
    """The targets for which it is true; empty: all."""


class Survey(Record, frozen=True):
    """measurements/survey.toml."""

    tools: tuple[str, ...]
    """Packages that do not count against the rule's libraries: what builds, tests and manuals need on the host."""
    named: tuple[NamedPackage, ...]
    readings: tuple[Reading, ...] = ()

    def reading_of(self, package: str, target: str, finding: str) -> Reading | None:
        """What was found out about a finding, or about a run without a verdict if it is empty; None if nobody has read
        it.
        """
        return next(
            (
                one
                for one in self.readings
                if one.package == package
                and bool(finding) is bool(one.finding)
                and fnmatchcase(finding, one.finding)
                and (not one.targets or target in one.targets)
            ),
            None,
        )


class Package(Record, frozen=True):
    """A source package of the survey."""

    name: str
    version: str
    dependants: int
    """How many binary packages of other sources need one of its binary packages."""
    size_bytes: int
    """The size of its source."""
    libraries: tuple[str, ...]
    """The libraries that it needs, which `--with` fetches where Debian has them for the target."""
    targets: tuple[str, ...]
    suite: str = SUITE
    configure: tuple[str, ...] = ()
    """Options of its configuration."""
    make: tuple[str, ...] = ()
    """Words for make."""
    named: bool = False
    """Whether a public report names it, and the rule does not choose it."""

    @property
    def source(self) -> str:
        """The package, as `plumb deb` takes it."""
        return f"{self.suite}/{self.name}={self.version}"

    @property
    def trials(self) -> list[Trial]:
        """The package on each of its targets."""
        return [Trial(package=self, target=target) for target in self.targets]


class PackageList(Record, frozen=True):
    """measurements/survey-packages.json."""

    indexed: str
    """The day on which the indexes were read, `2026-11-30`."""
    considered: int
    """How many source packages the index has."""
    libraries: int
    """How many of them build a library in C or C++."""
    fitting: int
    """How many of those fit the rule."""
    packages: tuple[Package, ...]

    @property
    def trials(self) -> list[Trial]:
        """What is asked: each package on each of its targets. The smallest sources come first, so that a short run asks
        many.
        """
        ordered = sorted(self.packages, key=lambda one: (one.size_bytes, one.name))
        return [trial for package in ordered for trial in package.trials]


class Trial(Record, frozen=True):
    """A package on a target."""

    package: Package
    target: str

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.package.name}-{self.target}"

    @property
    def words(self) -> list[str]:
        """The command that builds and tests it, without the folders of its tree and its run."""
        # For sparc64 --with would build each library first, before the package's build could say whether it does
        # without.
        given = self.package.libraries if self.target != "sparc64" else ()
        libraries = [word for name in given for word in ("--with", name)]
        machine = _machines()[self.target]
        options = [
            word for one in self.package.configure for word in ("--configure", one.replace("{machine}", machine))
        ]
        options += [word for one in self.package.make for word in ("--make", one)]
        return ["deb", "--target", self.target, *libraries, *options, self.package.source]

    @property
    def command(self) -> str:
        """The same for a shell."""
        return shlex.join(["plumb", *self.words])


@cache
def _machines() -> dict[str, str]:
    return {name: one.machine for name, one in Catalog().targets.items()}


class Fault(Record, frozen=True):
    """A finding of a run."""

    id: str
    title: str
    place: str
    """Its file and line, `murmur3_hash.c:50`; empty if it has none."""
    known: str = ""
    """Why it does not fail the run; empty if it does."""


class Answer(Record, frozen=True):
    """What `plumb deb` said of a package on a target."""

    package: str
    version: str
    target: str
    verdict: Verdict
    exit_code: int
    asked: datetime
    seconds: float
    by: str
    """Plumbline's own commit, as `tools.project.commit` returned it."""
    suites: tuple[SuiteTally, ...] = ()
    """Empty if the command ended without a judgement."""
    faults: tuple[Fault, ...] = ()
    reason: str = ""
    """Why there is no verdict, or why the build failed; empty if the tests ran."""

    @property
    def failing(self) -> list[Fault]:
        """The findings that make it fail."""
        return [one for one in self.faults if not one.known]

    @property
    def programs(self) -> int:
        """How many programs of the target ran in the tests, and passed or failed."""
        counted = tests(self.suites)
        return counted["passed"] + counted["failed"]

    def doubt(self) -> str:
        """Why the verdict is not to be believed; empty if it is. UNKNOWN claims nothing, and needs no proof."""
        if self.verdict is Verdict.UNKNOWN:
            return "" if self.reason else "it does not say why it is UNKNOWN"
        if not canaries(self.suites):
            return "no canary behaved"
        if self.verdict is Verdict.FAIL:
            return "" if self.failing else "it has no finding"
        if self.failing:
            return "the verdict is better than its findings"
        return "" if tests(self.suites)["passed"] else "no program passed"


class Answers(Record, frozen=True):
    """measurements/survey.json."""

    answers: tuple[Answer, ...] = ()

    def of(self, trial: Trial) -> Answer | None:
        """The answer about a package's version on a target; None if it was not asked."""
        wanted = (trial.package.name, trial.package.version, trial.target)
        return next((one for one in self.answers if (one.package, one.version, one.target) == wanted), None)


@cache
def survey(path: Path = WRITTEN) -> Survey:
    """The named packages and the readings. Raises UsageError for a file that is not valid."""
    return read_toml(path, Survey)


def chosen(path: Path = CHOSEN) -> PackageList:
    """The packages. Raises UsageError if they were not chosen yet, and for a file that is not valid."""
    if not path.is_file():
        raise UsageError("no packages are chosen yet", where=str(path), remedy="python -m tools.survey --choose")
    return _decoded(path, PackageList)


def read(path: Path = STORED) -> Answers:
    """The stored answers; none if there is no file.

    Raises UsageError for a file that is not valid, and for a verdict that its own evidence does not carry.
    """
    if not path.is_file():
        return Answers()
    stored = _decoded(path, Answers)
    for one in stored.answers:
        if doubt := one.doubt():
            raise UsageError(
                f"an answer is not to be believed: {doubt}",
                where=f"{path}, {one.package} on {one.target}",
                remedy="remove it, and ask again: python -m tools.survey",
            )
    return stored


def _decoded(path: Path, kind: type[_Stored]) -> _Stored:
    try:
        return json_codec.decode(path.read_bytes(), kind)
    except msgspec.MsgspecError as error:
        raise UsageError("not a valid file of the survey", where=str(path), because=str(error)) from error


def write(document: PackageList | Answers, path: Path) -> None:
    """Write a file, whole or not at all."""
    write_whole(path, msgspec.json.format(json_codec.encode(document), indent=1) + b"\n")


def store(new: Answer, path: Path = STORED) -> None:
    """Put an answer in the place of its predecessor, in the order of packages and targets."""
    others = [one for one in read(path).answers if (one.package, one.target) != (new.package, new.target)]
    answers = sorted([*others, new], key=lambda one: (one.package, one.target))
    write(Answers(answers=tuple(answers)), path)


def judged(
    trial: Trial,
    judgement: Judgement,
    *,
    exit_code: int,
    by: str,
    asked: datetime,
    seconds: float,
    failure: str = "",
) -> Answer:
    """The answer that a judgement gives. `failure`: what the build's output says about its failure."""
    stage = next((one for one in judgement.remarks if one in UNFINISHED), "")
    cells = [without_places(one.reason) for one in judgement.cells if one.verdict is Verdict.UNKNOWN]
    # What the cell says of a build that failed is only that nothing of the target ran.
    why = [stage] if stage else cells
    lacking = [one.partition("; ")[0] for one in judgement.remarks if one.startswith(LACKING)]
    reason = "\n".join([*why, *([failure] if why and failure else []), *(lacking if why else [])])
    return Answer(
        package=trial.package.name,
        version=trial.package.version,
        target=trial.target,
        verdict=judgement.verdict,
        exit_code=exit_code,
        asked=asked,
        seconds=seconds,
        by=by,
        suites=tuple(replace(one, reason=without_places(one.reason)) for one in tallies(judgement.cells)),
        faults=tuple(_fault(one) for one in judgement.findings),
        reason=reason,
    )


UNFINISHED = {words for stage, words in STAGES.items() if stage in {"configure", "build", "untested"}}
"""What a run says if its tests did not run."""


def _fault(finding: Finding) -> Fault:
    place = f"{finding.file}:{finding.line}" if finding.file else ""
    return Fault(id=finding.id, title=finding.title, place=place, known=finding.known)
