"""A suite that tests a part of a changed file runs on few targets, and on others if those show anything."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from harness.core.finding import Occasion
from harness.core.model import CANARY_SUITE, Cell
from harness.judge.conclusion import EndedCell
from harness.plan.catalog import Catalog
from harness.record.run_record import CellRecord, HostRun
from harness.run.scheduler import CellCount
from harness.workflows.cell_process import TESTS_FAILED
from harness.workflows.cells.cell_runs import CellRuns
from harness.workflows.cells.standing_cells import representatives, stand_ins
from tests.support.histories import finding
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from harness.core.finding import Finding

CATALOG = Catalog()
SUITES = (CANARY_SUITE, "bitops", "selftests", "threads", "width")


def cells_of(*targets: str) -> list[Cell]:
    return [Cell(target=target, server="redis-7.0.15", suite=suite) for target in targets for suite in SUITES]


def standing_for(*targets: str) -> dict[str, str]:
    found = representatives(
        [Cell(target=one, server="redis-7.0.15", suite="threads") for one in targets], CATALOG.targets
    )
    return {cell.target: other.target for cell, other in found.items()}


def test_the_target_that_demands_most_stands_for_its_kind() -> None:
    assert standing_for("armv7", "armv6", "armv5", "armv7-time64", "aarch64", "sparc32plus", "sparc64") == {
        "armv7": "armv5",
        "armv6": "armv5",
        "armv5": "armv5",
        "armv7-time64": "armv7-time64",
        "aarch64": "aarch64",
        "sparc32plus": "sparc32plus",
        "sparc64": "sparc64",
    }


def sampled_of(*targets: str) -> tuple[list[str], list[str]]:
    """The targets that stand for others, and those for which they stand."""
    cells = [Cell(target=one, server="redis-7.0.15", suite="threads") for one in targets]
    found = stand_ins(cells, CATALOG.targets)
    assert len({*map(tuple, found.values())}) <= 1
    return [one.target for one in next(iter(found.values()), [])], [cell.target for cell in found]


def test_few_targets_have_each_width_byte_order_and_time_between_them() -> None:
    six = ("aarch64", "armv5", "armv6", "armv7", "sparc32plus", "sparc64")
    assert sampled_of(*six) == (["sparc32plus", "aarch64"], ["armv5", "armv6", "armv7", "sparc64"])
    assert sampled_of("armv7", "armv7-time64", "armv5")[0] == ["armv5", "armv7-time64"]
    assert sampled_of("aarch64", "sparc64", "armv6") == (["sparc64", "armv6"], ["aarch64"])
    assert sampled_of("aarch64", "sparc32plus") == ([], []), "neither stands for the other"


class Runs(CellRuns):
    """Cells that end as they are told to."""

    def __init__(
        self, folder: Path, ends: Mapping[str, CellRecord], known: Collection[str], new: Sequence[Finding] = ()
    ) -> None:
        self.ran: list[str] = []
        self.of_base: list[str] = []
        self.in_base: list[Cell] = []
        self._ends = ends
        nothing: Any = None
        bench: Any = SimpleNamespace(catalog=CATALOG, refuse_damage=lambda: None, board=None)
        request: Any = SimpleNamespace(jobs=2, run=folder)
        prepared: Any = SimpleNamespace(
            targets={name: SimpleNamespace(target=one) for name, one in CATALOG.targets.items()}
        )
        super().__init__(
            bench,
            request,
            prepared,
            nothing,
            server=nothing,
            one_failure=False,
            until=math.inf,
            store=lambda _: None,
            judged=lambda _: EndedCell(known=set(known), new=list(new)),
            sampled={"selftests", "threads", "width"},
            inherited=self._of_base,
        )

    def _of_base(self, found: Mapping[Cell, Sequence[Finding]]) -> list[Cell]:
        self.of_base += [f"{cell.target}/{cell.suite}: {len(findings)}" for cell, findings in found.items()]
        assert len(self.ran) < len(TARGETS) * len(SUITES) - 4, "the base is asked before the other targets run"
        return self.in_base

    def _run_cell(self, cell: Cell) -> CellRecord:
        name = f"{cell.target}/{cell.suite}"
        self.ran.append(name)
        return self._ends.get(name, CellRecord(target=cell.target, suite=cell.suite, seconds=1, status=0))


def ran_of(suite: str, runs: Runs, cells: Sequence[Cell]) -> tuple[list[str], dict[str, str]]:
    """The targets on which a suite ran, and the reasons of the others."""
    records = runs.run(cells, CellCount(len(cells)))
    assert [(one.target, one.suite) for one in records] == [(cell.target, cell.suite) for cell in cells]
    ran = sorted(name.partition("/")[0] for name in runs.ran if name.endswith(f"/{suite}"))
    absent = {one.target: one.problem for one in records if one.suite == suite and one.problem_kind == "absent"}
    return ran, absent


TARGETS = ("aarch64", "armv5", "armv6", "sparc64")


@pytest.mark.parametrize("costly", ["threads", "selftests"])
def test_a_suite_that_is_sampled_runs_once_for_each_kind_and_a_costly_one_on_fewer(costly: str, tmp_path: Path) -> None:
    runs = Runs(tmp_path, {}, ())
    ran, absent = ran_of(costly, runs, cells_of(*TARGETS))
    why = "sparc64 and armv5 stand for its width, byte order and time_t, and showed nothing new in it"
    assert ran == ["armv5", "sparc64"]
    assert absent == {"armv6": why, "aarch64": why}
    assert sorted(name for name in runs.ran if name.endswith("/width")) == [
        "aarch64/width",
        "armv5/width",
        "sparc64/width",
    ]
    assert len(runs.ran) == len(TARGETS) * len(SUITES) - 5, "the other suites run on all"


@pytest.mark.parametrize(
    ("end", "known", "others"),
    [
        ({"status": TESTS_FAILED}, (), True),
        ({"status": TESTS_FAILED}, ("test_old",), False),
        ({"status": 0, "problem": "it exceeded its limit", "problem_kind": "deadline"}, (), True),
    ],
    ids=["a failure", "a known failure", "no result"],
)
def test_what_one_target_shows_the_others_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], known: Collection[str], *, others: bool
) -> None:
    monkeypatch.setattr("harness.workflows.cells.cell_runs.failed_tests", lambda _: ["test_old"])
    ended = CellRecord(target="armv5", suite="threads", seconds=1, **end)
    ran, _ = ran_of("threads", Runs(tmp_path, {"armv5/threads": ended}, known), cells_of(*TARGETS))
    assert ("armv6" in ran) == others


@pytest.mark.parametrize(("end", "asked"), [("start-failed", False), ("signal", True)])
def test_a_costly_suite_is_not_asked_of_a_target_whose_servers_do_not_start(
    tmp_path: Path, end: Literal["start-failed", "signal"], *, asked: bool
) -> None:
    """Each of its tests would fail as those of the other suites do, and the audit on other targets continues."""
    stored = StoredRun(tmp_path, targets=TARGETS, suites=SUITES)
    for target in ("armv5", "armv6", "sparc64"):
        stored.guest(target, "bitops", "guest-1", end=end)
        for suite in ("bitops", "threads"):
            stored.test(target, suite, "test_first", outcome="failed")
    failed = {
        f"{target}/{suite}": CellRecord(target=target, suite=suite, seconds=1, status=TESTS_FAILED)
        for target in ("armv5", "armv6", "sparc64")
        for suite in ("bitops", "threads")
    }
    ran, absent = ran_of("threads", Runs(stored.finish(), failed, ()), cells_of(*TARGETS))
    assert ("armv6" in ran) == asked
    assert "aarch64" in ran, "its servers start, and other targets showed something"
    assert ("no server starts on armv6" in absent.get("armv6", "")) != asked


class FailedRuns(Runs):
    """Cells of a tree in which tests failed that alone pass on the host."""

    def __init__(self, folder: Path, tree: str, known: Collection[str]) -> None:
        super().__init__(folder, {}, known)
        self.asked: list[tuple[set[str], int]] = []
        """The tests that the host was to run behind others, and how many runs it had made."""
        self.alone: list[list[str]] = []
        """The tests that it was to run alone."""
        anything: Any = SimpleNamespace(
            server=tree,
            run=folder,
            has_host_runs=lambda _: True,
            on_host=self._on_host,
            runs=lambda *words: words[2](),
        )
        self._request = self._specs = self._shared = anything

        self.problem = ""
        """Why the last run on the host has no result; empty if it has one."""

    def _repeated(self, *words: Any) -> list[HostRun]:
        return [HostRun(problem="", seal="")] * (words[2] - 1) + [HostRun(problem=self.problem, seal="")]

    def _preceded_runs(self, *words: Any) -> list[HostRun]:
        self.asked.append(({*words[2]}, words[3]))
        return []

    def _on_host(self, _: Cell, failed: list[str]) -> None:
        self.alone.append(failed)

    def of_failed(self, folder: Path, audit: str = "") -> list[HostRun]:
        """The host's runs of a cell."""
        spec: Any = SimpleNamespace(folder=folder)
        record = CellRecord(target="armv5", suite="threads", seconds=1, status=TESTS_FAILED, audit=audit)
        return self._host_runs(Cell(target="armv5", server="", suite="threads"), spec, record)


