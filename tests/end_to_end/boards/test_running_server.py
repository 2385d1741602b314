"""A server that runs already is asked, and never started: its end is a lost connection, which says nothing."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from harness.core.processes import process
from harness.core.sockets import connect
from harness.protocol.resp import Client
from harness.run.servers.probes import answers_ping
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

SECONDS = 60.0


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Starts a release for ARMv5, and returns the file of its board: a link leads to its socket."""
    running: list[subprocess.Popen[bytes]] = []

    def start(release: str) -> Path:
        build = machines.build(machines.quiet_workbench().open_server(release), "armv5")
        runner, place = machines.runner("armv5"), tmp_path / "its-socket"
        words: list[str | Path] = [str(runner.program), *runner.options, build.server_binary, "--port", "0"]
        words += ["--unixsocket", place, "--save", "", "--dir", tmp_path]
        running.append(process.start(words, folder=tmp_path))
        deadline = time.monotonic() + SECONDS
        while not answers_ping(place):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        board = tmp_path / "board.toml"
        board.write_text(f'target = "armv5"\nreach = ["ln", "-s", {json.dumps(str(place))}, "{{here}}"]\n', "utf-8")
        return board

    yield start
    for each in running:
        process.kill_group(each)


def test_its_keys_are_deleted_only_if_that_is_allowed(started: Callable[[str], Path], tmp_path: Path) -> None:
    board = started("redis-7.0.15")
    finished = run("board", board)
    assert finished.returncode == ExitCode.PASS, finished.stdout
    assert finished.stdout.startswith("works server   version 7.0.15, os Linux")
    with Client(connect(tmp_path / "its-socket", deadline_seconds=SECONDS)) as client:
        client.command("SET", "mine", "value")
        words = ["check", "--board", board, "--suite", "bitops", "--test", "bitpos_finds", "--json"]
        refused = run(*words, "--run", tmp_path / "refused")
        assert refused.returncode == ExitCode.USAGE
        assert "--flush allows that" in refused.stderr
        assert client.command("GET", "mine") == b"value"
        found = document(run(*words, "--flush", "--run", tmp_path / "run"))
        assert client.command("GET", "mine") is None
    (cell,) = [cell for cell in found["cells"] if cell["suite"] == "bitops"]
    # Nothing proves what the machine does with misaligned accesses, so that nothing passes.
    assert (cell["verdict"], cell["failed"], cell["passed"] > 0) == ("UNKNOWN", 0, True)
    assert "no program can be run on the board" in json.dumps(found["cells"])
    assert found["findings"] == []


def test_its_end_is_a_lost_connection_with_the_last_requests(started: Callable[[str], Path], tmp_path: Path) -> None:
    board = started("redis-3.2.6")
    words = ["--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds", "--run", tmp_path / "run"]
    found = document(run("check", "--board", board, "--flush", *words, "--json"))
    (cell,) = [cell for cell in found["cells"] if cell["suite"] == "bitops"]
    assert cell["verdict"] == "UNKNOWN"
    assert "the server that runs on the board was lost" in cell["reason"]
    assert re.search(r"the last requests: SET k .*; BITPOS k \d", cell["reason"])
    assert found["findings"] == []
