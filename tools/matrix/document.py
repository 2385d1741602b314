"""measurements/matrix.json: the stored answer of each cell, and which cells there are. It starts nothing."""

from __future__ import annotations

import shlex
from datetime import datetime  # noqa: TC003  msgspec reads it
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from harness.build.sources.server_package import package_named
from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import DEFAULT_OPTIMISATION, Record, Tier
from harness.core.strict_toml import ROOT
from harness.core.target_model import DEFAULT_FAMILY
from harness.judge.verdict import overall
from harness.plan.catalog import Catalog
from tools import question_options
from tools.checks import CellFinding, SuiteTally, canaries, seen, tallies, tests

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.finding import Finding, Witness
    from harness.core.target_model import Target
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict

STORED = ROOT / "measurements" / "matrix.json"
SERVERS = (
    "redis-7.0.15",
    "valkey-9.1.2",
    "redis-8.0.6",
    "valkey-8.1.1",
    "debian:bookworm/redis-server",
    "debian:trixie/valkey-server",
)
"""The current releases, and what a distribution ships of them. They are asked in this order."""
ARCHITECTURES = {
    "bookworm": ("amd64", "arm64", "armel", "armhf", "i386", "mips64el", "mipsel", "ppc64el", "s390x"),
    "trixie": ("amd64", "arm64", "armel", "armhf", "i386", "ppc64el", "riscv64", "s390x"),
}
"""Suite -> its architectures, by its Release file (dists/SUITE/InRelease)."""
SEED = "1"

Way = Literal["gcc", "clang-musl", "clang-glibc", "gcc-lto", "shipped"]
"""How a server is made: by a family of toolchains; by GCC with link-time optimisation; or by a distribution."""
WAYS: tuple[Way, ...] = get_args(Way)
FIRST: tuple[tuple[Way, ...], ...] = (("gcc", "clang-musl"), ("shipped",))
"""The ways that are asked before the others: the two that differ most, then what needs no compiler."""


PROMISED_BESIDE = ("armv7-time64", "s390x")
"""Targets for which the page promises an answer, beside the required ones: times of 64 bits in words of 32, and a
big-endian machine of 64 bits that permits misaligned accesses."""
PROMISED_WAYS: tuple[Way, ...] = ("gcc", "clang-musl", "gcc-lto")
"""The ways for which the page promises an answer of the tier `quick` for each release."""


class Question(Record, frozen=True):
    """One cell of the matrix: a release, how it is made, and the machine that runs it."""

    server: str
    way: Way
    target: str
    tier: Tier = "quick"

    @property
    def of_quick(self) -> Question:
        """The same in the tier `quick`, by which the matrix counts its cells."""
        return msgspec.structs.replace(self, tier="quick")

    @property
    def command(self) -> str:
        """The command that asks it alone, for a shell."""
        return Check((self,)).command


class Check(Record, frozen=True):
    """Questions that one command asks at once: of one server, made in one way, on several machines, in one tier."""

    questions: tuple[Question, ...]

    @property
    def words(self) -> list[str]:
        """The command that asks, without the folder of its run."""
        of_all = self.questions[0]
        words = ["check", "--server", of_all.server]
        for one in self.questions:
            words += ["--target", one.target]
        words += ["--tier", of_all.tier]
        if of_all.way == "gcc-lto":
            words += ["--optimisation", f"{DEFAULT_OPTIMISATION}-lto"]
        elif of_all.way not in {DEFAULT_FAMILY, "shipped"}:
            words += ["--toolchain", of_all.way]
        return [*words, "--seed", SEED]

    @property
    def command(self) -> str:
        """The same for a shell."""
        return shlex.join(["plumb", *self.words])

    @property
    def name(self) -> str:
        """A name for its folder."""
        of_all = self.questions[0]
        words = [of_all.server, of_all.way, of_all.tier, *(one.target for one in self.questions)]
        return "-".join(words).replace(":", "-").replace("/", "-")