@pytest.mark.parametrize("tree", ["redis-7.0.15", "/a/checkout"])
def test_the_host_is_asked_behind_other_tests_about_all_that_no_list_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: str
) -> None:
    """Regression: of a release in the catalog it was not, so a failure that every machine has counted as the
    target's.
    """
    monkeypatch.setattr("harness.workflows.cells.cell_runs.failed_tests", lambda _: ["test_old", "test_new"])
    monkeypatch.setattr("harness.workflows.cells.cell_runs.unlike_host", lambda *_: {"test_old", "test_new"})
    runs = FailedRuns(tmp_path, tree, ["test_old"])
    made = runs.of_failed(tmp_path)
    assert runs.asked == [({"test_new"}, len(made))]


def test_the_host_is_asked_no_more_once_one_of_its_runs_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.workflows.cells.cell_runs.failed_tests", lambda _: ["test_new"])
    monkeypatch.setattr("harness.workflows.cells.cell_runs.unlike_host", lambda *_: {"test_new"})
    runs = FailedRuns(tmp_path, "/a/checkout", [])
    runs.problem = "it did not end within 900 s"
    made = runs.of_failed(tmp_path)
    assert runs.of_base == []
    assert [one.problem for one in made if one.problem] == [runs.problem]


def test_the_host_is_not_asked_about_tests_before_which_a_misaligned_access_killed_the_server(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path, targets=TARGETS, suites=SUITES)
    stored.guest("armv5", "threads", "guest-1", end="start-failed")
    stored.test("armv5", "threads", "test_first", outcome="failed")
    stored.audited.add(("armv5", "threads"))
    stored.test("armv5", "threads/audit", "test_first")
    stored.test("armv5", "threads/audit", "test_second", outcome="failed")
    cell = stored.finish() / "armv5" / "threads"
    for audit, asked in (("done", [["test_second"]]), ("", [["test_first", "test_second"]])):
        runs = FailedRuns(tmp_path, "/a/checkout", [])
        runs.of_failed(cell, audit)
        assert runs.alone == asked, "without an audit, servers may die on the host, too"


