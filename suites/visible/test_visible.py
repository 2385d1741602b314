"""The bytes of a reply must not depend on the machine. The list contains every exception with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.target_model import ORACLE
from harness.protocol.command_stream import line_of
from harness.protocol.pipeline import ask
from harness.protocol.reply_comparison import comparable
from suites._shared.census import of_release
from suites._shared.needs import require
from suites._shared.paired_servers import differing
from suites.visible import census, table

if TYPE_CHECKING:
    from harness.protocol.resp import Reply
    from harness.run.cell_spec import CellSpec
    from suites._shared.paired_servers import PairedServers

SHOWN = 6


def _exact(reply: Reply) -> str:
    """A reply as text: its kind and every byte."""
    return f"error: {reply}" if isinstance(reply, Exception) else repr(reply)


@pytest.mark.parametrize("group", [one.name for one in table.requests().groups])
def test_a_reply_has_the_same_bytes_as_on_this_machine_or_is_listed(
    both: PairedServers, group: str, cell: CellSpec
) -> None:
    (chosen,) = (one for one in table.requests().groups if one.name == group)
    commands = chosen.commands
    unlisted, gone = [], []
    pairs = zip(commands, ask(both.guest, commands), ask(both.oracle, commands), strict=True)
    for command, guest, native in pairs:
        target, here = cell.runner.target, cell.peers[ORACLE].runner.target
        listed = table.expected(command, target, here, cell.version, development=cell.development)
        same = _exact(comparable(command.name, guest)) == _exact(comparable(command.name, native))
        if not same and not (listed and listed.fits(guest, native)):
            unlisted.append((command, guest, native))
        if same and listed and listed.must_differ:
            gone.append(line_of(command))
    if unlisted:
        lines = [
            f"{line_of(one):.100}: {_exact(guest_reply):.200}, native {_exact(native_reply):.200}"
            for one, guest_reply, native_reply in unlisted
        ]
        command, guest, native = unlisted[0]
        message = f"{len(unlisted)} replies differ, and are not listed so: " + "; ".join(lines[:SHOWN])
        raise differing(command.words, guest, native, both.target, message)
    assert not gone, f"listed in suites/visible/differences.toml, but the same now: {gone}"


def test_every_command_is_asked_or_there_is_a_reason(both: PairedServers, cell: CellSpec) -> None:
    """New commands and options of a release need requests, or a reason for their absence."""
    known = of_release(both.oracle, cell)
    missing = census.missing(known)
    assert not missing, f"neither requested nor listed as unasked in suites/visible/requests.toml: {', '.join(missing)}"


@pytest.mark.parametrize(
    ("program", "argument", "expected"),
    [
        # The examples of FIPS 180-4.
        ("return redis.sha1hex(ARGV[1])", b"abc", b"a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("return redis.sha1hex(ARGV[1])", b"", b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        # The MessagePack specification stores numbers with their most significant byte first.
        ("return cmsgpack.pack(tonumber(ARGV[1]))", b"65536", b"\xce\x00\x01\x00\x00"),
        ("return cmsgpack.pack(tonumber(ARGV[1]))", b"0.1", b"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
        # The format strings state the byte order.
        ("return struct.pack('>I4', ARGV[1])", b"16909060", b"\x01\x02\x03\x04"),
        ("return struct.pack('<I4', ARGV[1])", b"16909060", b"\x04\x03\x02\x01"),
        ("return struct.pack('>d', ARGV[1])", b"-2", b"\xc0\x00\x00\x00\x00\x00\x00\x00"),
    ],
)
def test_what_a_specification_fixes_is_so(
    both: PairedServers, program: str, argument: bytes, expected: bytes, cell: CellSpec
) -> None:
    require(cell, "form EVAL struct")
    both.expect([("EVAL", program, 0, argument)], [expected], program)
