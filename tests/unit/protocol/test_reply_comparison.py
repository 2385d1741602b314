"""When two servers agree: replies without an order, errors compared by their text, and only listed differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hiredis import ReplyError

from harness.protocol import allowed_differences, reply_comparison
from harness.protocol.allowed_refusals import Release
from harness.protocol.command_stream import command, from_text
from tests.support import fakes

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply

NARROW = fakes.target()
WIDE = msgspec.structs.replace(NARROW, width_bits=64)
RELEASE = Release("redis", (7, 0, 15))


def differs(
    text: str, guest: list[Reply], native: list[Reply], *, narrow: bool = False
) -> reply_comparison.ReplyDifference | None:
    stream: Stream = from_text(text)
    return reply_comparison.first_difference(stream, guest, native, NARROW if narrow else WIDE, RELEASE)


def test_the_first_difference_is_named_with_both_replies() -> None:
    found = differs("SET k 1\nGET k\nSTRLEN k\n", [b"OK", b"1", 2], [b"OK", b"2", 1])
    assert found is not None
    assert (found.index, found.name, str(found)) == (1, "GET", "GET k: guest b'1', native b'2'")


def test_the_rules_of_a_user_have_no_order() -> None:
    """Regression: releases of 2019 and 2020 list a user's commands in the order of a hash table."""
    rules: list[Reply] = [[b"commands", b"-@all +get +set"], [b"commands", b"-@all +set +get"]]
    assert differs("ACL GETUSER plumb\n", rules[:1], rules[1:]) is None
    assert differs("ACL GETUSER plumb\n", rules[:1], [[b"commands", b"-@all +set"]]) is not None


def test_what_only_one_server_answered_is_not_compared() -> None:
    """The other one has died, which is a finding of its own."""
    assert differs("GET k\nGET l\n", [b"1"], [b"1", b"2"]) is None
    assert differs("GET k\nGET l\n", [b"1", b"2"], []) is None
    assert differs("GET k\nGET l\n", [b"1"], [b"2", b"2"]) is not None


def test_a_difference_after_replies_in_another_order_is_found() -> None:
    found = differs("SMEMBERS k\nGET k\n", [[b"a", b"b"], b"1"], [[b"b", b"a"], b"2"])
    assert found is not None
    assert (found.index, found.name) == (1, "GET")


@pytest.mark.parametrize(
    ("text", "guest", "native"),
    [
        ("SMEMBERS k", [[b"a", b"b"]], [[b"b", b"a"]]),
        ("HGETALL k", [[b"a", b"1", b"b", b"2"]], [[b"b", b"2", b"a", b"1"]]),
        ("GEOPOS k m", [[[b"13.361389338970184", b"38.1"]]], [[[b"13.361389338970190", b"38.1"]]]),
        ("GEOPOS k m", [[[13.361389338970184, 38.1]]], [[[13.361389338970190, 38.1]]]),
        ("HGETALL k", [{b"a": b"1", b"b": b"2"}], [{b"b": b"2", b"a": b"1"}]),
        ("PTTL b:k", [99999999990], [100000000000]),
        ("TTL relative", [4999], [5000]),
        ("HTTL instants FIELDS 1 f", [[99]], [[100]]),
        ("TIME", [[b"2147483711", b"5"]], [[b"2147483708", b"999999"]]),
        ("XADD x * f v", [b"2147483711000-0"], [b"2147483708999-1"]),
        (
            "MULTI\n@2 MULTI\n@2 SMEMBERS k\n@2 EXEC",
            [b"OK", b"OK", b"QUEUED", [[b"a", b"b"]]],
            [b"OK", b"OK", b"QUEUED", [[b"b", b"a"]]],
        ),
        (
            "MULTI\n@2 SMEMBERS k\nGET k\nEXEC",
            [b"OK", [b"a", b"b"], b"QUEUED", [b"1"]],
            [b"OK", [b"b", b"a"], b"QUEUED", [b"1"]],
        ),
        (
            "MULTI\nSMEMBERS k\n@2 MULTI\n@2 EXEC\nEXEC",
            [b"OK", b"QUEUED", b"OK", [], [[b"a", b"b"]]],
            [b"OK", b"QUEUED", b"OK", [], [[b"b", b"a"]]],
        ),
        (
            "MULTI\nGET k\nEXEC\nMULTI\nSMEMBERS k\nEXEC",
            [b"OK", b"QUEUED", [b"1"], b"OK", b"QUEUED", [[b"a", b"b"]]],
            [b"OK", b"QUEUED", [b"1"], b"OK", b"QUEUED", [[b"b", b"a"]]],
        ),
        (
            "MULTI\nGET k\nDISCARD\nMULTI\nSMEMBERS k\nEXEC",
            [b"OK", b"QUEUED", b"OK", b"OK", b"QUEUED", [[b"a", b"b"]]],
            [b"OK", b"QUEUED", b"OK", b"OK", b"QUEUED", [[b"b", b"a"]]],
        ),
        ("SSCAN k 0 COUNT 100000", [[b"0", [b"a", b"b"]]], [[b"0", [b"b", b"a"]]]),
        ("SPOP k 100000", [[b"a", b"b"]], [[b"b", b"a"]]),
        ("GET k", [ReplyError("ERR no")], [ReplyError("ERR no")]),
        ("EVAL x 0", [[ReplyError("ERR no")]], [[ReplyError("ERR no")]]),
        ("MULTI\nSMEMBERS k\nEXEC", [b"OK", b"QUEUED", [[b"a", b"b"]]], [b"OK", b"QUEUED", [[b"b", b"a"]]]),
    ],
)
def test_what_means_the_same_agrees(text: str, guest: list[Reply], native: list[Reply]) -> None:
    assert differs(text, guest, native) is None