def seen_in(*tests: str) -> Finding:
    """A finding that these tests show."""
    shown = finding("assertion-zip", "armv5", suite="threads")
    (witness,) = shown.witnesses
    occasions = [Occasion(test=test, command="", title="", said="", functions=()) for test in tests]
    witness = msgspec.structs.replace(witness, test=tests[0], occasions=occasions)
    return msgspec.structs.replace(shown, witnesses=[witness])


@pytest.mark.parametrize(
    ("shown", "in_base", "asked", "others"),
    [
        (["test_a", "test_b"], True, True, False),
        (["test_a", "test_b"], False, True, True),
        # A test of which no finding tells anything may hide a fault.
        (["test_a"], True, False, True),
    ],
    ids=["the base fails alike", "the base passes", "a failure without a finding"],
)
def test_what_the_base_shows_too_the_others_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: list[str], *, in_base: bool, asked: bool, others: bool
) -> None:
    monkeypatch.setattr("harness.workflows.cells.cell_runs.failed_tests", lambda _: ["test_a", "test_b"])
    ended = CellRecord(target="armv5", suite="threads", seconds=1, status=TESTS_FAILED)
    runs = Runs(tmp_path, {"armv5/threads": ended}, (), [seen_in(*shown)])
    cells = cells_of(*TARGETS)
    runs.in_base = [cell for cell in cells if in_base and cell.target == "armv5" and cell.suite == "threads"]
    ran, _ = ran_of("threads", runs, cells)
    assert runs.of_base == (["armv5/threads: 1"] if asked else [])
    assert ("armv6" in ran) == others