class MatrixCell(Record, frozen=True):
    """A cell's stored answer."""

    question: Question
    verdict: Verdict
    asked: datetime
    seconds: float
    """What its suites took together; without a judgement, what the check took."""
    commit: str = ""
    """As `tools.project.commit` returned it when the check ran. Empty if the history does not contain that commit,
    because its branch was rewritten before it was merged."""
    beside: tuple[str, ...] = ()
    """The other targets of its check. Their servers have exchanged files with this one's."""
    suites: tuple[SuiteTally, ...] = ()
    """Empty if the check ended without a judgement."""
    findings: tuple[CellFinding, ...] = ()
    reason: str = ""
    """Why there is no judgement; empty if there is one."""

    @property
    def canaries(self) -> int:
        """How many canaries behaved."""
        return canaries(self.suites)

    @property
    def tests(self) -> Counter[str]:
        """How many tests passed, failed and were skipped, without the canaries."""
        return tests(self.suites)

    def doubt(self) -> str:
        """Why its verdict is not to be believed; empty if it is. UNKNOWN claims nothing, and needs no proof."""
        if self.verdict is Verdict.UNKNOWN:
            return ""
        if not self.canaries:
            return "no canary behaved"
        if self.verdict is not Verdict.FAIL:
            news = [one.id for one in self.findings if not one.known]
            worse = [one.suite for one in self.suites if one.verdict.severity > self.verdict.severity]
            if news or worse:
                return f"the verdict is better than its findings and suites: {', '.join([*news, *worse])}"
            return "" if self.tests["passed"] else "no test passed"
        return "" if self.findings or self.tests["failed"] else "nothing failed"


class Matrix(Record, frozen=True):
    """measurements/matrix.json."""

    cells: tuple[MatrixCell, ...] = ()

    def of(self, question: Question) -> MatrixCell | None:
        """The answer to a question; None if it was not asked."""
        return next((one for one in self.cells if one.question == question), None)

    def answers(self, cell: Question) -> list[MatrixCell]:
        """The answers to a cell's question, one of each tier that was asked, the lowest tier first."""
        tiers = ("kernel", "quick", "full", "thorough")
        asked = [one for one in self.cells if one.question.of_quick == cell.of_quick]
        return sorted(asked, key=lambda one: tiers.index(one.question.tier))

    @property
    def commit(self) -> str:
        """The commit of the cell that was asked last among those that name one; empty if none does."""
        named = sorted((one.asked, one.commit) for one in self.cells if one.commit)
        return named[-1][1] if named else ""

    def with_answers(self, new: Sequence[MatrixCell]) -> Matrix:
        """The same with answers in place of their predecessors, in the order of servers, targets and ways."""
        answered = {one.question for one in new}
        cells = [*(one for one in self.cells if one.question not in answered), *new]
        targets = list(Catalog().targets)

        def place(cell: MatrixCell) -> tuple[int, int, int, str]:
            asked = cell.question
            return SERVERS.index(asked.server), targets.index(asked.target), WAYS.index(asked.way), asked.tier

        return Matrix(cells=tuple(sorted(cells, key=place)))


def read(path: Path = STORED) -> Matrix:
    """The stored answers; none if there is no file.

    Raises UsageError for a file that is not valid, and for a verdict that its own evidence does not carry.
    """
    if not path.is_file():
        return Matrix()
    try:
        matrix = json_codec.decode(path.read_bytes(), Matrix)
    except msgspec.MsgspecError as error:
        raise UsageError("not a valid matrix", where=str(path), because=str(error)) from error
    possible = set(questions())
    for cell in matrix.cells:
        asked = cell.question
        doubt = cell.doubt() if asked.of_quick in possible else "the matrix has no such cell"
        if doubt or matrix.of(asked) is not cell:
            raise UsageError(
                f"an answer is not to be believed: {doubt or 'the cell has two'}",
                where=f"{path}, {asked.command}",
                remedy="python -m tools.matrix --again, with its --server, --way and --target, once it is removed",
            )
    return matrix


def store(new: MatrixCell, path: Path = STORED) -> Matrix:
    """Add an answer to what the file has now, whole or not at all, however this process ends."""
    matrix = read(path).with_answers([new])
    _write(matrix, path)
    return matrix


def _write(matrix: Matrix, path: Path) -> None:
    write_whole(path, msgspec.json.format(json_codec.encode(matrix), indent=1) + b"\n")


