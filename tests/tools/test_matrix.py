"""docs/MATRIX.md: its cells, the proofs of their verdicts, the open cells, and other projects' results."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from harness.core import json_codec
from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Verdict
from harness.core.processes.process import Result
from harness.plan.catalog import Catalog
from tests.support.repositories import git
from tests.tools import test_found
from tests.tools.test_found import FAILED, PASSED, SHOWN
from tools import bugs, project
from tools.checks import CellFinding
from tools.matrix import __main__ as tool
from tools.matrix import document, page
from tools.matrix.document import Check, Matrix, MatrixCell, Question

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement
    from tools.matrix.document import Way

ARMV7 = Question(server="redis-7.0.15", way="gcc", target="armv7")
NOON = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)


def judgement(cells: list[tuple[str, str, Verdict]], findings: list[tuple[str, str, str]]) -> Judgement:
    """A judgement in which the cells of a finding's own target show it."""
    made = test_found.judgement(cells, findings)
    return msgspec.structs.replace(
        made,
        verdict=Verdict.merge([verdict for _, _, verdict in cells]),
        findings=[with_cells(one, [f"{target}/{suite}" for target, suite, _ in cells]) for one in made.findings],
    )


def with_cells(finding: Finding, cells: list[str]) -> Finding:
    witnesses = [
        msgspec.structs.replace(one, cells=[cell for cell in cells if cell.startswith(f"{one.target}/")])
        for one in finding.witnesses
    ]
    return msgspec.structs.replace(finding, witnesses=witnesses)


def answer(
    question: Question = ARMV7, judged: Judgement | None = None, *, commit: str = "new", hours: int = 0
) -> MatrixCell:
    judged = judged or judgement([(question.target, suite, verdict) for _, suite, verdict in PASSED], [])
    return document.judged(question, judged, commit=commit, asked=NOON + datetime.timedelta(hours=hours))


def made(way: Way, *findings: tuple[str, str, str], verdict: Verdict = Verdict.FAIL, hours: int = 0) -> MatrixCell:
    cells = [("armv7", "canary", Verdict.PASS), ("armv7", "life", verdict)]
    question = msgspec.structs.replace(ARMV7, way=way)
    return answer(question, judgement(cells, list(findings)), commit=f"at-{hours}", hours=hours)


def test_a_cell_is_a_plain_command() -> None:
    assert ARMV7.command == "plumb check --server redis-7.0.15 --target armv7 --tier quick --seed 1"
    ways: dict[Way, str] = {"clang-musl": "--toolchain clang-musl", "gcc-lto": "--optimisation O2-lto", "shipped": ""}
    for way, words in ways.items():
        assert words in msgspec.structs.replace(ARMV7, way=way).command


def test_the_matrix_has_exactly_the_possible_cells() -> None:
    every = document.questions()
    targets = ["armv5", "sparc64", "loongarch64", "i386", "mips64el", "riscv64"]
    targets += ["armv7-time64", "armv7-kernel", "native-asan"]
    ways = {
        (server, target): {one.way for one in every if (one.server, one.target) == (server, target)}
        for server in document.SERVERS
        for target in targets
    }
    assert ways["redis-7.0.15", "armv5"] == {"gcc", "clang-musl", "clang-glibc", "gcc-lto"}
    assert ways["valkey-9.1.2", "sparc64"] == {"gcc", "clang-glibc", "gcc-lto"}
    assert ways["redis-8.0.6", "loongarch64"] == {"clang-musl"}
    # The host runs the programs of another architecture.
    assert ways["redis-8.0.6", "i386"] == {"gcc", "clang-musl", "gcc-lto"}
    assert ways["debian:bookworm/redis-server", "armv5"] == {"shipped"}
    assert ways["debian:bookworm/redis-server", "sparc64"] == set()
    # Debian 13 has RISC-V but no MIPS; Debian 12 has MIPS but no RISC-V.
    assert ways["debian:bookworm/redis-server", "mips64el"] == ways["debian:trixie/valkey-server", "riscv64"]
    assert ways["debian:bookworm/redis-server", "mips64el"] == {"shipped"}
    assert ways["debian:trixie/valkey-server", "mips64el"] == ways["debian:bookworm/redis-server", "riscv64"] == set()
    # A package for ARM has a time_t of 32 or 64 bits, depending on its distribution.
    assert ways["debian:trixie/valkey-server", "armv7-time64"] == set()
    assert ways["redis-7.0.15", "armv7-kernel"] == ways["redis-7.0.15", "native-asan"] == set()


