"""Damaged RDB and AOF files at start-up: the server may refuse to start, but must not die of a signal or hang.

It must load a file exactly as the native build does. Before 6.2 servers do not sanitise a file whose checksum matches;
for those releases the files are only cut off. The `persistence` suite tests commands in an AOF that lack words, because
Redis runs them (docs/FOUND.md). A file begins like a file that the server saved, and the server must load an undamaged
file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.protocol.command_stream import command, wire
from harness.protocol.resp import Client
from suites.fuzz.corrupt import arities, damaged_file, fitting_file, lacks_words, rdb_file
from suites.fuzz.generate import generate
from suites.fuzz.grammar import themes_of_data
from suites.fuzz.payloads import Payload, payloads
from suites.fuzz.session import FuzzSession

if TYPE_CHECKING:
    import random

    from harness.run.cell_spec import CellSpec
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.emptying import Emptying

AOF = "appendonly.aof"
RDB = "dump.rdb"
CUTS = "option aof-load-truncated"
"""What a server needs to load an AOF without the cut end of a request. Older ones refuse the file."""
MIXED = "option aof-use-rdb-preamble"
"""What a server needs to load an AOF that begins with an RDB file."""
_BEGINNING = (command("SELECT", 0), command("SET", "sound", "value"), command("RPUSH", "sound:list", 1, "x"))
"""The beginning of an AOF as a server writes it: it selects a database first, and contains no inline command."""


def test_files(cell_run: CellSession, emptying: Emptying) -> None:
    if cell_run.cell.runner.target.emulator.is_elsewhere:
        pytest.skip("no file can be put into the folder of a server on another machine")
    sanitises = "sanitize-dump-payload" in cell_run.cell.abilities.options
    # Without sanitising, a server refuses a damaged or cut RDB file, and loads an AOF only up to the cut.
    taken_damages = [RDB] * sanitises + [AOF] * (not cell_run.cell.lacks(CUTS))
    session = FuzzSession(cell_run, emptying, name="files", share=0.08, cost=36, damages=taken_damages)
    oracle = cell_run.servers.oracle()
    with Client.at_socket(oracle.upstream, deadline_seconds=oracle.runner.target.host_deadline_seconds(20)) as client:
        least = arities(client.command("COMMAND")) if sanitises else None  # type: ignore[arg-type]
        assert client.command("SAVE") == b"OK"
    saved = oracle.read(RDB)
    sanitising = ["--sanitize-dump-payload", "yes"] if sanitises else []

    def start(name: str, content: bytes, *, sound: bool = False) -> bool:
        options = ["--appendonly", "yes"] if name == AOF else []
        return session.start_up({name: content}, [*options, *sanitising], sound=sound)

    for name, content in _sound(_whole(payloads(session, cell_run), saved, session.random), cell_run.cell):
        if not session.has_enough_failures:
            start(name, content, sound=True)
    while session.more():
        whole = _whole(payloads(session, cell_run), saved, session.random)
        name, content = _file(session, whole, least)
        taken = start(name, content)
        if name in session.acceptance.tried:
            session.acceptance.count(name, taken=taken)
    session.conclude()


def _whole(stored: list[Payload], saved: bytes, random: random.Random) -> bytes:
    """An RDB file of some values that begins like a saved file."""
    chosen = random.sample(stored, min(len(stored), 3))
    return rdb_file({key: payload for _, key, payload in chosen}, saved)


def _sound(whole: bytes, cell: CellSpec) -> list[tuple[str, bytes]]:
    """An undamaged file of each form."""
    commands = wire(_BEGINNING)
    forms = [(RDB, whole), (AOF, commands)]
    return forms if cell.lacks(MIXED) else [*forms, (AOF, whole + commands)]


def _file(session: FuzzSession, whole: bytes, least: dict[bytes, int] | None) -> tuple[str, bytes]:
    """A damaged file's name and content. `least`: each command's minimum number of words; None: only cut it off."""
    random = session.random
    lacking = session.acceptance.lacking
    if lacking == [RDB]:
        return RDB, fitting_file(whole, random)
    if random.random() < 0.6 and lacking != [AOF]:
        return RDB, _cut(whole, random) if least is None else damaged_file(whole, random)
    commands = wire(
        (*_BEGINNING, *(msgspec.structs.replace(one, inline=False) for one in generate(random, themes_of_data())))
    )
    if not session.cell.lacks(MIXED) and random.random() < 0.4:
        commands = whole + commands
    if least is not None and random.random() < 0.4:
        content = damaged_file(commands, random)
        if not lacks_words(content, least):
            return AOF, content
    return AOF, _cut(commands, random)


def _cut(content: bytes, random: random.Random) -> bytes:
    return content[: random.randrange(len(content))]
