"""Which tests of a release may fail on which targets (suites/upstream/differences.toml)."""

from __future__ import annotations

import contextlib

import pytest

from harness.core import json_codec
from harness.plan.catalog import Catalog
from harness.record import cell_events
from harness.run.upstream import results
from harness.run.upstream.session import UpstreamFailedError, UpstreamResult
from suites.upstream import table
from suites.upstream.test_upstream import excuse

TARGETS = Catalog().targets


@pytest.mark.parametrize(
    ("because_of", "targets", "kernel"),
    [
        ("byte-order", ["s390x"], True),
        ("speed", ["big-endian"], True),
        ("emulation", ["s390x"], False),
        ("emulation", ["*-kernel"], True),
        ("byte-order", ["sparc64"], False),
    ],
)
def test_a_kernel_target_has_its_userlands_exceptions_except_for_limits_of_emulators(
    because_of: str, targets: list[str], *, kernel: bool
) -> None:
    entry = {"tests": ["unit/type/hash::*"], "reason": "one", "because_of": because_of, "targets": targets}
    one = json_codec.convert(entry, table.ListedTest)
    assert one.covers("unit/type/hash::HSET", TARGETS["s390x-kernel"], "redis", (7, 0, 15)) is kernel


@pytest.mark.parametrize(
    ("outcome", "sometimes", "guests", "announced", "raised"),
    [
        ("failed", False, {}, (), "skipped"),
        ("undecided", False, {}, (), "skipped"),
        ("unsteady", True, {}, (), "skipped"),
        ("unsteady", False, {}, (), ""),
        ("missing", True, {}, (), ""),
        ("passed", True, {}, (), ""),
        ("passed", False, {}, (), "failed"),
        ("failed", True, {"guest-1": (0, 1)}, (), ""),
        ("failed", True, {"guest-1": (0, 1)}, ("command: debug segfault",), "skipped"),
    ],
)
def test_a_listed_test_is_excused_only_for_a_failure_as_it_is_listed(
    outcome: results.Outcome,
    guests: dict[str, tuple[int, int]],
    announced: tuple[str, ...],
    raised: str,
    *,
    sometimes: bool,
) -> None:
    entry = table.ListedTest(tests=["a::b"], reason="slow", because_of="speed", sometimes=sometimes)
    result = UpstreamResult(
        file="tests/a.tcl",
        label="b",
        line=0,
        verdict=results.UpstreamVerdict(outcome=outcome),
        event=cell_events.TestEvent(name="b", outcome="passed", seconds=0, guests=guests, announced=announced),
        log="",
    )
    ended = {"skipped": pytest.raises(pytest.skip.Exception), "failed": pytest.raises(UpstreamFailedError)}
    with ended.get(raised, contextlib.nullcontext()):
        excuse(entry, result)