def test_promised_targets_come_first_then_usual_compilers_then_packages() -> None:
    first = {one.name for one in Catalog().targets.values() if "required" in one.groups} | {"armv7-time64", "s390x"}
    ranks: dict[Way, int] = {"gcc": 0, "clang-musl": 0, "shipped": 1, "clang-glibc": 2, "gcc-lto": 2}
    kinds = [(one.target not in first, ranks[one.way]) for one in document.questions()]
    assert kinds == sorted(kinds)
    assert len(set(kinds)) == 6


def test_answers_of_the_quick_tier_are_promised_for_releases_that_are_compiled_here() -> None:
    catalog = Catalog()
    every = document.questions()
    promised = [one for one in every if document.promised(catalog, one)]
    assert {(one.way, one.tier) for one in promised} == {(way, "quick") for way in ("gcc", "clang-musl", "gcc-lto")}
    assert not any("debian:" in one.server for one in promised)
    assert len({one.target for one in promised}) == 8
    assert not document.promised(catalog, Question(server="redis-7.0.15", way="gcc", target="armv7", tier="full"))


def test_only_what_is_promised_is_asked_if_that_is_wished(tmp_path: Path) -> None:
    words = ["--promised", "--plan", "--document", str(tmp_path / "none.json")]
    shown = CliRunner().invoke(tool.main, words)
    assert shown.exit_code == ExitCode.PASS
    # Four releases, each made in three ways, and every target of a way in one check.
    assert len(shown.output.splitlines()) == 4 * 3
    assert "shipped" not in shown.output
    assert "alpha" not in shown.output