@pytest.mark.parametrize(
    ("text", "guest", "native", "name"),
    [
        ("LRANGE k 0 -1", [[b"a", b"b"]], [[b"b", b"a"]], "LRANGE"),
        ("SMEMBERS k", [[b"a", b"a"]], [[b"a"]], "SMEMBERS"),
        ("HGETALL k", [[b"a", b"1", b"b", b"2"]], [[b"a", b"2", b"b", b"1"]], "HGETALL"),
        ("GEOPOS k m", [[[b"13.3613"]]], [[[b"13.3614"]]], "GEOPOS"),
        ("ZSCORE k m", [1.5], [1.25], "ZSCORE"),
        ("PTTL b:k", [-1], [100000000000], "PTTL"),
        ("PEXPIRETIME s:k", [4102444800000], [4102444800001], "PEXPIRETIME"),
        ("HPEXPIRETIME h:k FIELDS 1 f", [[4102444800000]], [[4102444800001]], "HPEXPIRETIME"),
        ("TTL relative", [705], [5000], "TTL"),
        ("TTL relative", [-1], [5000], "TTL"),
        ("TIME", [[b"-2147483588", b"5"]], [[b"2147483708", b"5"]], "TIME"),
        ("XADD x * f v", [b"18446741926225964110-0"], [b"2147483708999-1"], "XADD"),
        ("SSCAN k 0 COUNT 100000", [[b"0", [b"a"]]], [[b"0", [b"b"]]], "SSCAN"),
        ("SPOP k 100000", [[b"a"]], [[b"b"]], "SPOP"),
        ("GET k", [ReplyError("ERR no")], [ReplyError("ERR yes")], "GET"),
        ("GET k", [b""], [None], "GET"),
        ("GET k", [b"1"], [1], "GET"),
        (
            "MULTI\nGET k\nGET j\nEXEC",
            [b"OK", b"QUEUED", b"QUEUED", [b"1", b"2"]],
            [b"OK", b"QUEUED", b"QUEUED", [b"1", b"3"]],
            "GET",
        ),
    ],
)
def test_what_means_another_thing_differs(text: str, guest: list[Reply], native: list[Reply], name: str) -> None:
    found = differs(text, guest, native)
    assert found is not None
    assert found.name == name


def test_a_multi_inside_a_transaction_queues_on() -> None:
    text = "MULTI\nGET k\nMULTI\nSMEMBERS s\nEXEC\n"
    nested = ReplyError("ERR MULTI calls can not be nested")
    guest: list[Reply] = [b"OK", b"QUEUED", nested, b"QUEUED", [b"1", [b"a", b"b"]]]
    native: list[Reply] = [b"OK", b"QUEUED", nested, b"QUEUED", [b"1", [b"b", b"a"]]]
    assert differs(text, guest, native) is None


REFUSED = ReplyError("ERR value is out of range")


def test_a_narrow_target_may_refuse_a_wide_index_and_no_more_is_compared() -> None:
    text = "LTRIM k 0 4294967296\nLLEN k\n"
    assert differs(text, [REFUSED, 3], [b"OK", 2], narrow=True) is None
    assert differs(text, [REFUSED, 3], [b"OK", 2]) is not None


