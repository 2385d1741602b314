"""Fixtures of the persistence suite: the files and payloads that every target of the run has written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from filelock import FileLock

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.run.cell_spec import read_cell
from suites._shared.keyspace import server

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest


class Written(msgspec.Struct, frozen=True):
    """The data set in the files and payloads of one target."""

    rdb: bytes
    dumps: dict[bytes, bytes]
    """Key of database 0 -> its DUMP payload."""
    append_only: dict[str, dict[str, bytes]]
    """Form -> file name -> content. Forms: FORMS."""
    encodings: set[tuple[str, str]]
    """The type of each value of database 0, with its encoding."""


FORMS = ("as it came", "rewritten as commands", "rewritten with a preamble")
"""Forms of append-only files: the original commands; one command for each key; with an RDB preamble (since 4.0)."""


@pytest.fixture
def written(cell: CellSpec, start_guest: StartGuest, family: str) -> Callable[[str], Written]:
    """Returns a target's files and payloads. The first cell of a run that needs them creates them."""

    def by(target: str) -> Written:
        cell.shared.mkdir(parents=True, exist_ok=True)
        path = cell.shared / f"persistence-{target}"
        with FileLock(path.with_suffix(".lock")):
            if not path.is_file():
                options = [*server.OPTIONS, "--appendonly", "yes"]
                files = _write(start_guest(target=target, options=options), family)
                write_whole(path, json_codec.encode(files))
        return json_codec.decode(path.read_bytes(), Written)

    return by


def _write(guest: Guest, family: str) -> Written:
    server.write(guest, family)
    rdb = server.saved(guest)
    append_only = {FORMS[0]: server.append_only_files(guest)}
    with server.client(guest) as client:
        names: list[Any] = client.command("KEYS", "*")  # type: ignore[assignment]
        payloads: list[Any] = client.pipeline([("DUMP", name) for name in names])
        kinds: list[Any] = client.pipeline([("TYPE", name) for name in names])
        forms: list[Any] = client.pipeline([("OBJECT", "ENCODING", name) for name in names])
        preambles = [("", FORMS[1])]
        if not guest.lacks("option aof-use-rdb-preamble"):
            preambles = [("no", FORMS[1]), ("yes", FORMS[2])]
        for preamble, form in preambles:
            if preamble:
                client.command("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
            server.await_rewrite(guest)
            append_only[form] = server.append_only_files(guest)
    return Written(
        rdb=rdb,
        dumps=dict(zip(names, payloads, strict=True)),
        append_only=append_only,
        encodings={(bytes(kind).decode(), bytes(form).decode()) for kind, form in zip(kinds, forms, strict=True)},
    )


def golden_files() -> list[Path]:
    """RDB files of earlier releases: golden/FAMILY-VERSION.rdb."""
    return sorted((Path(__file__).parent / "golden").glob("*.rdb"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`form`: the forms of append-only files that the tier loads."""
    if "form" in metafunc.fixturenames:
        path = metafunc.config.getoption("--plumb-cell")
        quick = path is not None and read_cell(Path(path)).tier in {"quick", "kernel"}
        metafunc.parametrize("form", FORMS[1:2] if quick else FORMS)
