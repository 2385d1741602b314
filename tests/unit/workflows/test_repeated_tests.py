"""A suite that repeats others' tests with threads leaves out those that did not enter the change there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness.analysis.code.code_map import CodeChange
from harness.core.model import Cell
from harness.record import run_folder
from harness.record.executed_blocks import cell_reach
from harness.record.executed_blocks.cell_reach import CellReach
from harness.workflows.preparation.reach.reached_tests import EVERY_TEST
from harness.workflows.preparation.reach.repeated_tests import RepeatedTests

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.preparation.reach.reached_tests import CellSelection

THREADS = Cell(target="aarch64", server="", suite="threads")
INLINE = CodeChange(functions=frozenset({"processInlineBuffer"}), elsewhere=[])
PROTOCOL = CellReach(
    every=["main"],
    tests={"inline-1": ["processInlineBuffer"], "lists-1": ["lsetCommand"]},
    failed={"inline-2": ["processInlineBuffer"], "lists-2": ["lsetCommand"]},
    skipped={"lists-3": []},
    count=5,
)
FUZZ = CellReach(
    every=["main"], tests={"streams": ["processInlineBuffer"], "restore": []}, failed={}, skipped={}, count=2
)


def selected(
    folder: Path,
    change: CodeChange | None = INLINE,
    *,
    protocol: CellReach | None = PROTOCOL,
    audit: CellReach | None = None,
    costly: bool = True,
    tests: tuple[str, ...] = (),
) -> CellSelection:
    """What `threads` runs after cells with these records."""
    written = {"protocol": protocol, f"protocol/{run_folder.AUDIT}": audit, "fuzz": FUZZ}
    for name, reach in written.items():
        if reach is not None:
            (folder / "aarch64" / name).mkdir(parents=True, exist_ok=True)
            cell_reach.write(folder / "aarch64" / name, reach)
    run: Any = SimpleNamespace(
        request=SimpleNamespace(tests=tests),
        suite=lambda _: SimpleNamespace(tests_of=("protocol", "fuzz"), costly=costly),
        folder_of=lambda cell: folder / cell.target / cell.suite,
    )
    base: Any = SimpleNamespace(of_target=lambda target: change if target == "aarch64" else None)
    return RepeatedTests(run, base).of(THREADS)


def test_tests_that_passed_without_the_change_do_not_run_again(tmp_path: Path) -> None:
    found = selected(tmp_path)
    assert found.without == ["lists-1", "restore"], "a test that failed or was skipped may do something else here"
    assert found.left_out is not None
    assert (found.left_out.tests, found.left_out.of) == (2, 7)
    assert found.left_out.before == "protocol and fuzz of this run"


def change(*functions: str, elsewhere: tuple[str, ...] = ()) -> CodeChange:
    """A difference from the base."""
    return CodeChange(functions=frozenset(functions), elsewhere=[*elsewhere])


@pytest.mark.parametrize(
    "of_base",
    [
        None,
        change(),
        change("processInlineBuffer", elsewhere=(".data of server.o",)),
        change("main"),
        change("processInlineBuffer", "IOThreadMain"),
    ],
    ids=["unknown", "nothing", "data", "what all tests enter", "what no test enters without threads"],
)
def test_all_run_if_the_others_do_not_tell_which_reach_the_change(tmp_path: Path, of_base: CodeChange | None) -> None:
    assert selected(tmp_path, of_base) == EVERY_TEST


def test_all_run_without_a_whole_record_of_the_others(tmp_path: Path) -> None:
    doubtful = CellReach(every=[], tests=PROTOCOL.tests, failed={}, skipped={}, count=2, problem="a line is damaged")
    assert selected(tmp_path / "one", protocol=None) == EVERY_TEST
    assert selected(tmp_path / "two", protocol=doubtful) == EVERY_TEST


def test_only_costly_suites_and_whole_checks_leave_them_out(tmp_path: Path) -> None:
    assert selected(tmp_path, costly=False) == selected(tmp_path, tests=("lists",)) == EVERY_TEST


def test_where_servers_started_in_the_audit_alone_it_tells(tmp_path: Path) -> None:
    dead = CellReach(every=["main"], tests={}, failed={"lists-1": [], "inline-1": []}, skipped={}, count=2)
    assert selected(tmp_path / "one", protocol=dead, audit=PROTOCOL).without == ["lists-1", "restore"]
    assert selected(tmp_path / "two", protocol=dead).without == ["restore"]
