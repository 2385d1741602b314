"""What a cell changes on a board is put back, whoever ends it; `env` stands for ssh, and files for the kernel's."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import InfrastructureError
from harness.plan.board import Board
from harness.run.boards.board_image import BoardImage
from harness.run.boards.board_keeper import BoardKeeper
from harness.run.boards.remote_shell import RemoteShell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNTED = "User:\t\t{user}\nSystem:\t\t0 (0x0)\nSkipped:\t0\nHalf:\t\t0\nWord:\t\t{user}\nDWord:\t\t0\nMulti:\t\t0\n"
SECONDS = 30.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def shell(tmp_path: Path, mode: int | None) -> RemoteShell:
    (tmp_path / "counters").write_text(COUNTED.format(user=5) + "User faults:\t2 (fixup)\n", "utf-8")
    (tmp_path / "switch").write_text("User faults:\t2 (fixup)\n", "utf-8")
    image = BoardImage(
        board=Board(start=["env"], target="armv5", words="exact"),
        file="my.toml",
        environment=dict(os.environ),
        counting_file=str(tmp_path / "counters"),
        switch_file=str(tmp_path / "switch"),
        mode=mode,
    )
    return RemoteShell(image)


def test_the_policys_mode_is_set_and_put_back_with_the_folder(tmp_path: Path) -> None:
    keeper = BoardKeeper(shell(tmp_path, 4), str(tmp_path / "cell"))
    assert keeper.replaced_mode == "2"
    assert (tmp_path / "switch").read_text("utf-8") == "4\n"
    assert keeper.mode() == 4
    (tmp_path / "cell" / "file").write_text("", "utf-8")
    keeper.close()
    assert (tmp_path / "switch").read_text("utf-8") == "2\n"
    assert not (tmp_path / "cell").exists()


def test_they_are_put_back_when_the_connection_is_cut(tmp_path: Path) -> None:
    keeper = BoardKeeper(shell(tmp_path, 4), str(tmp_path / "cell"))
    # As when Plumbline is killed: nobody is left to close it.
    keeper.script.process.stdin.close()  # type: ignore[union-attr]
    until(lambda: not (tmp_path / "cell").exists())
    assert (tmp_path / "switch").read_text("utf-8") == "2\n"


def test_no_signal_keeps_the_mode_from_being_put_back(tmp_path: Path) -> None:
    keeper = BoardKeeper(shell(tmp_path, 4), str(tmp_path / "cell"))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        keeper.script.process.send_signal(number)
    assert keeper.counters() is not None
    keeper.close()
    assert (tmp_path / "switch").read_text("utf-8") == "2\n"


def test_a_mode_that_is_set_already_or_that_nothing_asks_for_stays(tmp_path: Path) -> None:
    for mode in (2, None):
        keeper = BoardKeeper(shell(tmp_path, mode), str(tmp_path / "cell"))
        assert keeper.replaced_mode == ""
        keeper.close()
        assert (tmp_path / "switch").read_text("utf-8") == "User faults:\t2 (fixup)\n"


def test_the_counters_are_read_until_the_mode_changes(tmp_path: Path) -> None:
    keeper = BoardKeeper(shell(tmp_path, None), str(tmp_path / "cell"))
    try:
        first = keeper.counters()
        (tmp_path / "counters").write_text(COUNTED.format(user=7) + "User faults:\t2 (fixup)\n", "utf-8")
        second = keeper.counters()
        assert first is not None
        assert second is not None
        assert (first.user, second.user, second.word) == (5, 7, 7)
        (tmp_path / "counters").write_text(COUNTED.format(user=7) + "User faults:\t4 (signal)\n", "utf-8")
        with pytest.raises(InfrastructureError, match="alignment mode has changed") as raised:
            keeper.counters()
        assert "it was 2, and is 4" in raised.value.because
        (tmp_path / "counters").unlink()
        with pytest.raises(InfrastructureError, match="has changed"):
            keeper.counters()
    finally:
        keeper.close()


def test_a_kernel_without_counters_tells_none(tmp_path: Path) -> None:
    way = shell(tmp_path, None)
    (tmp_path / "counters").unlink()
    keeper = BoardKeeper(way, str(tmp_path / "cell"))
    assert keeper.counters() is None
    keeper.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="folder cannot be used") as raised:
        BoardKeeper(shell(tmp_path, 4), str(tmp_path / "absent" / "cell"))
    assert "No such file" in raised.value.because
    assert (tmp_path / "switch").read_text("utf-8") == "User faults:\t2 (fixup)\n"