@pytest.mark.parametrize(
    ("text", "native"),
    [("LRANGE k 0 4294967296\nLLEN k\n", []), ("LSET k 4294967296 x\nLLEN k\n", ReplyError("ERR no"))],
)
def test_what_changed_nothing_on_either_side_ends_no_comparison(text: str, native: Reply) -> None:
    assert differs(text, [REFUSED, 3], [native, 3], narrow=True) is None
    found = differs(text, [REFUSED, 3], [native, 2], narrow=True)
    assert found is not None
    assert found.name == "LLEN"


@pytest.mark.parametrize("says", ["ERR value is out of range", "ERR value is not an integer or out of range"])
def test_a_narrow_target_may_not_refuse_a_number_that_is_no_index(says: str) -> None:
    for text in ("HINCRBY h f 4294967296\n", "INCRBY n 4294967296\n", "XRANGE s 4294967296 +\n"):
        assert differs(text, [ReplyError(says)], [1], narrow=True) is not None


def test_a_narrow_target_may_encode_otherwise_and_the_comparison_goes_on() -> None:
    text = "OBJECT ENCODING k\nGET k\n"
    assert differs(text, [b"raw", b"1"], [b"int", b"1"], narrow=True) is None
    found = differs(text, [b"raw", b"1"], [b"int", b"2"], narrow=True)
    assert found is not None
    assert found.name == "GET"
    assert differs(text, [b"int", b"1"], [b"raw", b"1"], narrow=True) is not None


@pytest.mark.parametrize(
    ("name", "length", "narrow", "same"),
    [
        ("RESTORE", 1 << 32, True, True),
        ("RESTORE", (1 << 32) - 1, True, False),
        ("RESTORE", 1 << 32, False, False),
        ("RESTOREX", 1 << 32, True, False),
    ],
)
def test_an_excuse_may_depend_on_what_was_asked(name: str, length: int, *, narrow: bool, same: bool) -> None:
    payload = b"\0\x81" + length.to_bytes(8) + b"abc"
    stream = (command(name, "k", 0, payload),)
    refused = ReplyError("ERR Bad data format")
    found = reply_comparison.first_difference(stream, [b"OK"], [refused], NARROW if narrow else WIDE, RELEASE)
    assert (found is None) == same


@pytest.mark.parametrize("narrow", [True, False])
def test_an_excuse_may_be_for_targets_of_any_width(*, narrow: bool) -> None:
    assert differs("INCRBYFLOAT k 0.1", [b"0.10000000000000001"], [b"0.1"], narrow=narrow) is None
    assert differs("INCRBYFLOAT k 0.1", [b"0.2"], [b"0.1"], narrow=narrow) is not None


@pytest.mark.parametrize(
    ("limit", "same"), [("2147483647", True), ("4294967295", True), ("-1", False), ("65535", False)]
)
def test_a_refused_setting_may_name_the_limit_of_a_long(limit: str, *, same: bool) -> None:
    def refusal(limit: str) -> ReplyError:
        return ReplyError(f"ERR CONFIG SET failed (of 'one') - argument must be between 1 and {limit} inclusive")

    found = differs("CONFIG SET one 0", [refusal(limit)], [refusal("9223372036854775807")], narrow=True)
    assert (found is None) == same


def test_what_is_drawn_at_random_is_not_compared_and_what_follows_is() -> None:
    text = "HRANDFIELD h 1\nGET k\n"
    assert differs(text, [[b"a"], b"1"], [[b"b"], b"1"]) is None
    found = differs(text, [[b"a"], b"1"], [[b"b"], b"2"])
    assert found is not None
    assert found.name == "GET"
    for cursor in ("17", "-8388607"):
        assert differs(f"ZSCAN z {cursor} COUNT 100000\n", [[b"0", [b"a"]]], [[b"0", [b"b"]]]) is None
    assert differs("ZSCAN z 0 COUNT 100000\n", [[b"0", [b"a"]]], [[b"0", [b"b"]]]) is not None
    assert differs("SPOP s\nSMEMBERS s\n", [b"a", [b"b"]], [b"b", [b"a"]]) is None
    assert allowed_differences.uncompared(from_text("SPOP s\nGET k\nSCAN 0\nSPOP s\n")) == ["SPOP", "SCAN"]


NO = ReplyError("ERR no")


