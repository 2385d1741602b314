"""Damaged RDB and AOF files at start-up: the server may refuse to start, it may not die of a signal or hang.

What it does take it must take as the native build does. Before 6.2 nothing sanitises a file whose checksum fits: then
files are cut off only. A command in an AOF that lacks words is left to `persistence`: Redis carries it out
(docs/FOUND.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.resp import Client
from harness.stream import wire
from suites.fuzz.corrupt import arities, damaged_file, lacks_words, rdb_file
from suites.fuzz.generate import generate
from suites.fuzz.payloads import Payload, payloads
from suites.fuzz.session import Session

if TYPE_CHECKING:
    import random

    from harness.cell_run import CellRun
    from harness.stream import Stream

AOF = "appendonly.aof"
RDB = "dump.rdb"


def test_files(cell_run: CellRun, defaults: dict[str, Stream]) -> None:
    if cell_run.cell.runner.target.emulator.kind == "system":
        pytest.skip("a machine has no folder that files can be put into")
    sanitises = "sanitize-dump-payload" in cell_run.cell.abilities.options
    session = Session(cell_run, defaults, name="files", share=0.08, cost=36)
    with Client.at_socket(cell_run.oracle().socket_path, deadline_seconds=20) as client:
        least = arities(client.command("COMMAND")) if sanitises else None  # type: ignore[arg-type]
    while session.more():
        name, content = _file(session, payloads(session, cell_run), least)
        options = ["--appendonly", "yes"] if name == AOF else []
        session.start_up({name: content}, [*options, *(["--sanitize-dump-payload", "yes"] if sanitises else [])])
    session.conclude()


def _file(session: Session, stored: list[Payload], least: dict[bytes, int] | None) -> tuple[str, bytes]:
    """A damaged file's name and content. `least`: how many words commands have; None: it is cut off, and no more."""
    random = session.random
    chosen = random.sample(stored, min(len(stored), 3))
    whole = rdb_file({key: payload for _, key, payload in chosen})
    if random.random() < 0.6:
        return RDB, _cut(whole, random) if least is None else damaged_file(whole, random)
    commands = wire(generate(random))
    # Since Redis 4 an AOF may begin with an RDB file.
    if session.cell.version >= (4,) and random.random() < 0.4:
        commands = whole + commands
    if least is not None and random.random() < 0.4:
        content = damaged_file(commands, random)
        if not lacks_words(content, least):
            return AOF, content
    return AOF, _cut(commands, random)


def _cut(content: bytes, random: random.Random) -> bytes:
    return content[: random.randrange(len(content))]
