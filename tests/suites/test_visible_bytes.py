"""The data of the suite `visible` is complete and readable, and its page is current."""

from __future__ import annotations

import fnmatch
import platform
from typing import TYPE_CHECKING

import hiredis
import pytest

from harness.plan.catalog import Catalog
from harness.protocol.command_stream import command, line_of
from suites.visible import table

if TYPE_CHECKING:
    from harness.core.target_model import Target
    from harness.protocol.command_stream import Command
    from harness.protocol.resp import Reply

TARGETS = Catalog().targets


def is_about(listed: table.Listed, one: Command) -> bool:
    """Whether an entry is for a request, on some target. There are a million combinations with a target."""
    return fnmatch.fnmatchcase(line_of(one), listed.request)


@pytest.mark.parametrize("name", [group.name for group in table.requests().groups])
def test_every_group_has_requests_that_can_be_read(name: str) -> None:
    (group,) = (one for one in table.requests().groups if one.name == name)
    assert len(group.commands) > 1
    assert all(one.words[0].isupper() for one in group.commands)


def test_no_command_is_both_tested_and_excluded() -> None:
    grouped = {one.name for group in table.requests().groups for one in group.commands}
    # The requests contain CLUSTER KEYSLOT. The other subcommands of CLUSTER need a cluster.
    partly = {"ACL", "CLIENT", "CLUSTER", "CONFIG", "DEBUG"}
    assert grouped & {name for one in table.requests().unasked for name in one.commands} <= partly


@pytest.mark.parametrize("version", [(6, 2), (7,), (8,)])
def test_a_development_tree_may_differ_as_any_release_does(version: tuple[int, ...]) -> None:
    one = table.Listed(request="GET *", targets=["armv5"], native="a", there=["b"], reason="c", since=(7,), until=(8,))
    request = command("GET", "k")
    assert one.covers(request, TARGETS["armv5"], version, development=True)
    assert not one.covers(request, TARGETS["armv6"], version, development=True)
    assert one.covers(request, TARGETS["armv5"], version) is (version == (7,))


def test_a_kernel_tier_target_has_the_differences_of_the_target_whose_builds_it_runs() -> None:
    one = table.Listed(request="GET *", targets=["armv5"], native="a", there=["b"], reason="c")
    request = command("GET", "k")
    assert one.covers(request, TARGETS["armv5-kernel"], (7, 0, 15))
    assert not one.covers(request, TARGETS["armv7-kernel"], (7, 0, 15))


@pytest.mark.parametrize("listed", table.table().differences, ids=lambda one: one.request)
def test_a_listed_difference_names_an_existing_request_and_existing_targets(listed: table.Listed) -> None:
    version = (7, 0, 15)
    requests = [one for group in table.requests().groups for one in group.commands if is_about(listed, one)]
    shown = [target.name for target in TARGETS.values() if any(listed.covers(one, target, version) for one in requests)]
    assert shown, "no request on any target shows it"
    as_aarch64 = platform.machine() == "aarch64" and "aarch64" in shown
    assert ("native" in shown) is as_aarch64, "the native build cannot differ from itself"
    assert listed.reason


def test_a_reply_that_may_differ_is_listed_at_most_once_for_each_target() -> None:
    requests = [one for group in table.requests().groups for one in group.commands]
    for one in requests:
        entries = [entry for entry in table.table().differences if is_about(entry, one)]
        for target in TARGETS.values():
            listed = [entry for entry in entries if entry.covers(one, target, (7, 0, 15))]
            assert len(listed) <= 1, f"{one.words}: {len(listed)} entries for {target.name}"


def test_a_listed_request_may_have_only_the_listed_replies() -> None:
    one = table.AllowedReplies(guest=["3", "-1, x"], native=["00 ff"])
    assert one.fits(3, b"\x00\xff")
    assert one.fits([-1, b"x"], b"\x00\xff")
    assert not one.fits(4, b"\x00\xff")
    assert not one.fits(b"\x00\xfe", b"\x00\xff")
    assert not one.fits(hiredis.ReplyError("3"), b"\x00\xff"), "an error is not an accepted reply"
    assert not one.fits(3, b"\x00\xfe"), "the native build's reply must be the listed one, too"
    both = table.AllowedReplies(guest=["3", "4"], native=["3"])
    assert one.must_differ
    assert not both.must_differ
    assert not both.fits(3, b"3"), "a different type of reply is not a listed difference"


def native_of(monkeypatch: pytest.MonkeyPatch, machine: str, name: str = "native") -> Target:
    """The native target of a machine with this processor."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    return Catalog().targets[name]


def test_on_aarch64_the_native_build_replies_like_the_target_aarch64(monkeypatch: pytest.MonkeyPatch) -> None:
    native = native_of(monkeypatch, "aarch64")
    request, version = command("INCRBYFLOAT", "f", "1e15"), (7, 0, 15)
    quad, usual, double = "1000000000000000.3", "1000000000000000.29998779296875", "1000000000000000.25"
    for name, guest in {"aarch64": quad, "sparc64": quad, "i386": usual, "armv5": double}.items():
        listed = table.expected(request, TARGETS[name], native, version)
        assert listed == table.AllowedReplies([guest], [quad]), name
        assert listed.must_differ is (guest != quad), name
    detected = native_of(monkeypatch, "aarch64", "native-asan")
    assert table.expected(request, detected, native, version) == table.AllowedReplies([quad], [quad])
    lax = table.expected(request, TARGETS["armv5"], native, version, development=True)
    assert lax == table.AllowedReplies([double, usual], [quad, usual])
    assert not lax.must_differ


def test_on_x86_64_the_native_build_has_the_listed_native_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    native = native_of(monkeypatch, "x86_64")
    request, version = command("INCRBYFLOAT", "f", "0.2"), (7, 0, 15)
    assert table.expected(request, TARGETS["armv5"], native, version) == (["0.30000000000000004"], ["0.3"])
    assert table.expected(request, TARGETS["aarch64"], native, version) is None


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"0.3", "0.3"),
        (b"\x00a", "00 61"),
        (b"\xe9", "e9"),
        (b"", ""),
        (12, "12"),
        (None, "None"),
        ([b"a", [1, b"\n"]], "a, 1, 0a"),
        (hiredis.ReplyError("ERR no"), "error: ERR no"),
    ],
)
def test_a_reply_is_shown_completely(reply: Reply, text: str) -> None:
    assert table.shown(reply) == text


def test_a_listed_difference_covers_only_its_targets_and_releases() -> None:
    one = table.Listed(
        request="GET *", targets=["big-endian", "armv5"], native="a", there=["b"], reason="c", since=(7,), until=(8,)
    )
    request = command("GET", "k")
    assert one.covers(request, TARGETS["sparc64"], (7, 0))
    assert one.covers(request, TARGETS["armv5"], (7, 2))
    assert not one.covers(request, TARGETS["armv6"], (7, 0))
    assert not one.covers(request, TARGETS["armv5"], (6, 2))
    assert not one.covers(request, TARGETS["armv5"], (8, 0))
    assert not one.covers(command("SET", "k", "v"), TARGETS["armv5"], (7, 0))


def test_the_page_agrees_with_the_data() -> None:
    assert table.PAGE.read_text("utf-8") == table.page(), "type: python -m suites.visible.table"