def take(answers: Path, path: Path = STORED) -> int:
    """Store the answers of another machine's file, but for those that are older than the stored ones. Returns how many.

    Raises UsageError for a file that is not there, and as `read` does.
    """
    if not answers.is_file():
        raise UsageError(
            "no such file of answers", where=str(answers), remedy="the measurements/matrix.json of another machine"
        )
    stored = read(path)
    new = [
        cell for cell in read(answers).cells if (there := stored.of(cell.question)) is None or there.asked < cell.asked
    ]
    if new:
        _write(stored.with_answers(new), path)
    return len(new)


def possible_ways(catalog: Catalog, server: str, target: Target) -> list[Way]:
    """How a server can be made for a target."""
    tools = catalog.toolchain_of(target)
    if package := package_named(server):
        has = tools.debian_architecture in ARCHITECTURES[package.suite] and target.time_bits <= target.width_bits
        return ["shipped"] if has else []
    families = [way for way in ("clang-musl", "clang-glibc") if target.name in catalog.families[way].targets]
    return [way for way in WAYS if way in {*families, *(() if tools.family else ("gcc", "gcc-lto"))}]


def promised_target(target: Target) -> bool:
    """Whether the page promises an answer for it."""
    return "required" in target.groups or target.name in PROMISED_BESIDE


def promised(catalog: Catalog, question: Question) -> bool:
    """Whether the page promises an answer, from a commit of this repository. The weekly workflow asks the others."""
    by_us = question.way in PROMISED_WAYS and package_named(question.server) is None
    return by_us and question.tier == "quick" and promised_target(catalog.targets[question.target])


def machines(catalog: Catalog) -> list[Target]:
    """The targets of the matrix, the promised ones first and of these the required ones: what the emulator runs without
    its own kernel, and other machines whose programs this one runs.
    """
    chosen = [
        one
        for one in catalog.targets.values()
        if one.emulator.is_qemu_user or (one.emulator.runs_here and one.width_bits == 32)
    ]
    return sorted(chosen, key=lambda one: (not promised_target(one), "required" not in one.groups))


def questions(
    servers: Sequence[str] = (), ways: Sequence[str] = (), targets: Sequence[str] = (), tier: Tier = "quick"
) -> list[Question]:
    """The cells of these servers, ways and targets; all if none is named.

    Promised targets come first, then the order is by way and server. Raises UsageError for an unknown name, and if no
    such cell exists.
    """
    catalog = Catalog()
    every = machines(catalog)
    known = {"server": SERVERS, "way": WAYS, "target": [one.name for one in every]}
    for (noun, names), given in zip(known.items(), (servers, ways, targets), strict=True):
        question_options.refuse_unknown(noun, given, names)
    found = [
        (
            (not promised_target(target), _rank(way), SERVERS.index(server), WAYS.index(way)),
            Question(server=server, way=way, target=target.name, tier=tier),
        )
        for server in SERVERS
        for target in every
        for way in possible_ways(catalog, server, target)
        if (not servers or server in servers) and (not ways or way in ways) and (not targets or target.name in targets)
    ]
    if not found:
        raise UsageError(
            "nothing of what is named can be made",
            where=", ".join([*servers, *ways, *targets]),
            remedy="plumb list toolchains",
        )
    return [question for _, question in sorted(found, key=lambda one: one[0])]


def _rank(way: Way) -> int:
    return next((rank for rank, ways in enumerate(FIRST) if way in ways), len(FIRST))


def judged(question: Question, judgement: Judgement, *, commit: str, asked: datetime) -> MatrixCell:
    """A check's judgement of one of its cells: the verdicts and the findings of the cell's own target."""
    own = [one for one in judgement.cells if one.target == question.target]
    return MatrixCell(
        question=question,
        verdict=overall(own),
        commit=commit,
        asked=asked,
        seconds=round(sum(one.seconds for one in own)),
        beside=tuple(dict.fromkeys(one.target for one in judgement.cells if one.target != question.target)),
        suites=tallies(own),
        findings=tuple(seen(finding, shown) for finding in judgement.findings if (shown := _shown(finding, own))),
    )


def _shown(finding: Finding, cells: Sequence[CellVerdict]) -> list[Witness]:
    """What these cells of a check showed of a finding."""
    names = {f"{one.target}/{one.suite}" for one in cells}
    return [witness for witness in finding.witnesses if names & set(witness.cells)]
