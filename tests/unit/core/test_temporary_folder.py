"""Temporary folders: one for each command, with a path short enough for sockets, removed however the command ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import InfrastructureError
from harness.core.processes import temporary_folder
from harness.core.strict_toml import ROOT
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from tests.support import fakes
from tests.support.survivors import SLEEP, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = """
import os, sys, tempfile, time
from harness.core.processes import process, temporary_folder as temporary
temporary.confine()
kept = tempfile.mkdtemp(prefix="plumbline-")
open(os.path.join(kept, "file"), "w").close()
{then}
print(kept, flush=True)
time.sleep(float(sys.argv[1]))
"""
STARTS = f"process.start(['sleep', '{SLEEP}'])"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files with a short path."""
    with tempfile.TemporaryDirectory(prefix="pt-", dir="/tmp") as folder:
        yield Path(folder)


def command(place: Path, seconds: float, then: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(then=then), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "TMPDIR": str(place)},
    )


def folder_of(started: subprocess.Popen[str]) -> Path:
    assert started.stdout is not None
    return Path(started.stdout.readline().strip())


def test_all_temporary_files_are_in_one_folder_that_is_removed_with_the_command(place: Path) -> None:
    with command(place, 0) as started:
        folder = folder_of(started)
        assert started.wait() == 0
    assert folder.parent.parent == place
    assert list(place.iterdir()) == []


def test_the_watchdog_removes_the_files_of_a_killed_command(place: Path) -> None:
    with command(place, 60, STARTS) as started:
        assert folder_of(started).is_dir()
        started.send_signal(signal.SIGKILL)
        started.wait()
        assert eventually(lambda: list(place.iterdir()) == []), list(place.rglob("*"))


@pytest.mark.parametrize("starts", ["", STARTS])
def test_a_kept_folder_is_removed_however_its_program_ends(place: Path, starts: str) -> None:
    keeps = f"process.keep_folder(__import__('pathlib').Path(kept)); {starts}"
    text = COMMAND.replace("temporary.confine()", "").format(then=keeps)
    for seconds in (0, 60):
        with subprocess.Popen(
            [sys.executable, "-c", text, str(seconds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "TMPDIR": str(place)},
        ) as started:
            folder = folder_of(started)
            assert folder.parent == place
            if seconds:
                assert folder.is_dir()
                started.kill()
            started.wait()
            assert eventually(lambda folder=folder: not folder.exists()), f"it is left after {seconds} s"  # type: ignore[misc]


def test_the_next_command_removes_abandoned_folders_and_no_held_ones(place: Path) -> None:
    with command(place, 60) as dead, command(place, 60) as alive:
        left, held = folder_of(dead).parent, folder_of(alive).parent
        dead.kill()
        dead.wait()
        assert left.is_dir(), "only the watchdog could have removed it"
        for folder in (left, held):
            os.utime(folder, (1, 1))
        foreign = fakes.write(place / "plumb-of-somebody" / "file", "")
        os.utime(foreign.parent, (1, 1))
        # Their commands may not have locked them yet.
        young = [fakes.write(place / f"plumb-young-{number}" / "lock", "").parent for number in range(8)]
        with command(place, 0) as following:
            following.wait()
        assert (left.exists(), held.is_dir(), foreign.is_file()) == (False, True, True)
        assert all(folder.is_dir() for folder in young)
        alive.kill()


def test_sockets_get_a_short_path_if_temporary_files_have_a_long_one(tmp_path: Path) -> None:
    place = tmp_path / ("x" * 100)
    place.mkdir()
    with command(place, 0) as started:
        assert started.wait() == 0
        folder = folder_of(started)
    assert len(os.fsencode(folder)) < temporary_folder.SOCKET_PATH_BYTES - 30


def test_if_no_path_is_short_the_machine_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_folder, "BELOW_BYTES", 106)
    with pytest.raises(InfrastructureError, match="short enough for sockets") as caught:
        temporary_folder._place()  # noqa: SLF001
    assert "TMPDIR=/tmp" in caught.value.remedy


def test_a_place_without_room_is_not_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: on a full disk Python wrote half a module, and the check ended in `EOFError`."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert temporary_folder._place() == str(place)  # noqa: SLF001
    monkeypatch.setattr(temporary_folder, "ROOM_BYTES", 1 << 62)
    with pytest.raises(InfrastructureError, match="no folder for temporary files has room") as caught:
        temporary_folder._place()  # noqa: SLF001
    assert str(place) in caught.value.where


def test_room_is_what_the_disk_says(place: Path) -> None:
    free = shutil.disk_usage(place).free
    assert temporary_folder.has_room(str(place), free // 2)
    assert not temporary_folder.has_room(str(place), 2 * free)


def test_a_guest_whose_socket_path_would_be_too_long_is_blamed_on_the_machine(tmp_path: Path) -> None:
    sockets = tmp_path / ("x" * 100)
    sockets.mkdir()
    guest = Guest(
        ServerSpec(build=fakes.build(tmp_path), version=(7, 0, 15)),
        fakes.unemulated(fakes.target()),
        tmp_path / "guest",
        sockets=sockets,
    )
    with pytest.raises(InfrastructureError, match="too long for a socket"):
        guest.__enter__()
