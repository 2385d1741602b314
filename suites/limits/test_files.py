"""The server's file checkers print the same output on every machine, and leave the same repaired file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import Client
from suites._shared.formats.handmade import FILES
from suites._shared.needs import require

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from suites._shared.programs import Programs

SNAPSHOTS = ["integers of each width", "sizes of tables"]
MOMENT = (1 << 31) - 2
"""A time in seconds since 1970 that fits every machine's `time_t`."""
_OF_ONE_RUN = re.compile(rb"^\d+:[A-Z] [^*#.-]*\.\d{3} ", re.MULTILINE)
"""The process number and the time at the start of a log line. Some checkers write log lines (Valkey 9)."""


def steady(output: bytes) -> bytes:
    return _OF_ONE_RUN.sub(b"", output)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_is_checked(checks: Programs, cell: CellSpec, name: str) -> None:
    require(cell, "option sanitize-dump-payload")
    checks.file("dump.rdb", FILES[name])
    checks.same("check-rdb", "dump.rdb", shown=steady)


def test_a_wrong_checksum_of_a_snapshot_is_found(checks: Programs) -> None:
    whole = FILES["integers of each width"]
    checks.file("dump.rdb", whole[:-1] + bytes([whole[-1] ^ 1]))
    output = checks.same("check-rdb", "dump.rdb", shown=steady)
    assert b"RDB looks OK" not in output, output[-300:]


def test_an_append_only_file_is_repaired_up_to_its_damage(checks: Programs) -> None:
    whole = Client.pack([("SELECT", "0"), ("SET", "key", "v" * 300)])
    damaged = whole + Client.pack([("RPUSH", "list", "a", "b")])[:-3]
    file = checks.file("one.aof", damaged)
    checks.same("check-aof", "one.aof", shown=steady)
    checks.run("check-aof", "--fix", "one.aof", sent=b"y\n")
    assert file.read_bytes() == whole, f"{len(damaged)} bytes are cut to {file.stat().st_size}, {len(whole)} are intact"


def test_an_append_only_file_is_cut_at_a_moment(checks: Programs, cell: CellSpec) -> None:
    require(cell, "option aof-timestamp-enabled")
    early = b"#TS:%d\r\n" % (MOMENT - 1) + Client.pack([("SELECT", "0"), ("SET", "key", "1")])
    file = checks.file("one.aof", early + b"#TS:%d\r\n" % MOMENT + Client.pack([("SET", "key", "2")]))
    checks.run("check-aof", "--truncate-to-timestamp", str(MOMENT - 1), "one.aof")
    assert file.read_bytes() == early, f"cut at {MOMENT - 1}: {file.read_bytes()!r}"
    checks.file("one.aof", early + b"#TS:%d\r\n" % MOMENT)
    checks.same("check-aof", "--truncate-to-timestamp", str(MOMENT), "one.aof", shown=steady)
