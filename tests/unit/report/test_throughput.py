"""Throughput: the number of commands that the guests of a cell report, divided by the cell's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.record import cell_events, run_folder
from harness.report.formats import throughput
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path


def stored_folder(tmp_path: Path) -> Path:
    """A run with two cells that have guests, one of which started a peer, and with a suite that needs no server."""
    stored = StoredRun(tmp_path / "run", suites=("canary", "bitops", "persistence"))
    stored.canary("armv5")
    for suite, commands, target in (("bitops", 900, ""), ("bitops", 100, ""), ("persistence", 30, "sparc64")):
        stored.test("armv5", suite, "test_it")
        event = cell_events.GuestEvent(name="guest-1", end="stopped", commands=commands, target=target)
        stored.add("armv5", suite, event)
    folder = stored.finish()
    run = run_folder.read_run(folder)
    timed = [msgspec.structs.replace(cell, seconds=4.0) for cell in run.cells]
    run_folder.write_run(folder, msgspec.structs.replace(run, cells=timed, load=(1.25, 2.0)))
    return folder


def test_commands_of_all_guests_of_a_cell_are_divided_by_its_time(tmp_path: Path) -> None:
    folder = stored_folder(tmp_path)
    measured = throughput.cells(folder, run_folder.read_run(folder))
    assert [(one.suite, one.commands, one.per_second) for one in measured] == [
        ("bitops", 1000, 250.0),
        ("persistence", 30, 7.5),
    ]


def test_the_page_has_a_row_for_each_target_a_column_for_each_sending_suite_and_the_load(tmp_path: Path) -> None:
    folder = stored_folder(tmp_path)
    page = throughput.render(folder, run_folder.read_run(folder))
    assert "| target | bitops | persistence |" in page
    assert "| `armv5` | 250 (1,000 in 4 s) | 8 (30 in 4 s) |" in page
    assert "load average was 1.2 before the run and 2.0 after it" in page


def test_a_cell_that_took_no_time_has_no_throughput() -> None:
    assert throughput.Throughput(target="armv5", suite="bitops", commands=0, seconds=0.0).per_second == 0.0


def test_the_page_in_the_docs_is_one_that_the_command_wrote_for_all_required_targets() -> None:
    page = (ROOT / "docs" / "THROUGHPUT.md").read_text("utf-8")
    head = throughput.HEAD
    assert page.startswith(head)
    required = [name for name, target in Catalog().targets.items() if "required" in target.groups]
    assert required
    for name in required:
        assert f"| `{name}` |" in page