@pytest.mark.parametrize(
    ("server", "way", "target", "words"),
    [
        ("redis-7.0.51", "gcc", "armv5", "no server 'redis-7.0.51'"),
        ("redis-7.0.15", "clang", "armv5", "no way 'clang'"),
        ("redis-7.0.15", "gcc", "armv55", "no target 'armv55'"),
        ("redis-7.0.15", "clang-musl", "sparc64", "nothing of what is named can be made"),
    ],
)
def test_names_that_select_nothing_are_refused(server: str, way: str, target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        document.questions([server], [way], [target])


def test_an_answer_has_the_judgements_verdict_findings_and_proof() -> None:
    cell = answer(judged=judgement(FAILED, [SHOWN]))
    assert cell.verdict is Verdict.FAIL
    assert cell.canaries == 3
    assert cell.tests == {"passed": 3, "failed": 0, "skipped": 0}
    assert [(one.id, one.said, one.tests) for one in cell.findings] == [
        ("wrong-result-life_test_limit", ("the limit is cut",), ("life/t.py::limit",))
    ]
    assert cell.doubt() == ""


BOTH = [
    ("armv7", "canary", Verdict.PASS),
    ("armv7", "life", Verdict.PASS),
    ("armv5", "canary", Verdict.PASS),
    ("armv5", "life", Verdict.FAIL),
]


def test_each_cell_of_a_check_has_its_own_targets_part_of_the_judgement() -> None:
    judged = judgement(BOTH, [("wrong-result-life_test_limit", "armv5", "the limit is cut")])
    armv7, armv5 = (answer(msgspec.structs.replace(ARMV7, target=name), judged) for name in ("armv7", "armv5"))
    assert (armv7.verdict, armv7.findings, armv7.beside, armv7.seconds) == (Verdict.PASS, (), ("armv5",), 2)
    assert (armv5.verdict, len(armv5.findings), armv5.beside) == (Verdict.FAIL, 1, ("armv7",))
    assert armv7.doubt() == armv5.doubt() == ""


def test_a_cell_has_its_tests_findings_on_other_machines_but_not_others_findings_on_its_own() -> None:
    judged = judgement(BOTH, [("diff-a", "armv5", "cut"), ("diff-a", "armv7", "wraps")])
    one, other = judged.findings
    seen = msgspec.structs.replace(one, witnesses=[*other.witnesses, *one.witnesses])
    both = msgspec.structs.replace(judged, findings=[seen])
    assert [found.said for found in answer(ARMV7, both).findings] == [("wraps",)]
    # The file that armv5 wrote is wrong where armv7 reads it.
    exchanged = [msgspec.structs.replace(one.witnesses[0], cells=["armv7/life"])]
    both = msgspec.structs.replace(judged, findings=[msgspec.structs.replace(one, witnesses=exchanged)])
    assert [found.said for found in answer(ARMV7, both).findings] == [("cut",)]
    assert answer(msgspec.structs.replace(ARMV7, target="armv5"), both).findings == ()


def test_another_machines_tests_prove_nothing() -> None:
    assert (
        answer(judged=judgement([("native", "canary", Verdict.PASS), *PASSED[1:]], [])).doubt() == "no canary behaved"
    )


def without(cell: MatrixCell, suite: str) -> MatrixCell:
    nothing = [msgspec.structs.replace(one, passed=0 if one.suite == suite else one.passed) for one in cell.suites]
    return msgspec.structs.replace(cell, suites=tuple(nothing))


NEW = CellFinding(id="alignment-x-load", title="misaligned", suites=("life",))
DOUBTED = {
    "no canary behaved": without(answer(), "canary"),
    "no test passed": without(answer(), "life"),
    "alignment-x-load": msgspec.structs.replace(answer(), findings=(NEW,)),
    "findings and suites: life": msgspec.structs.replace(answer(judged=judgement(FAILED, [])), verdict=Verdict.PASS),
    "nothing failed": msgspec.structs.replace(answer(), verdict=Verdict.FAIL),
    "the matrix has no such cell": answer(msgspec.structs.replace(ARMV7, target="sparc64", way="clang-musl")),
    "is not to be believed: no canary": msgspec.structs.replace(answer(), suites=()),
}


@pytest.mark.parametrize(("words", "cell"), DOUBTED.items(), ids=DOUBTED.keys())
def test_a_verdict_that_its_evidence_does_not_support_is_refused(tmp_path: Path, words: str, cell: MatrixCell) -> None:
    path = tmp_path / "matrix.json"
    path.write_bytes(json_codec.encode(Matrix(cells=(cell,))))
    with pytest.raises(UsageError) as error:
        document.read(path)
    assert words in str(error.value)
    assert cell.question.command in str(error.value)


def test_two_answers_of_one_cell_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    path.write_bytes(json_codec.encode(Matrix(cells=(answer(), answer(hours=1)))))
    with pytest.raises(UsageError, match="the cell has two"):
        document.read(path)


def test_an_unknown_verdict_and_known_findings_are_accepted(tmp_path: Path) -> None:
    unknown = msgspec.structs.replace(answer(), verdict=Verdict.UNKNOWN, suites=(), reason="it ended with status 7")
    known = msgspec.structs.replace(NEW, known="docs/found/aof-arity.md")
    other = answer(msgspec.structs.replace(ARMV7, target="armv5"))
    cells = (unknown, msgspec.structs.replace(other, findings=(known,)))
    path = tmp_path / "matrix.json"
    path.write_bytes(json_codec.encode(Matrix(cells=cells)))
    assert document.read(path).cells == cells


def test_an_answer_replaces_its_predecessor_and_keeps_what_others_have_stored(tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    lto = answer(msgspec.structs.replace(ARMV7, way="gcc-lto"))
    document.store(lto, path)
    document.store(answer(commit="old"), path)
    # Another tool stores answers in the meantime, so this one must not write back its old copy.
    document.store(answer(msgspec.structs.replace(ARMV7, target="armv5")), path)
    after = document.store(answer(commit="new", hours=1), path)
    assert after == document.read(path)
    assert [(one.question.target, one.question.way, one.commit) for one in after.cells] == [
        ("armv5", "gcc", "new"),
        ("armv7", "gcc", "new"),
        ("armv7", "gcc-lto", "new"),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["matrix.json"]


def test_answers_of_other_machines_are_imported_unless_they_are_older(tmp_path: Path) -> None:
    path, others = tmp_path / "matrix.json", [tmp_path / "one.json", tmp_path / "two.json"]
    armv5, armv6 = (msgspec.structs.replace(ARMV7, target=name) for name in ("armv5", "armv6"))
    for question in (ARMV7, armv5):
        document.store(answer(question, commit="here", hours=1), path)
    document.store(answer(ARMV7, commit="older"), others[0])
    document.store(answer(armv6, commit="missing"), others[0])
    document.store(answer(armv5, commit="newer", hours=2), others[1])
    words = [word for file in others for word in ("--take", str(file))]
    result = CliRunner().invoke(tool.main, [*words, "--document", str(path)])
    assert result.exit_code == ExitCode.PASS
    assert "one.json: 1 new answers" in result.output
    assert {one.question.target: one.commit for one in document.read(path).cells} == {
        "armv7": "here",
        "armv5": "newer",
        "armv6": "missing",
    }


def test_missing_or_doubtful_answers_are_not_imported(tmp_path: Path) -> None:
    path, other = tmp_path / "matrix.json", tmp_path / "other.json"
    missing = CliRunner().invoke(tool.main, ["--take", str(other), "--document", str(path)])
    assert missing.exit_code == ExitCode.USAGE
    assert "no such file of answers" in missing.output
    other.write_bytes(json_codec.encode(Matrix(cells=(msgspec.structs.replace(answer(), suites=()),))))
    doubtful = CliRunner().invoke(tool.main, ["--take", str(other), "--document", str(path)])
    assert doubtful.exit_code == ExitCode.USAGE
    assert "not to be believed: no canary behaved" in doubtful.output
    both = CliRunner().invoke(tool.main, ["--take", str(other), "--target", "armv5", "--document", str(path)])
    assert "asks nothing" in both.output
    assert not path.exists()


def test_missing_cells_precede_unknown_ones_and_the_oldest_of_other_commits_come_first() -> None:
    asked = [msgspec.structs.replace(ARMV7, target=name) for name in ("armv5", "armv6", "armv7", "aarch64", "mips")]
    early = msgspec.structs.replace(answer(asked[0]), verdict=Verdict.UNKNOWN, suites=(), reason="status 7")
    late = msgspec.structs.replace(answer(asked[4], hours=1), verdict=Verdict.UNKNOWN)
    stored = Matrix(cells=(late, early, answer(asked[1], commit="old", hours=1), answer(asked[2], commit="new")))

    def left(*, again: bool = False, stale: bool = False) -> list[str]:
        return [one.target for one in tool.wanted(asked, stored, again=again, stale=stale, commit="new")]

    assert left() == ["aarch64", "armv5", "mips"]
    assert left(stale=True) == ["aarch64", "armv5", "mips", "armv6"]
    assert left(again=True) == ["aarch64", "armv5", "mips", "armv7", "armv6"]


def test_one_check_covers_the_targets_of_one_server_and_unknown_cells_run_alone() -> None:
    left = document.questions(["redis-7.0.15", "valkey-9.1.2"], ["gcc", "shipped"], ["armv5", "armv6", "armv7"])
    doubtful = msgspec.structs.replace(left[1], target="armv6")
    stored = Matrix(cells=(msgspec.structs.replace(answer(doubtful), verdict=Verdict.UNKNOWN),))

    def planned(together: int) -> list[tuple[str, list[str]]]:
        made = tool.checks(left, stored, together=together)
        return [(one.questions[0].server, [each.target for each in one.questions]) for one in made]

    valkey = "valkey-9.1.2"
    alone = [("redis-7.0.15", [name]) for name in ("armv5", "armv6", "armv7")]
    assert planned(6) == [*alone, (valkey, ["armv5", "armv6", "armv7"])]
    assert planned(2) == [*alone, (valkey, ["armv5", "armv6"]), (valkey, ["armv7"])]
    assert tool.checks(left, stored, together=6)[-1].command == (
        "plumb check --server valkey-9.1.2 --target armv5 --target armv6 --target armv7 --tier quick --seed 1"
    )


class Plumb:
    """Stands in for checks, which take minutes. It writes a judgement, or ends as the test specifies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: tuple[int, Judgement | None]) -> None:
        self.ends = list(ends)
        self.commands: list[tuple[str | Path, ...]] = []
        self.output = b"error: no space left\n  try: plumb clean\n"
        monkeypatch.setattr(project, "plumb", self.run)
        monkeypatch.setattr(project, "commit", lambda: "new")

    def run(self, *words: str | Path, deadline_seconds: float, usable: bool) -> Result:
        assert deadline_seconds
        assert not usable
        self.commands.append(words)
        code, said = self.ends.pop(0)
        if said:
            run = words[words.index("--run") + 1]
            assert not isinstance(run, str)
            run.mkdir(parents=True)
            (run / "findings.json").write_bytes(json_codec.encode(said))
        return Result([], code, self.output, expired=False, seconds=1)


GOOD = judgement(PASSED, [])
TOGETHER = Check((ARMV7, msgspec.structs.replace(ARMV7, target="armv5")))
SELECTION = ["--server", "redis-7.0.15", "--way", "gcc", "--target", "armv7"]


def test_a_tool_that_is_killed_loses_only_the_running_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matrix.json"
    for ends in ([(0, GOOD), (int(ExitCode.INTERRUPTED), None)], [(1, judgement(FAILED, [SHOWN]))]):
        plumb = Plumb(monkeypatch, *ends)
        words = [*SELECTION, "--way", "gcc-lto", "--document", str(path)]
        result = CliRunner().invoke(tool.main, words)
        assert result.exit_code == (ExitCode.INTERRUPTED if len(ends) == 2 else ExitCode.PASS), result.output
        assert plumb.ends == []
    assert [(one.question.way, one.verdict) for one in document.read(path).cells] == [
        ("gcc", Verdict.PASS),
        ("gcc-lto", Verdict.FAIL),
    ]
    assert "wrong-result-life_test_limit  NEW" in result.output


def test_a_remark_has_no_address_of_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plumb = Plumb(monkeypatch, (7, None))
    plumb.output = b"E: Failed to fetch http://mirror.test/pool/one.deb  404 [IP: 192.0.2.1 80]\n"
    (cell,) = tool.ask(Check((ARMV7,)), tmp_path / "run", jobs=1)
    assert cell.reason == "the check ended with status 7\nE: Failed to fetch one.deb  404"


@pytest.mark.parametrize(("code", "said"), [(7, None), (3, None), (0, None), (4, GOOD), (-9, GOOD)])
def test_a_check_without_a_judgement_is_unknown_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: Judgement | None
) -> None:
    Plumb(monkeypatch, (code, said))
    cells = tool.ask(TOGETHER, tmp_path / "run", jobs=1)
    assert [cell.question for cell in cells] == list(TOGETHER.questions)
    for cell in cells:
        assert cell.verdict is Verdict.UNKNOWN
        assert cell.suites == ()
        assert cell.reason == f"the check ended with status {code}\nerror: no space left\n  try: plumb clean"


def test_the_check_is_the_command_of_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plumb = Plumb(monkeypatch, (0, GOOD))
    assert [one.verdict for one in tool.ask(Check((ARMV7,)), tmp_path / "run", jobs=2)] == [Verdict.PASS]
    assert plumb.commands == [(*Check((ARMV7,)).words, "--jobs", "2", "--run", tmp_path / "run")]


def test_a_plan_or_an_expired_time_limit_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plumb = Plumb(monkeypatch)
    words = ["--document", str(tmp_path / "matrix.json"), *SELECTION, "--target", "armv6"]
    assert CliRunner().invoke(tool.main, [*words, "--plan"]).output.splitlines() == [
        Check((msgspec.structs.replace(ARMV7, target="armv6"), ARMV7)).command
    ]
    assert "2 cells are left" in CliRunner().invoke(tool.main, [*words, "--time", "0.0000001s"]).output
    assert plumb.commands == []


def rows(matrix: Matrix, name: str, known: dict[str, bugs.Bug] | None = None) -> str:
    return "\n".join(page.tables(matrix, known=known or {})[name]())


OTHER = ("sigsegv-zipmap", "armv7", "the size wraps")


def test_the_table_of_other_ways_has_findings_that_the_usual_cell_lacks() -> None:
    matrix = Matrix(cells=(made("gcc", SHOWN), made("clang-musl", SHOWN, OTHER), made("gcc-lto", SHOWN)))
    text = rows(matrix, "differences")
    assert "2 cells could be compared." in text
    assert "| `sigsegv-zipmap` |" in text
    assert "| clang-musl: armv7 | **none yet** |" in text
    assert "test_limit" not in text
    assert "gcc-lto" not in text


@pytest.mark.parametrize(
    "cells",
    [
        (made("gcc", verdict=Verdict.UNKNOWN), made("clang-musl", OTHER)),
        (made("gcc"), made("clang-musl", OTHER, verdict=Verdict.UNKNOWN)),
        (made("clang-musl", OTHER),),
        (
            made("gcc"),
            msgspec.structs.replace(
                made("clang-musl", OTHER),
                question=Question(server="redis-7.0.15", way="clang-musl", target="armv7", tier="full"),
            ),
        ),
    ],
)
def test_incomplete_or_unpaired_cells_are_not_compared(cells: tuple[MatrixCell, ...]) -> None:
    text = rows(Matrix(cells=cells), "differences")
    assert "0 cells could be compared." in text
    assert "sigsegv" not in text


def test_the_page_shows_the_answers_of_each_tier_and_counts_the_open_cells() -> None:
    full = msgspec.structs.replace(
        made("gcc-lto", hours=2), question=Question(server="redis-7.0.15", way="gcc-lto", target="armv7", tier="full")
    )
    matrix = Matrix(cells=(made("gcc", SHOWN, hours=1), made("gcc-lto", verdict=Verdict.PASS), full))
    servers = rows(matrix, "servers").splitlines()
    assert [line for line in servers if line.startswith("| `")] == [
        "| `armv7` | gcc | quick | **FAIL** | 1 new | 3 | 3 / 0 / 0 | 0 |  |",
        "| `armv7` | gcc-lto | quick | PASS |  | 3 | 3 / 0 / 0 | 0 |  |",
        "| `armv7` | gcc-lto | full | **FAIL** |  | 3 | 3 / 0 / 0 | 0 |  |",
    ]
    assert "Promised, and without an answer: 7 of `gcc`, 5 of `clang-musl`, 7 of `gcc-lto`." in servers
    packages = servers[servers.index("### debian:bookworm/redis-server") + 2]
    assert packages == "The weekly workflow asks all of its cells."
    verdicts = "2 of 84 promised cells have a verdict, and 0 of the 257 others."
    states = "Of 3 answers, 2 are from an earlier state of Plumbline than the newest one."
    assert rows(matrix, "state") == f"{verdicts} {states}"


def test_a_long_reason_is_shortened_in_the_page_and_complete_in_the_file(tmp_path: Path) -> None:
    reason = "the check ended with status 7\n" + "E: Failed to fetch a package\n" * 40
    unknown = msgspec.structs.replace(made("gcc"), verdict=Verdict.UNKNOWN, suites=(), reason=reason)
    matrix = document.store(unknown, tmp_path / "matrix.json")
    (row,) = (line for line in rows(matrix, "servers").splitlines() if line.startswith("| `"))
    assert row.endswith(" … |")
    assert len(row) < page.LONGEST_REMARK + 150
    assert document.read(tmp_path / "matrix.json").cells[0].reason == reason


CHECK = bugs.BugCheck(target="armv5", suite="life", finding="wrong-result-life_*", said="*cut*", tests=("limit",))
BUG = bugs.Bug(
    scope="machine",
    name="output-limit-cut",
    title="a limit is cut",
    section="answers",
    kind="width",
    found=NOON.date(),
    has=("redis-7.0.15",),
    checks=(CHECK,),
)


@pytest.mark.parametrize(
    ("check", "server", "said", "names"),
    [
        (CHECK, "redis-7.0.15", "the limit is cut", ["output-limit-cut"]),
        (CHECK, "redis-8.0.6", "the limit is cut", []),
        (CHECK, "redis-7.0.15", "timed out", []),
        (CHECK, "debian:bookworm/redis-server", "the limit is cut", ["output-limit-cut"]),
        (CHECK, "debian:trixie/valkey-server", "the limit is cut", []),
        (msgspec.structs.replace(CHECK, suite="width"), "redis-7.0.15", "the limit is cut", []),
        (msgspec.structs.replace(CHECK, servers=("redis-8.0.6",)), "redis-7.0.15", "the limit is cut", []),
        (msgspec.structs.replace(CHECK, finding="*"), "redis-7.0.15", "the limit is cut", ["output-limit-cut"]),
        (msgspec.structs.replace(CHECK, finding="*", tests=("tls",)), "redis-7.0.15", "the limit is cut", []),
    ],
)
def test_a_finding_is_linked_to_the_bug_whose_check_it_matches(
    check: bugs.BugCheck, server: str, said: str, names: list[str]
) -> None:
    finding = CellFinding(
        id="wrong-result-life_limit", title="a test", suites=("life",), said=(said,), tests=("life/t.py::limit",)
    )
    known = {BUG.name: msgspec.structs.replace(BUG, checks=(check,))}
    assert page.bugs_of(server, finding, known) == names


def test_a_known_entry_names_its_bug() -> None:
    named = msgspec.structs.replace(NEW, known="it wraps (docs/found/output-limit-cut.md), and docs/found/aof-arity.md")
    assert page.bugs_of(ARMV7.server, named, {BUG.name: BUG}) == ["output-limit-cut"]
    matrix = Matrix(cells=(msgspec.structs.replace(answer(), findings=(named,)),))
    assert "| [output-limit-cut](found/output-limit-cut.md) |" in rows(matrix, "findings", {BUG.name: BUG})


def test_a_commit_of_documents_makes_no_answer_outdated(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    for folder in ("harness", "docs"):
        (tmp_path / folder).mkdir()

    def change(file: str, text: str) -> None:
        (tmp_path / file).write_text(text, "utf-8")

    def committed() -> str:
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--message", "change")
        return project.commit(tmp_path)

    change("harness/a.py", "1")
    first = committed()
    assert len(first) == 12
    change("docs/page.html", "2")
    assert committed() == first
    change("docs/page.html", "3")
    assert project.commit(tmp_path) == first
    change("harness/a.py", "2")
    assert project.commit(tmp_path) == f"{first}+"
    assert committed() not in {first, f"{first}+"}


def test_an_answer_without_a_commit_is_counted() -> None:
    lost = answer(msgspec.structs.replace(ARMV7, way="gcc-lto"), commit="", hours=2)
    matrix = Matrix(cells=(answer(commit="0123456789ab"), lost))
    assert rows(matrix, "state").endswith("This repository does not contain the state of 1.")