@pytest.mark.parametrize(
    ("text", "guest", "native"),
    [
        ("SRANDMEMBER s 3", NO, [b"a", b"b", b"c"]),
        ("SRANDMEMBER s -3", [b"a", b"a"], [b"a", b"b", b"b"]),
        ("SRANDMEMBER s", None, b"a"),
        ("SRANDMEMBER s", [b"a"], b"a"),
        ("SPOP s 2", [], [b"a", b"b"]),
        ("RANDOMKEY", None, b"k"),
        ("SSCAN s 0 COUNT 0", [b"0", [b"a"]], ReplyError("ERR syntax error")),
        ("CLIENT KILL ID none", 0, ReplyError("ERR client-id should be greater than 0")),
        ("MEMORY USAGE k SAMPLES -1", ReplyError("ERR value is out of range"), ReplyError("ERR syntax error")),
        ("SLOWLOG GET 2", NO, []),
    ],
)
def test_what_may_have_any_content_is_of_one_kind_on_both(text: str, guest: Reply, native: Reply) -> None:
    for narrow in (False, True):
        assert differs(text, [guest], [native], narrow=narrow) is not None


def test_a_narrow_target_may_refuse_a_wide_number_in_what_is_not_compared() -> None:
    assert differs("SLOWLOG GET 4294967296", [NO], [[]], narrow=True) is None
    assert differs("SLOWLOG GET 4294967296", [NO], [[]]) is not None


def test_what_may_have_any_content_may_have_another() -> None:
    assert differs("INFO", [b"a"], [b"b"]) is None
    assert differs("OBJECT FREQ k", [1], [2]) is None
    assert differs("SCAN 0 COUNT 2", [[b"3", [b"a"]]], [[b"0", [b"a", b"b"]]]) is None
    assert differs("SLOWLOG GET 2", [[]], [[[b"1"]]]) is None


@pytest.mark.parametrize(
    ("guest", "native", "added", "same"),
    [
        # Either may be longer: with more bits a number is nearer to the intended one, and its text is shorter.
        (b"13.365", b"13.36499999999999999", "259.62", True),
        (b"13.3650000001", b"13.365", "259.62", False),
        # What is left of a large number is as inexact as that was.
        (b"0.3125", b"0.3", "-1000000000000000", True),
        (b"0.3125", b"0.3", "-1000", False),
        (b"error: ERR value is not a valid float", b"1", "1", False),
    ],
)
def test_an_excuse_may_say_how_many_digits_are_right(guest: bytes, native: bytes, added: str, *, same: bool) -> None:
    found = differs(f"HINCRBYFLOAT k f {added}", [guest], [native], narrow=False)
    assert same == (found is None)


def test_everything_that_is_excused_has_a_reason() -> None:
    listed = allowed_differences.known()
    assert all(
        len(reason) > 20
        for reason in [*(one.reason for one in listed.rounded), *(one.reason for one in listed.excuses)]
    )


@pytest.mark.parametrize(
    ("release", "narrow", "guest", "native", "agree"),
    [
        (Release("valkey", (8, 1, 1)), True, b"embstr", b"raw", True),
        (Release("valkey", (8, 1, 1)), False, b"embstr", b"raw", False),
        (Release("valkey", (8, 1, 1)), True, b"raw", b"embstr", True),
        (Release("valkey", (8, 1, 1)), False, b"raw", b"embstr", False),
        (Release("valkey", (8, 1, 1)), True, b"int", b"embstr", False),
        (Release("valkey", (8, 0, 9)), True, b"raw", b"embstr", False),
        (Release("valkey", (8, 0, 9)), True, b"embstr", b"raw", False),
        (Release("valkey", (9, 0)), True, b"embstr", b"raw", False),
        (Release("redis", (8, 1, 1)), True, b"embstr", b"raw", False),
    ],
)
def test_an_excuse_is_one_of_the_releases_that_it_names(
    release: Release, narrow: bool, guest: bytes, native: bytes, agree: bool
) -> None:
    stream = from_text("OBJECT ENCODING k")
    machine = NARROW if narrow else WIDE
    found = reply_comparison.first_difference(stream, [guest], [native], machine, release)
    assert (found is None) == agree


@pytest.mark.parametrize(("detector", "agree"), [("", False), ("ubsan", False), ("asan", True), ("tsan", True)])
def test_an_excuse_may_be_for_targets_whose_detector_brings_an_allocator(*, detector: str, agree: bool) -> None:
    emulator = msgspec.structs.replace(WIDE.emulator, detector=detector)
    machine = msgspec.structs.replace(WIDE, emulator=emulator)
    stream, release = from_text("OBJECT ENCODING k"), Release("valkey", (8, 1, 1))
    assert (reply_comparison.first_difference(stream, [b"raw"], [b"embstr"], machine, release) is None) == agree
