"""A log stays small however much is written to it, and keeps its head, its tail and its offsets."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import capped_log, process
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from tests.support import fakes
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 1 << 20
HEAD = b"first\n"
CHATTY = "echo first; head -c {size} /dev/zero | tr '\\0' x; echo; echo last"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capped_log, "LIMIT_BYTES", LIMIT)
    monkeypatch.setattr(capped_log, "LOOK_SECONDS", 0.01)


def test_a_short_log_is_unchanged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = process.run(["sh", "-c", CHATTY.format(size=LIMIT // 2)], deadline_seconds=60, log=log)
    assert result.output == HEAD + b"x" * (LIMIT // 2) + b"\nlast\n"
    assert capped_log.left_out_bytes(result.output) == 0
    assert log.read_bytes().endswith(result.output)


def test_head_and_tail_of_a_long_output_are_kept_with_a_line_between_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    size = 8 * LIMIT
    result = process.run(["sh", "-c", CHATTY.format(size=size)], deadline_seconds=60, log=log)
    assert len(result.output) < LIMIT + 100
    assert result.output.startswith(HEAD)
    assert result.output.endswith(b"x\nlast\n")
    left_out = size + len(HEAD) + 6 - LIMIT
    assert f"\n[plumbline: {left_out} bytes are left out here]\n".encode() in result.output
    assert capped_log.left_out_bytes(result.output) == left_out
    assert log.read_bytes().startswith(b"$ sh -c ")
    assert log.read_bytes().endswith(result.output)
    again = process.run(["echo", "again"], deadline_seconds=60, log=log)
    assert again.text == "again\n"
    assert log.read_bytes().endswith(b"last\n$ echo again\nagain\n")


@pytest.mark.parametrize("holes", [True, False], ids=["with holes", "without"])
def test_disk_space_is_released_while_the_log_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, holes: bool
) -> None:
    if not holes:
        monkeypatch.setattr(capped_log, "_punch", lambda *_: False)
    path = tmp_path / "log"
    with path.open("wb") as log:
        watched = capped_log.CappedLog(log.fileno())
        for _ in range(64):
            log.write(HEAD + b"y" * (LIMIT // 4))
            log.flush()
        # More than this has yet to be cut. A write during a cut without holes may be lost.
        settled = LIMIT + LIMIT // 8
        assert eventually(lambda: path.stat().st_blocks * 512 <= settled), "the removed part still uses disk space"
        newest = HEAD + b"z" * 1000
        log.write(newest)
        log.flush()
        size = 64 * (len(HEAD) + LIMIT // 4) + len(newest)
        time.sleep(3 * capped_log.LOOK_SECONDS)
        assert path.read_bytes().endswith(newest), "the newest part is gone"
        assert path.stat().st_size == size, "offsets have changed"
        log.write(b"last\n")
        log.flush()
        # The watcher may check again before the log is closed.
        time.sleep(3 * capped_log.LOOK_SECONDS)
        watched.close()
        watched.close()
    content = path.read_bytes()
    assert len(content) < LIMIT + 100
    assert (content[: len(HEAD)], content[-5:]) == (HEAD, b"last\n")
    assert capped_log.as_written(content, 5) == 5
    assert capped_log.as_written(content, len(content) - 5) == size


def test_a_log_that_is_cut_keeps_its_head_its_tail_and_its_size(tmp_path: Path) -> None:
    """Where a file system makes no holes. Nothing writes meanwhile."""
    path = tmp_path / "log"
    written = HEAD + os.urandom(3 * LIMIT)
    path.write_bytes(written)
    with path.open("r+b") as log:
        capped_log._cut(log.fileno(), 0)  # noqa: SLF001
    kept = path.read_bytes()
    half = LIMIT // 2
    assert (len(kept), kept[:half], kept[-half:]) == (len(written), written[:half], written[-half:])


def test_a_servers_log_is_capped(tmp_path: Path) -> None:
    build = fakes.build(tmp_path)
    script = "#!/bin/sh\necho first; head -c 8M /dev/zero | tr '\\0' x; echo; echo last; exec sleep 60\n"
    fakes.write(build.server_binary, script, mode=0o755)
    runner = fakes.unemulated(fakes.target())
    guest = Guest(ServerSpec(build=build, version=(7, 0, 15)), runner, tmp_path / "guest", sockets=tmp_path)
    guest.folder.mkdir()
    guest.launch()
    try:
        assert eventually(lambda: guest.evidence.log_tail(1) == "last"), guest.evidence.log_bytes()
        assert guest.evidence.log_bytes() > 8 << 20
        assert eventually(lambda: guest.evidence.log.stat().st_blocks * 512 <= 2 * LIMIT)
    finally:
        guest.__exit__()
    assert guest.evidence.log.stat().st_size < LIMIT + 100


def test_a_missing_log_has_no_tail(tmp_path: Path) -> None:
    assert capped_log.tail_of(tmp_path / "log", 10) == b""
    assert capped_log.last_lines(tmp_path / "log", 2) == ""
    (tmp_path / "log").write_bytes(b"one\ntwo \xff\nthree\n")
    assert capped_log.last_lines(tmp_path / "log", 2) == "two \N{REPLACEMENT CHARACTER}\nthree"
