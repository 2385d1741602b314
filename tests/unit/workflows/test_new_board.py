"""`plumb board --new` writes a file that `plumb check --board` reads, and overwrites none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.plan.board import read_board
from harness.plan.catalog import Catalog
from harness.workflows.boards.new_board import asked, ssh_board, target_for, write

if TYPE_CHECKING:
    from pathlib import Path


def test_the_file_is_read_as_a_board_of_the_named_target(tmp_path: Path) -> None:
    path, catalog = tmp_path / "pi.toml", Catalog()
    write(path, ssh_board("pi@raspberrypi", target_for(catalog, "armv7l", "armv6", path)))
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
        target_for(Catalog(), "x86_64", "native", tmp_path / "pi.toml")


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("armv6l", "armv6"),
        ("armv5tejl", "armv5"),
        ("aarch64", "aarch64"),
        ("aarch64_be", "aarch64_be"),
        ("armv7b", "armeb"),
    ],
)
def test_the_machine_names_its_target(tmp_path: Path, machine: str, name: str) -> None:
    assert target_for(Catalog(), machine, "", tmp_path / "pi.toml").name == name


@pytest.mark.parametrize(("machine", "one_of"), [("mips", "one of: mips, mipsel"), ("vax", "armv5"), ("", "armv5")])
def test_several_targets_and_none_need_a_named_one(tmp_path: Path, machine: str, one_of: str) -> None:
    with pytest.raises(UsageError) as raised:
        target_for(Catalog(), machine, "", tmp_path / "pi.toml")
    assert "--target NAME" in raised.value.remedy
    assert one_of in raised.value.remedy


def test_a_server_of_ssh_that_forwards_ports_alone_gets_ports(tmp_path: Path) -> None:
    path = tmp_path / "pi.toml"
    write(path, ssh_board("pi@raspberrypi", Catalog().targets["armv6"], forwards_sockets=False))
    board = read_board(path)
    assert board.by_port
    assert "{port here}:127.0.0.1:{port there}" in board.reach


def test_a_machine_that_does_not_answer_is_named_with_what_ssh_says() -> None:
    with pytest.raises(UsageError, match="ssh does not log in") as raised:
        asked("nobody@host.invalid")
    assert "Could not resolve hostname host.invalid" in raised.value.because
    assert "debug1" not in raised.value.because
