"""Damaged RDB and AOF files at start-up: the server may refuse to start, it may not die of a signal or hang.

What it does take it must take as the native build does. Before 6.2 nothing sanitises a file whose checksum fits: then
files are cut off only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.stream import wire
from suites.fuzz.corrupt import damaged_file, rdb_file
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
    sanitises = cell_run.cell.version >= (6, 2)
    session = Session(cell_run, defaults, name="files", share=0.08, cost=36)
    while session.more():
        name, content = _file(session, payloads(session, cell_run), sanitises=sanitises)
        options = ["--appendonly", "yes"] if name == AOF else []
        session.start_up({name: content}, [*options, *(["--sanitize-dump-payload", "yes"] if sanitises else [])])
    session.conclude()


def _file(session: Session, stored: list[Payload], *, sanitises: bool) -> tuple[str, bytes]:
    random = session.random
    chosen = random.sample(stored, min(len(stored), 3))
    whole = rdb_file({key: payload for _, key, payload in chosen})
    if random.random() < 0.6:
        return RDB, damaged_file(whole, random) if sanitises else _cut(whole, random)
    commands = wire(generate(random))
    # Since Redis 4 an AOF may begin with an RDB file.
    if session.cell.version >= (4,) and random.random() < 0.4:
        commands = whole + commands
    return AOF, damaged_file(commands, random) if sanitises and random.random() < 0.4 else _cut(commands, random)


def _cut(content: bytes, random: random.Random) -> bytes:
    return content[: random.randrange(len(content))]
