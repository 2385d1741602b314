"""The runs in odd places: their settings meet in pairs, folders are as named, and processes get what they should."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from harness.core.errors import ExitCode
from harness.core.processes import process
from tests.support.waits import TimedTest
from tools.odd_places import __main__ as command
from tools.odd_places import start, trial
from tools.odd_places.place import checkout_path, started
from tools.odd_places.runs import FOLDERS, LENGTHS, RUNS, SIDE_BY_SIDE, Run, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

ODD = [run for run in RUNS if not run.busy]


def test_every_two_values_of_two_settings_meet_in_a_run() -> None:
    values = {name: {getattr(run.settings, name) for run in ODD} for name in Settings.__struct_fields__}
    assert all(len(found) > 1 for found in values.values())
    for one, other in itertools.combinations(values, 2):
        met = {(getattr(run.settings, one), getattr(run.settings, other)) for run in ODD}
        assert met == set(itertools.product(values[one], values[other])), (one, other)


def test_every_folder_has_a_run_and_two_runs_go_on_side_by_side() -> None:
    assert sorted(run.folder for run in RUNS) == sorted(FOLDERS)
    assert len(SIDE_BY_SIDE) == 2
    assert set(SIDE_BY_SIDE) <= {run.name for run in ODD}
    assert [(run.busy, run.times) for run in RUNS if run.busy] == [(4, 3)]


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_path_has_the_length_or_the_letters_of_its_kind(kind: str) -> None:
    base = Path("/abcd/fghi")
    path = checkout_path(base, kind)
    assert path.is_relative_to(base)
    if kind in LENGTHS:
        assert len(str(path)) == LENGTHS[kind]
    signs = {"spaces": " ", "single quote": "'", "double quote": '"', "non-ASCII": "ş"}
    assert signs.get(kind, "") in str(path)


SAYS = """
import json, os
umask = os.umask(0)
try:
    columns = os.get_terminal_size().columns
except OSError:
    columns = 0
print(json.dumps([os.getcwd(), os.environ["PWD"], umask, os.getuid(), columns]))
"""


def said_by(orders: start.Orders) -> list[object]:
    ended = process.run(
        started(orders, [sys.executable, "-c", SAYS]), deadline_seconds=60, environment=dict(os.environ)
    )
    assert ended.code == 0, ended.text
    found = json.loads(ended.text)
    assert isinstance(found, list)
    return found


def test_a_process_has_the_settings_that_are_ordered(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / 'a "link"'
    link.symlink_to("real")
    usual = said_by(start.Orders(folder=str(link)))
    assert usual == [str(tmp_path / "real"), str(link), 0o022, os.getuid(), 0]
    odd = said_by(start.Orders(folder=str(tmp_path), umask=0o077, narrow_terminal=True))
    assert odd == [str(tmp_path), str(tmp_path), 0o077, os.getuid(), start.COLUMNS]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_root_becomes_another_user() -> None:
    words = ["sh", "-c", "id --user; id --groups"]
    ended = process.run(started(start.Orders(folder="/", user=54321), words), deadline_seconds=60)
    assert ended.text.split() == ["54321", "54321"]


class Places(trial.Trial):
    """A trial whose tests fail as the settings say: `umask` with a umask, `both` with two settings, `once` once."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, None, Path(), 2)  # type: ignore[arg-type]
        self.runs: list[str] = []

    def _tests(
        self,
        settings: Settings,
        tests: Sequence[str],
        name: str,
        workers: int,  # noqa: ARG002
    ) -> tuple[list[TimedTest], process.Result]:
        self.runs.append(name)
        fails = {
            "umask": settings.private_files,
            "both": settings.private_files and settings.no_network,
            "folder": True,
            "once": len(self.runs) == 1,
        }
        asked = [*fails, "never"] if tests == trial.TESTS else tests
        records = [
            TimedTest(
                test=test,
                outcome="failed" if fails.get(test) else "passed",
                started=0,
                real=0,
                own=0,
                children=0,
                running=0,
            )
            for test in asked
        ]
        code = int(any(one.outcome == "failed" for one in records))
        return records, process.Result([], code, b"", expired=False, seconds=1)


def test_of_a_test_that_fails_the_setting_is_named_that_fails_it_alone() -> None:
    run = Run("x", "spaces", Settings(private_files=True, no_network=True))
    outcome = Places(run).outcome()
    assert outcome.failed == {
        "both": [],
        "folder": ["the folder"],
        "once": ["not again"],
        "umask": ["private_files"],
    }
    assert (outcome.passed, outcome.good) == (1, False)
    assert "both  [all together]" in command.shown(outcome)


def test_a_run_that_does_not_exist_is_refused_and_the_list_names_all() -> None:
    refused = CliRunner().invoke(command.main, ["--only", "nonsense"])
    assert (refused.exit_code, "no run is named nonsense" in refused.output) == (ExitCode.NOTHING_SELECTED, True)
    listed = CliRunner().invoke(command.main, ["--list"])
    assert [line.partition(":")[0] for line in listed.output.splitlines()] == [run.name for run in RUNS]
