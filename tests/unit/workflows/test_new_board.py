"""`plumb board --new` writes a file that `plumb check --board` reads, and overwrites none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.plan.board import read_board
from harness.plan.catalog import Catalog
from harness.workflows.boards.new_board import ssh_board, target_for, write

if TYPE_CHECKING:
    from pathlib import Path


def test_the_file_is_read_as_a_board_of_the_named_target(tmp_path: Path) -> None:
    path, catalog = tmp_path / "pi.toml", Catalog()
    write(path, ssh_board("pi@raspberrypi", target_for(catalog, "pi@raspberrypi", "armv6", path)))
    board = read_board(path)
    assert (board.target, board.words, board.by_port) == ("armv6", "shell", False)
    assert (board.start[0], board.start[-1], board.reach[-1]) == ("ssh", "pi@raspberrypi", "pi@raspberrypi")
    assert {"BatchMode=yes", "ControlPath=none"} <= {*board.start} & {*board.reach}
    assert "{here}:{there}" in board.reach
    with pytest.raises(UsageError, match="exists already"):
        write(path, "")
    assert read_board(path) == board


def test_a_target_that_no_board_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown target"):
        target_for(Catalog(), "pi@raspberrypi", "native", tmp_path / "pi.toml")


def test_a_machine_that_does_not_answer_needs_a_named_target(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        target_for(Catalog(), "nobody@host.invalid", "", tmp_path / "pi.toml")
    assert "--target NAME" in raised.value.remedy