def test_where_no_server_starts_the_findings_about_the_start_explain_all_failures(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path, targets=TARGETS, suites=SUITES)
    stored.guest("armv5", "threads", "guest-1", end="start-failed")
    # What the native build does with a file of the test says nothing about the target's start.
    stored.own_guest("armv5", "threads", "native", end="stopped", test="test_0")
    for number in range(50):
        stored.test("armv5", "threads", f"test_{number}", outcome="failed")
    cells = cells_of(*TARGETS)
    folder = stored.finish()
    for audit, asked, others in (("done", ["armv5/threads: 1"], []), ("", [], ["aarch64", "armv6"])):
        ended = CellRecord(target="armv5", suite="threads", seconds=1, status=TESTS_FAILED, audit=audit)
        runs = Runs(folder, {"armv5/threads": ended}, (), [seen_in("test_0")])
        runs.in_base = [cell for cell in cells if cell.target == "armv5" and cell.suite == "threads"]
        ran, _ = ran_of("threads", runs, cells)
        assert (runs.of_base, ran) == (asked, sorted(["armv5", "sparc64", *others])), "without an audit, nothing ran"


def test_a_cell_that_runs_again_shows_what_it_shows_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a finding of the first run stood for a second one that did not end, so that others were skipped."""
    monkeypatch.setattr("harness.workflows.cells.cell_runs.failed_tests", lambda _: ["test_a"])
    ends = {"armv5/threads": CellRecord(target="armv5", suite="threads", seconds=1, status=TESTS_FAILED)}
    runs = Runs(tmp_path, ends, (), [seen_in("test_a")])
    cells = cells_of(*TARGETS)
    ran_of("threads", runs, cells)
    late = {"problem": "it exceeded its limit", "problem_kind": "deadline"}
    ends["armv5/threads"] = msgspec.structs.replace(ends["armv5/threads"], **late)
    runs.in_base = [cell for cell in cells if cell.target == "armv5" and cell.suite == "threads"]
    runs.ran.clear()
    ran, _ = ran_of("threads", runs, cells)
    assert "armv6" in ran


class SealedRuns(CellRuns):
    """Cells whose first run ends with a failed test. What the others are told meanwhile is noted."""

    def __init__(self, folder: Path, *, one_failure: bool) -> None:
        nothing: Any = None
        specs: Any = SimpleNamespace(
            missing=lambda _: None,
            of=lambda cell: SimpleNamespace(units=None, folder=folder / cell.suite, runner=SimpleNamespace()),
            left_out=lambda _: None,
            has_host_runs=lambda _: False,
        )
        super().__init__(
            nothing,
            nothing,
            nothing,
            specs,
            server=nothing,
            one_failure=one_failure,
            until=math.inf,
            store=lambda _: None,
            judged=lambda _: EndedCell(known=set(), new=[]),
            sampled=(),
        )
        self.told: dict[str, str] = {}

    def _run_sealed(self, spec: Any, until: float = math.inf, needless: Callable[[], str] = lambda: "") -> CellRecord:
        del until
        self.told[spec.folder.name] = needless()
        return CellRecord(target="armv5", suite=spec.folder.name, seconds=1, status=TESTS_FAILED)

    def _with_order_trials(self, cell: Cell, spec: Any, record: CellRecord) -> CellRecord:
        del cell, spec
        return record

    def run_each(self) -> dict[str, str]:
        """Run three cells. Returns why each was told to end."""
        for suite in ("bitops", "sds", CANARY_SUITE):
            self._run_cell(Cell(target="armv5", server="", suite=suite))
        return self.told


@pytest.mark.parametrize(("one_failure", "why"), [(True, "a test of armv5/bitops failed before"), (False, "")])
def test_where_one_failure_is_enough_the_cells_that_run_are_ended(
    tmp_path: Path, why: str, *, one_failure: bool
) -> None:
    assert SealedRuns(tmp_path, one_failure=one_failure).run_each() == {"bitops": "", "sds": why, CANARY_SUITE: ""}
