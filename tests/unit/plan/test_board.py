"""A board's file is read strictly, and only a target of the user tier can be a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.plan.board import read_board
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from pathlib import Path

RUNNING = 'target = "armv6"\nreach = ["ssh", "-N", "-L", "{here}:/run/redis.sock", "pi"]\n'
SOUND = 'start = ["ssh", "pi"]\ntarget = "armv6"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "pi.toml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('start = ["ssh", "pi"]', "missing required field `target`"),
        ('target = "armv6"', "without start, one of reach and address leads to a server"),
        (RUNNING + 'address = "pi:6379"', "without start, one of reach and address leads to a server"),
        (RUNNING + 'put = ["scp", "{from}", "{to}"]', "put has no effect without start"),
        ('target = "armv6"\naddress = "pi"', "pi is not HOST:PORT"),
        ('target = "armv6"\nreach = ["ssh", "-L", "6379:localhost:6379"]', "reach does not contain {here}"),
        (SOUND + 'address = "pi:6379"', "has no other address"),
        (SOUND + 'puts = ["scp"]', "'put' is the nearest known key"),
        (SOUND + 'put = ["scp", "{from}", "pi:/tmp"]', "put does not contain {to}"),
        (SOUND + 'get = ["scp", "{to}"]', "get does not contain {from}"),
        (SOUND + 'reach = ["ssh", "-L", "{here}:127.0.0.1:6379"]', "reach does not contain {there}"),
        (SOUND + 'reach = ["adb", "forward", "tcp:{port here}", "tcp:6379"]', "reach does not contain {port there}"),
        (SOUND + 'folder = "tmp"', "tmp is not an absolute path"),
        (SOUND + 'words = "words"', "Invalid enum value 'words'"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_key(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        read_board(path)
    assert says in str(raised.value)
    assert str(path) in raised.value.where


def test_the_line_of_a_wrong_key_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND + 'folder = "tmp"')
    with pytest.raises(UsageError) as raised:
        read_board(path)
    assert raised.value.where == f"{path}:3"


def test_a_board_takes_the_place_of_its_targets_emulator(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND)
    catalog = Catalog()
    on_board = catalog.on_board(read_board(path), path)
    board, emulated = on_board.targets["armv6"].emulator, catalog.targets["armv6"].emulator
    assert (board.is_board, board.is_elsewhere, board.is_qemu_user, board.can_audit) == (True, True, False, False)
    assert (emulated.is_board, emulated.is_elsewhere) == (False, False)
    assert on_board.targets["armv6"].demand == catalog.targets["armv6"].demand
    assert on_board.targets["armv5"] == catalog.targets["armv5"]


def test_a_machine_like_the_host_can_be_a_board_of_a_host_that_compiles_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, SOUND.replace("armv6", "x86_64"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    target = Catalog().on_board(read_board(path), path).targets["x86_64"]
    assert target.title == f"x86-64, the machine of {path.name}"
    assert (target.emulator.is_board, target.emulator.runs_here) == (True, False)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="a board cannot be the target x86_64"):
        Catalog().on_board(read_board(path), path)


@pytest.mark.parametrize("name", ["native", "native-asan", "armv5-kernel", "armv66"])
def test_other_targets_cannot_be_boards(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, SOUND.replace("armv6", name))
    with pytest.raises(UsageError) as raised:
        Catalog().on_board(read_board(path), path)
    assert str(path) in raised.value.where
