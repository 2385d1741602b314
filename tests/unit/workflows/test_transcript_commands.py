"""The commands that a failed test sent, for a finding whose reproducer has none."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.finding import Witness
from harness.protocol.command_stream import from_text
from harness.record import event_log
from harness.record.cell_events import GuestEvent
from harness.record.transcript import save
from harness.workflows.replay.recorded_requests import chunks_of, sent_stream
from harness.workflows.replay.transcript_commands import with_commands_of_test
from tests.support.reproducers import reproducer

if TYPE_CHECKING:
    from pathlib import Path

TEST = "persistence/test_forks.py::test_what_a_child_saves"
WITNESS = Witness(
    target="sparc64",
    suite="persistence",
    file="",
    line=0,
    instruction="",
    access="",
    test=TEST,
    evidence="",
    backtrace=[],
)
LITTLE, MUCH = from_text("PING\n"), from_text("SET k v\nSAVE\n")


def stored(folder: Path, *events: GuestEvent) -> None:
    """The servers of a cell. Those with an even number received few commands, the others many."""
    cell = folder / "sparc64" / "persistence"
    cell.mkdir(parents=True)
    (cell / event_log.NAME).write_bytes(b"".join(json_codec.encode(one) + b"\n" for one in events))
    for number, one in enumerate(events):
        place = cell / one.name
        (place / "inputs").mkdir(parents=True)
        (place / "inputs" / "dump.rdb").write_bytes(b"file of " + one.name.encode())
        save(place / "transcript-0.jsonl", chunks_of(MUCH if number % 2 else LITTLE))


def guest(name: str, **of: object) -> GuestEvent:
    sent = GuestEvent(
        name=name,
        end="stopped",
        test=TEST,
        own=True,
        transcript="transcript-0.jsonl",
        options=("--databases", name[-1]),
    )
    return msgspec.structs.replace(sent, **of)


def test_the_commands_are_those_of_the_server_that_received_the_most(tmp_path: Path) -> None:
    stored(tmp_path, guest("guest-1"), guest("guest-2"))
    found = with_commands_of_test(tmp_path, WITNESS, reproducer(chunks=[], target="native"))
    assert sent_stream(found.chunks) == MUCH
    assert (found.target, found.options) == ("sparc64", ("--databases", "2"))
    assert {name: base64.b64decode(text) for name, text in found.files.items()} == {"dump.rdb": b"file of guest-2"}


def test_servers_of_other_tests_and_other_machines_do_not_count(tmp_path: Path) -> None:
    others = guest("guest-2", test="persistence/other.py::test"), guest("guest-4", target="armv5")
    stored(
        tmp_path,
        guest("guest-1"),
        others[0],
        guest("guest-3"),
        others[1],
        guest("guest-5"),
        guest("guest-6", own=False),
    )
    found = with_commands_of_test(tmp_path, WITNESS, reproducer(chunks=[]))
    assert sent_stream(found.chunks) == LITTLE
    (tmp_path / "none").mkdir()
    stored(tmp_path / "none", others[0])
    without = reproducer(chunks=[])
    assert with_commands_of_test(tmp_path / "none", WITNESS, without) == without


def test_a_reproducer_keeps_its_own_commands(tmp_path: Path) -> None:
    stored(tmp_path, guest("guest-1"))
    own = reproducer(chunks=chunks_of(MUCH))
    assert with_commands_of_test(tmp_path, WITNESS, own) == own
